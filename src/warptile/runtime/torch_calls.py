"""Bound calls on torch tensors."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from warptile.arrays.operands import Product
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.bound_call import BoundCall
from warptile.runtime.call_cache import (
    AUTOTUNE,
    BACKEND,
    FOLDER,
    NOT_BOUND,
    Arrays,
    CallCache,
    Fused,
    Outputs,
    environment,
    make_room,
    outputs_of,
)
from warptile.runtime.execute import GpuBackend
from warptile.runtime.fused_calls import NUMBERS, FusedCall, bind_fused
from warptile.runtime.torch_allocation import allocator

RECORDER = "warptile.torch.bound_gradients"
"""The module that makes a bound call and records its gradient."""


class UsualCall(NamedTuple):
    """A bound call with further operands, which the next one is likely to repeat.

    Attributes:
        agrees: whether tensors are as this call's: torch's own guard, of type, dispatch keys, element type, device,
            shape, strides and whether they require gradients.
        found: the call.
        recorder: what makes it and records its gradient; None where none is recorded.
    """

    agrees: Callable[..., bool]
    found: FusedCall
    recorder: Any


class TorchCalls(CallCache):
    """Bound calls on torch tensors, by what the tensors and options say.

    Args:
        torch: the module.
        may_change: as of `CallCache`.
    """

    binds_linear = True

    def __init__(self, torch: Any, *, may_change: bool = True) -> None:
        super().__init__(may_change=may_change)
        self._torch = torch
        self._types = frozenset((torch.Tensor, torch.nn.Parameter))
        self._records_gradients = torch.is_grad_enabled
        self._autocasts: Callable[[str], bool] = torch.is_autocast_enabled
        self._forward_ad = torch.autograd.forward_ad
        self._stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        self._is_captured: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self._new = allocator(torch)
        compiled = getattr(torch._C, "_dynamo", None)
        self._guards = getattr(getattr(compiled, "guards", None), "TensorGuards", None)
        self._usual: dict[Any, UsualCall] = {}

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        try:
            found = self._bound[_key(a, b, c, out, options)]
            if found.stands_in and self._is_captured():
                return None  # a graph would keep the kernel for good
            if (found.may_be_cast and self._autocasts("cuda")) or self._forward_ad._current_level >= 0:
                return None
        except NOT_BOUND:
            return None
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        if found.gradients and self._records_gradients():
            recorder = found.recorder
            return self._recorded(found, a, b, c, out, options) if recorder is None else recorder(a, b, c)
        at_d = 0 if out is None else out.data_ptr()
        return self.launched(found, a.data_ptr(), b.data_ptr(), 0 if c is None else c.data_ptr(), at_d, out)

    def launched(self, found: BoundCall, at_a: int, at_b: int, at_c: int, at_d: int, out: Any) -> Any:
        """The result of a bound call on tensors at these addresses; None if ``out`` shares memory with an operand."""
        if out is None:
            out = self._new(found.shape, found.dtype, found.device, found.ordinal)
            at_d = out.data_ptr()
        elif found.overlaps(at_a, at_b, at_c, at_d):
            return None
        status = found.launch(self._stream(found.ordinal), at_a, at_b, at_c, at_d)
        if status:
            raise found.refuse(status)
        return out

    def _recorded(self, found: BoundCall, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a bound call with its gradient recorded, or None where it has to take the long way.

        What records it is in the room for torch, which knows this one; the first such call has imported it.
        """
        room = sys.modules.get(RECORDER)
        if room is None or out is not None:
            return None
        recorder = room.recorder_of(self, found, a, b, c, options)
        if recorder is not None:
            self.changed(_key(a, b, c, out, options), found, recorder=recorder)
            return recorder(a, b, c)
        return room.recorded_call(self, found, a, b, c, options)

    def bound(self, a: Any, b: Any, options: tuple[Any, ...]) -> BoundCall | None:
        """The bound call on these tensors, if the planned kernel serves it."""
        found = self._bound.get(_key(a, b, None, None, options))
        return None if found is None or found.stands_in else found

    def learn_linear(
        self,
        arrays: tuple[Any, Any, Any],
        said: tuple[Any, ...],
        multiplied: tuple[Any, Any, Any],
        options: tuple[Any, ...],
    ) -> None:
        """As of `CallCache`: where the rows of x are one matrix without a copy."""
        (x, w, bias), (rows, transposed, addend) = arrays, multiplied
        try:
            if w.dim() != 2 or not self.shares_memory(x, rows):
                return
            found = self._bound[_key(rows, transposed, addend, None, options)]
            if found.stands_in:
                return
            key = _key(x, w, bias, None, said)
        except NOT_BOUND:
            return
        shape = (*x.shape[:-1], w.shape[0])
        gradients = self.wants_gradients((x, w, bias, None))
        with self._learning:
            self._add(key, replace(found, shape=shape, gradients=gradients, recorder=None))

    @staticmethod
    def shares_memory(tensor: Any, view: Any) -> bool:
        """Whether a reshaped tensor is a view of this one, at the same address."""
        if tensor is view:
            return True
        same: bool = tensor.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
        return same and bool(tensor.data_ptr() == view.data_ptr())

    def is_cast(self, found: BoundCall) -> bool:
        """Whether autocast changes the type of this call's operands now."""
        return found.may_be_cast and self._autocasts("cuda")

    def repeat_fused(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Any:
        """As of `CallCache`."""
        a, b, c, out = arrays
        if out is not None:
            return self._repeated_fused(arrays, options, epilogue, operands)[0]
        said, get = (a, b, *operands.values()) if c is None else (a, b, c, *operands.values()), environment.get
        place = usual = addresses = None
        try:
            place = (
                epilogue, options, a.shape, b.shape, c is None, self._records_gradients(), *operands, get(BACKEND),
                get(AUTOTUNE), get(FOLDER),
            )  # fmt: skip
            usual = self._usual.get(place)
            if usual is not None and usual.agrees(*said):
                addresses = [each.data_ptr() for each in said]
        except NOT_BOUND:  # a number among the operands, or what the long way refuses
            pass
        if addresses is None or not _all_aligned(addresses):
            returned, found, recorder = self._repeated_fused(arrays, options, epilogue, operands)
            if returned is not None:
                self._keep_usual(place, said, found, recorder)
            return returned
        assert usual is not None
        if self.may_not_repeat(usual.found):
            return None
        if c is None:
            addresses.insert(2, 0)
        if usual.recorder is not None:
            return usual.recorder.recorded(a, b, c, said[2:] if c is None else said[3:], (), addresses)
        return usual.found.returned(self.launched_fused(usual.found, *addresses))

    def _keep_usual(self, place: Any, said: tuple[Any, ...], found: Any, recorder: Any) -> None:
        """Compare later calls of the same epilogue, options and shapes with this one, which costs less than a key: if
        its operands are tensors, each another one, and aligned as usual."""
        if self._guards is None or any(each.__class__ not in self._types or each.data_ptr() & 15 for each in said):
            return
        if len(set(map(id, said))) < len(said):  # a guard refuses one tensor in two places
            return
        guards = self._guards(*said, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        with self._learning:
            make_room(self._usual)
            self._usual[place] = UsualCall(guards.check, found, recorder)

    def _repeated_fused(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> tuple[Any, Any, Any]:
        """As `repeat_fused`, by `fused_key`; and the bound call, and what records it."""
        a, b, c, out = arrays
        given, recorder = outputs_of(out), None
        try:
            key = self.fused_key(arrays, options, epilogue, operands)
            found = self._fused.get(key)
        except NOT_BOUND:
            return None, None, None
        if (found is None or found.gradients) and self._records_gradients():
            recorder = self._recorders.get(key)
            found = None if recorder is None else recorder.kept
        if found is None or self.may_not_repeat(found):
            return None, None, None
        tensors = [each for each in operands.values() if each.__class__ in self._types]
        try:
            addresses = [a.data_ptr(), b.data_ptr(), 0 if c is None else c.data_ptr()]
            addresses += [each.data_ptr() for each in tensors]
            values = [each for each in operands.values() if each.__class__ not in self._types]
            numbers = found.words(values) if values else values
        except NOT_BOUND:
            return None, None, None
        if recorder is not None:
            return recorder.recorded(a, b, c, tensors, values, addresses + numbers), found, recorder
        if not given:
            return found.returned(self.launched_fused(found, *addresses, *numbers)), found, None
        at_a, at_b, at_c, *at_tensors = addresses
        at_d, *at_others = [each.data_ptr() for each in given]
        if found.overlaps(at_a, at_b, at_c, at_d, at_tensors, at_others):
            return None, None, None
        return found.returned(self.launched_fused(found, *addresses, *numbers, given=given)), found, None

    def may_not_repeat(self, found: FusedCall) -> bool:
        """Whether a call has to take the long way now: it is cast, has tangents, or was tuned since."""
        if (found.may_be_cast and self._autocasts("cuda")) or self._forward_ad._current_level >= 0:
            return True
        return time.monotonic() >= self._next_look and self.is_stale()

    def fused(self, *said: Any) -> FusedCall | None:
        """The bound call with further operands that is found by these, in the order of `repeat_fused`."""
        try:
            return self._fused.get(self.fused_key(*said))
        except NOT_BOUND:
            return None

    def learn_recorder(self, given: Fused, recorder: Any) -> None:
        """Have a recorder make this call from now on, where its gradient is recorded."""
        if self.may_bind(given[1]):
            self.keep_recorder(self.fused_key(*given), recorder)

    def launched_fused(self, found: FusedCall, *addresses: int, given: Outputs = ()) -> list[Any]:
        """Outputs of a bound call, reductions in parts.

        Args:
            found: the call.
            addresses: of A, B and C; then of tensors; then numbers as they are launched.
            given: the first outputs, where the caller gives them.
        """
        device, ordinal, new = found.device, found.ordinal, self._new
        if given:
            outputs = self._outputs_beside(found, given)
        else:
            made = zip(found.shapes, found.dtypes, strict=True)
            outputs = [new(shape, dtype, device, ordinal) for shape, dtype in made]
        at_a, at_b, at_c, *others = addresses
        d, *further = [each.data_ptr() for each in outputs]
        status = found.launch(self._stream(ordinal), at_a, at_b, at_c, d, *others, *further)
        if status:
            raise found.refuse(status)
        return outputs

    def _outputs_beside(self, found: FusedCall, given: Outputs) -> list[Any]:
        """The outputs that a caller gives, and new ones."""
        missing = zip(found.shapes[len(given) :], found.dtypes[len(given) :], strict=True)
        return [*given, *(self._new(shape, dtype, found.device, found.ordinal) for shape, dtype in missing)]

    def is_stale(self) -> bool:
        """As of `CallCache`."""
        stale = super().is_stale()
        if stale:
            self._usual.clear()
        return stale

    def learn_fused(
        self,
        arrays: Arrays,
        options: tuple[Any, ...],
        epilogue: Hashable,
        operands: Mapping[str, Any],
        product: Product,
        chosen: Plan | Addend,
        backend: GpuBackend,
        alpha: float,
        beta: float,
    ) -> None:
        """As of `CallCache`."""
        a, b, c, out = arrays
        given = outputs_of(out)
        of_types = all(type(each) in self._types for each in given)
        if not of_types or not self.takes((a, b, c, None), product, backend) or not self.may_bind(options):
            return
        first, device = self.result_of(product)
        further = product.epilogue.types if product.epilogue is not None else ()
        dtypes = (first, *(getattr(self._torch, each.torch or each.name) for each in further))
        gradients = self.wants_gradients((a, b, c, *given, *operands.values()))
        addresses = {name: each.data_ptr() if each.__class__ in self._types else 0 for name, each in operands.items()}
        found = bind_fused(
            product, addresses, chosen, backend, alpha, beta, dtypes=dtypes, device=device, gradients=gradients,
            may_be_cast=self.may_be_cast(arrays),
        )  # fmt: skip
        try:
            key = self.fused_key(arrays, options, epilogue, operands)
        except NOT_BOUND:
            return
        if found is not None:
            self.keep(key, found, backend.info.name)

    def is_same(self, one: Any, other: Any) -> bool:
        """As of `CallCache`."""
        if one.__class__ in self._types and other.__class__ in self._types:
            return self.shares_memory(one, other)
        return super().is_same(one, other)

    def fused_key(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Hashable:
        """As of `CallCache`."""
        a, b, c, out = arrays
        outs = outputs_of(out)
        types = self._types
        said = tuple(
            (name, _said(each) if each.__class__ in types else NUMBERS[each.__class__])
            for name, each in operands.items()
        )
        key = _key(a, b, c, outs[0] if outs else None, options), epilogue, said
        return key if len(outs) < 2 else (*key, *map(_said, outs[1:]))

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As of `CallCache`."""
        return _key(a, b, c, out, options)

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """Tensors in GPU memory, and no subclass: it may mean something else by its methods."""
        return product.like.device is not None and all(type(each) in self._types for each in arrays if each is not None)

    def result_of(self, product: Product) -> tuple[Any, Any]:
        """``torch.dtype`` and ``torch.device``."""
        output = product.problem.d.dtype
        return getattr(self._torch, output.torch or output.name), product.like.array.device

    def wants_gradients(self, arrays: Iterable[Any]) -> bool:
        """Whether a tensor requires a gradient."""
        return any(each.requires_grad for each in arrays if each.__class__ in self._types)

    def may_be_cast(self, arrays: Arrays) -> bool:
        """Whether autocast would change an operand's type: it casts float32. A call with ``out`` is never cast."""
        a, b, c, out = arrays
        given = (a, b) if c is None else (a, b, c)
        return out is None and any(each.dtype == self._torch.float32 for each in given)


class PlanCalls(TorchCalls):
    """Bound calls of one plan, almost all of which say the same: they are compared with the last one that was bound.

    The comparison is torch's own, the guard that compiled code of torch has (``TensorGuards``): one call for type,
    dispatch keys, element type, device, shape, strides and gradients of all tensors. Where this torch has none, or
    operands are aligned less than usual, a call is looked up like any other.
    """

    def __init__(self, torch: Any) -> None:
        super().__init__(torch, may_change=False)
        self._allocating: tuple[Callable[..., bool], BoundCall] | None = None
        self._into_out: tuple[Callable[..., bool], BoundCall, int, int, int, int] | None = None

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As `TorchCalls.repeat`."""
        if c is None and not options:
            try:
                if out is None:
                    if self._allocating is not None:
                        agrees, found = self._allocating
                        if agrees(a, b):
                            at_a, at_b = a.data_ptr(), b.data_ptr()
                            if not (at_a | at_b) & 15:
                                return self.launched(found, at_a, at_b, 0, 0, None)
                elif self._into_out is not None:
                    agrees, found, below_a, above_a, below_b, above_b = self._into_out
                    if agrees(a, b, out):
                        at_a, at_b, at_d = a.data_ptr(), b.data_ptr(), out.data_ptr()
                        overlaps = below_a < at_d - at_a < above_a or below_b < at_d - at_b < above_b
                        if not (at_a | at_b | at_d) & 15 and not overlaps:
                            status = found.launch(self._stream(found.ordinal), at_a, at_b, 0, at_d)
                            if status:
                                raise found.refuse(status)
                            return out
            except TypeError:  # no tensor
                pass
        return super().repeat(a, b, c, out, options)

    def _recorded(self, found: BoundCall, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """None: a plan records no gradient, and the long way says so."""
        return None

    def may_be_cast(self, arrays: Arrays) -> bool:
        """False: a plan is made for one type."""
        return False

    def learnt(self, arrays: Arrays, options: tuple[Any, ...], found: BoundCall) -> None:
        """Compare later calls with this one, if its operands are aligned as usual and all that it says."""
        a, b, c, out = arrays
        given = [each for each in (a, b, out) if each is not None]
        if self._guards is None or c is not None or options or any(each.data_ptr() & 15 for each in given):
            return
        guards = self._guards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        if out is None:
            self._allocating = guards.check, found
        else:
            self._into_out = guards.check, found, *found.overlapping(0), *found.overlapping(1)


def _key(a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that a plan may depend on: addresses only as far as they decide alignment."""
    get = environment.get
    said = (
        a.__class__, a.shape, a.stride(), a.dtype, a.get_device(), a.data_ptr() & 15, a.is_neg(), a.requires_grad,
        b.__class__, b.shape, b.stride(), b.dtype, b.get_device(), b.data_ptr() & 15, b.is_neg(), b.requires_grad,
        options, get(BACKEND), get(AUTOTUNE), get(FOLDER),
    )  # fmt: skip
    if c is None and out is None:
        return said
    return (*said, c is None, *(_said(each) for each in (c, out) if each is not None))


def _all_aligned(addresses: list[int]) -> bool:
    """Whether these are multiples of 16 bytes."""
    together = 0
    for each in addresses:
        together |= each
    return not together & 15


def _said(x: Any) -> tuple[Any, ...]:
    return (
        x.__class__, x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & 15, x.is_neg(), x.requires_grad,
    )  # fmt: skip
