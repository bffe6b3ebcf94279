"""Calls of `warptile.matmul` and `warptile.linear` that torch has to see, as calls of operators.

In eager mode a call whose gradient is recorded and that nothing else changes is recorded directly, without the
dispatcher, which `torch.compile`, autocast, ``torch.func`` and subclasses of tensors need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from warptile import api
from warptile.arrays.options import beta_of, number
from warptile.calls.call_options import OPTIONS
from warptile.calls.matmul_plan import GemmPlan
from warptile.errors import DTypeError, UnsupportedError
from warptile.linear_call import check_linear, fits, product_of_rows
from warptile.planning.plan import Plan
from warptile.torch.gradients import Setting, is_direct, record_linear, record_matmul
from warptile.torch.linear_operator import LINEAR
from warptile.torch.matmul_operator import MATMUL, MATMUL_OUT
from warptile.torch.results import torch_type


def matmul_call(a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
    """`warptile.matmul` of tensors, for which `warptile.torch_route.torch_sees` said yes.

    Args:
        a, b, c, out: tensors, or None.
        options: as in `warptile.calls.call_options.OPTIONS`.

    Returns:
        The result, with its gradient recorded where it has one; ``out`` where that was given.
    """
    said = dict(zip(OPTIONS, options, strict=True))
    if out is None and is_direct(a, b, c):
        setting = _setting(said, a, c)

        def compute() -> Any:
            return api.matmul(a, b, c, **said)

        return record_matmul(a, b, c, setting, compute)
    return _operate(a, b, c, out, **said)


def _setting(said: dict[str, Any], a: Any, c: Any) -> Setting:
    """What gradients have to know; raises where the call has none."""
    refuse_config(said["config"])
    return Setting(
        number(said["alpha"], "alpha"), beta_of(said["beta"], c), said["precision"], said["max_sms"], said["backend"],
        said["batch_invariant"],
    )  # fmt: skip


def refuse_config(config: Any) -> None:
    """Raise where a call that torch records or traces has a configuration.

    Raises:
        UnsupportedError: it has.
    """
    if config is not None:
        raise UnsupportedError(
            "config: a call that torch records or traces takes a rung and no configuration of it; leave config out, "
            "or call it on detached tensors under torch.no_grad()"
        )


def factors(
    a: Any, c: Any, *, alpha: Any = 1, beta: Any = None, out_dtype: Any = None, accumulate: Any = None,
    precision: Any = None, scale_a: Any = None, scale_b: Any = None, rung: Any = None, max_sms: Any = None,
    backend: Any = None, batch_invariant: Any = False,
) -> dict[str, Any]:  # fmt: skip
    """Keywords of `warptile.matmul`, as the operators take them; Dynamo traces this."""
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale is None:
            continue
        if a.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
            raise DTypeError(
                f"{name}: it is for operands of 8 bits; a is {str(a.dtype).removeprefix('torch.')}: "
                f"give alpha={name} instead"
            )
        alpha = _number(alpha, "alpha") * _number(scale, name)
    if accumulate is not None and not isinstance(accumulate, str):
        accumulate = str(torch_type(accumulate)).removeprefix("torch.")
    return {
        "alpha": _number(alpha, "alpha"), "beta": _beta(beta, c), "out_dtype": torch_type(out_dtype),
        "accumulate": accumulate, "precision": precision, "rung": rung, "max_sms": max_sms, "backend": backend,
        "batch_invariant": batch_invariant,
    }  # fmt: skip


def _operate(a: Any, b: Any, c: Any, out: Any, *, epilogue: Any = None, config: Any = None, **options: Any) -> Any:
    """The call as one of ``torch.ops.warptile.matmul`` or ``matmul_out``; Dynamo traces this."""
    assert epilogue is None, "calls with an epilogue have an operator of their own"
    refuse_config(config)
    said = factors(a, c, **options)
    if out is None:
        return MATMUL(a, b, c, **said)
    out_dtype = said.pop("out_dtype")
    if out_dtype is not None and out_dtype != out.dtype:
        raise DTypeError(f"out is {out.dtype} and out_dtype is {out_dtype}; leave one of them out")
    MATMUL_OUT(a, b, c, out=out, **said)
    return out


def _beta(beta: Any, c: Any) -> Any:
    """The factor of C. Numbers are looked at here: Dynamo does not trace all of `beta_of`."""
    if beta is None:
        return 1
    factor = _number(beta, "beta")
    return beta_of(beta, c) if c is None and factor != 0 else factor


def _number(value: Any, name: str) -> Any:
    return value if isinstance(value, (int, float)) else number(value, name)


def linear_call(x: Any, w: Any, bias: Any, options: dict[str, Any]) -> Any:
    """`warptile.linear` of tensors, for which `warptile.torch_route.torch_sees` said yes."""
    if is_direct(x, w, bias):
        if not fits(x, w, bias):
            check_linear(x, w, bias)
        setting = Setting(
            1, 1, options["precision"], options["max_sms"], options["backend"], options["batch_invariant"]
        )

        def compute() -> Any:
            return product_of_rows(x, w, bias, options, binds=True)

        return record_linear(x, w, bias, setting, compute)
    return _operate_linear(x, w, bias, **options)


def _operate_linear(x: Any, w: Any, bias: Any, *, out_dtype: Any = None, **options: Any) -> Any:
    return LINEAR(x, w, bias, out_dtype=torch_type(out_dtype), **options)


def traced_matmul_call(a: Any, b: Any, c: Any = None, *, out: Any = None, **options: Any) -> Any:
    """`warptile.matmul` as Dynamo traces it: NumPy arrays as the tensors that they are to Dynamo."""
    if not isinstance(a, np.ndarray):
        return _operate(a, b, c, out, **options)
    d = _operate(tensor_of(a), tensor_of(b), tensor_of(c), tensor_of(out), **options)
    return d.numpy() if out is None else out


def traced_linear_call(x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    """`warptile.linear` as Dynamo traces it."""
    if not isinstance(x, np.ndarray):
        return _operate_linear(x, w, bias, **options)
    return _operate_linear(tensor_of(x), tensor_of(w), tensor_of(bias), **options).numpy()


def tensor_of(array: Any) -> Any:
    """A NumPy array as the tensor that it is to Dynamo; anything else itself."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


def options_of_plan(held: GemmPlan) -> dict[str, Any]:
    """Factors, types and rung of a held plan, as keywords of `warptile.matmul`."""
    call, chosen = held.call, held.chosen
    return {
        "alpha": call.alpha, "beta": call.beta if call.beta_given else None, "out_dtype": call.out_dtype,
        "accumulate": call.accumulate, "precision": call.precision, "max_sms": call.max_sms,
        "backend": call.backend.name, "batch_invariant": call.batch_invariant,
        "rung": chosen.rung.name if isinstance(chosen, Plan) else None,
    }  # fmt: skip
