"""Which kernel computes a product, and whether one launch takes its whole batch."""

from __future__ import annotations

from functools import partial

from warptile.arrays.batches import batched
from warptile.arrays.operands import Product
from warptile.calls.call_options import CallOptions
from warptile.errors import UnsupportedError
from warptile.planning.addend import Addend, Nothing
from warptile.planning.plan import Plan, illegal, is_faster_apart
from warptile.rungs.kernel_spec import scale_value
from warptile.runtime.execute import find_planned, planned

Chosen = Plan | Addend | Nothing
"""A rung in a configuration; what is left where nothing is multiplied; or no launch at all."""


def chosen_kernel(product: Product, call: CallOptions) -> tuple[Chosen, str | None]:
    """The plan for the whole batch, or the one for a part of it, and why the batch is not one launch."""
    for name, factor in (("alpha", call.alpha), ("beta", call.beta)):
        scale_value(name, factor, product.problem.accumulator)
    if product.empty:
        return Nothing(product.problem, product.result_shape), None
    problem, apart = batched(product)
    if not product.reads_operands:
        return Addend(problem, call.backend.device.occupying(call.max_sms)), apart
    made = partial(planned, backend=call.backend, rung=call.rung, config=call.config, max_sms=call.max_sms)
    if problem.batch == 1:
        return made(problem), apart
    try:
        found = find_planned(problem, call.backend, rung=call.rung, config=call.config, max_sms=call.max_sms)
    except UnsupportedError:  # the configuration that was given takes no batch, or nothing
        found = None
    if found is not None and (call.rung is not None or found.rung.family != "simt"):
        return found, apart
    single = made(product.problem)
    if found is not None:  # on CUDA cores: before Ampere tensor cores take one matrix at a time
        if not is_faster_apart(found, single):
            return found, apart
        return single, f"{single.rung.name} takes one matrix at a time, and is predicted to be faster"
    reason = illegal(single.rung, problem, single.config, single.device)
    return single, reason or f"{single.rung.name} takes one matrix at a time"
