"""Calls that were made once, bound to their kernel for the next time (`warptile.runtime.call_cache`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from warptile.arrays.operands import Product
from warptile.calls.call_options import CallOptions
from warptile.calls.chosen_kernel import Chosen
from warptile.planning.addend import Nothing
from warptile.runtime.execute import GpuBackend

if TYPE_CHECKING:
    from warptile.runtime.call_cache import CallCache
    from warptile.runtime.online_tuning import OnlineTuning


def bind(
    calls: dict[type, CallCache],
    arrays: tuple[Any, Any, Any, Any],
    options: tuple[Any, ...],
    product: Product,
    chosen: Chosen,
    call: CallOptions,
    *,
    of_plan: bool = False,
    until: Future[Any] | None = None,
    tuning: OnlineTuning | None = None,
) -> Any:
    """Bind a call, ``until`` a better kernel is compiled, and make it; the result, or None where it cannot be bound."""
    backend = call.backend
    if not isinstance(backend, GpuBackend) or isinstance(chosen, Nothing):
        return None
    known = _cache_of(calls, type(arrays[0]), product, of_plan=of_plan)
    if known is None or not known.learn(
        arrays, options, product, chosen, backend, call.alpha, call.beta, until, tuning
    ):
        return None
    return known.repeat(*arrays, options)


def bind_fused(
    calls: dict[type, CallCache],
    arrays: tuple[Any, Any, Any, Any],
    found_by: tuple[tuple[Any, ...], Hashable, Mapping[str, Any]],
    product: Product,
    chosen: Chosen,
    call: CallOptions,
    *,
    of_plan: bool = False,
) -> None:
    """Bind a call with further operands, if it can be; ``found_by``: its options, the identity of its epilogue, and
    these operands."""
    backend = call.backend
    if isinstance(backend, GpuBackend) and not isinstance(chosen, Nothing):
        known = _cache_of(calls, type(arrays[0]), product, of_plan=of_plan)
        if known is not None:
            known.learn_fused(arrays, *found_by, product, chosen, backend, call.alpha, call.beta)


def _cache_of(calls: dict[type, CallCache], kind: type, product: Product, *, of_plan: bool) -> CallCache | None:
    """Bound calls on arrays of a type, or None where those of its framework cannot be bound."""
    if kind not in calls:
        from warptile.runtime.caches import new_cache  # not before there is a GPU

        made = new_cache(product.like, of_plan=of_plan)
        if made is None:
            return None
        calls[kind] = made
    return calls[kind]
