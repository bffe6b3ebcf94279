"""Calls that were made before, with other addresses: the hot path of `warptile.matmul` on a GPU.

The first call with given shapes, strides, types and options is planned, compiled and bound: its launches become native
functions (`warptile.gpu.native_launch`) that take a stream and four addresses. A later call that says the same is one
look-up in a dictionary, the result's allocation, and those launches. Whatever is not that simple (operands in host
memory, or that have to be copied; an ``out`` that shares memory with an operand) is not bound, and takes the long way.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.arrays.array_view import ArrayView, Shape, row_major
from warptile.arrays.operands import Product
from warptile.errors import DeviceError
from warptile.gpu import driver, workspaces
from warptile.gpu.workspaces import Workspaces
from warptile.launch.workspace import Workspace
from warptile.planning import tuned_table
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.execute import GpuBackend, compiled, copy_launch

OPERANDS = ("A", "B", "C", "D")
"""The operands whose addresses a bound launch is given, in that order; 0 for a C that there is not."""

MOST_CALLS = 4096
"""Bound calls that are kept; the oldest goes first."""

Launch = Callable[[int, int, int, int, int], int]
"""``launch(stream, a, b, c, d)``, with addresses; returns the driver's status, 0 for success."""

FRESH = 1 << 40
"""Stands for the address of memory that is yet to be allocated: as well aligned as any."""

_BACKEND, _AUTOTUNE, _FOLDER = b"WARPTILE_BACKEND", b"WARPTILE_AUTOTUNE", b"WARPTILE_CACHE_DIR"
"""Environment variables that a plan depends on."""

# os.environ.get costs a microsecond, most of it encoding; CPython's os.environ keeps encoded names and values here.
_environment: Mapping[Any, Any] = getattr(os.environ, "_data", {})


@dataclass(frozen=True, slots=True)
class BoundCall:
    """One call of `matmul`, of which only addresses and the stream are still open.

    Attributes:
        launch: queues all its launches.
        refuse: raises the error for a status of the driver.
        shape: shape of a new result.
        dtype: its type, as its framework names it.
        device: where it is, as its framework names it.
        ordinal: CUDA ordinal of that.
        reaches: of A, B, C and D, bytes from the address to the lowest element, and past the highest one; (0, 0) of
            what is not read.
        in_place: C has the layout of D, so that they may be the same memory.
        gradients: an array asks for gradients, which only a caller that records none may leave out.
        stands_in: its kernel serves until the planned one is compiled.
    """

    launch: Launch
    refuse: Callable[[int], DeviceError]
    shape: Shape
    dtype: Any
    device: Any
    ordinal: int
    reaches: tuple[tuple[int, int], ...]
    in_place: bool
    gradients: bool
    stands_in: bool

    def overlaps(self, a: int, b: int, c: int, d: int) -> bool:
        """Whether D, at these addresses, shares bytes with what is read (by address ranges), a C in place excepted."""
        (a_low, a_high), (b_low, b_high), (c_low, c_high), (d_low, d_high) = self.reaches
        low, high = d + d_low, d + d_high
        if (low < a + a_high and a + a_low < high) or (low < b + b_high and b + b_low < high):
            return True
        return c_high > c_low and not (c == d and self.in_place) and low < c + c_high and c + c_low < high


class TorchCalls:
    """Bound calls on torch tensors, by what the tensors and options say.

    Args:
        torch: the module.
        may_change: what tuning finds later replaces what is bound; not so for the calls of one plan.
    """

    def __init__(self, torch: Any, *, may_change: bool = True) -> None:
        self._bound: dict[Any, BoundCall] = {}
        self._learning = threading.Lock()
        self._torch = torch
        self._types = frozenset((torch.Tensor, torch.nn.Parameter))
        self._records_gradients = torch.is_grad_enabled
        self._stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        self._is_captured: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self._empty = torch.empty
        self._next_look = 0.0 if may_change else math.inf
        self._outcomes: dict[str, str] = {}
        if may_change:
            tuned_table.tell_of_outcomes(self._look_now)

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        try:
            found = self._bound[_key(a, b, c, out, options)]
            if found.gradients and self._records_gradients():
                return None
            if found.stands_in and self._is_captured():
                return None  # a graph would keep the kernel for good
        except (KeyError, TypeError, AttributeError, RuntimeError):
            # Not bound; or no tensor, no strided one, or an option that is no key: the long way says what is wrong.
            return None
        if time.monotonic() >= self._next_look and self._tuned_anew():
            return None
        return self._launched(found, a, b, c, out)

    def _launched(self, found: BoundCall, a: Any, b: Any, c: Any, out: Any) -> Any:
        """The result of a bound call; None where ``out`` shares memory with an operand."""
        at_a, at_b, at_c = a.data_ptr(), b.data_ptr(), 0 if c is None else c.data_ptr()
        if out is None:
            out = self._empty(found.shape, dtype=found.dtype, device=found.device)
            at_d = out.data_ptr()
        else:
            at_d = out.data_ptr()
            if found.overlaps(at_a, at_b, at_c, at_d):
                return None
        status = found.launch(self._stream(found.ordinal), at_a, at_b, at_c, at_d)
        if status:
            raise found.refuse(status)
        return out

    def learn(
        self,
        arrays: tuple[Any, Any, Any, Any],
        options: tuple[Any, ...],
        product: Product,
        chosen: Plan | Addend,
        backend: GpuBackend,
        alpha: float,
        beta: float,
        until: Future[Any] | None = None,
    ) -> bool:
        """Bind a call that was planned, so that `repeat` finds it, ``until`` something is done; whether it can be."""
        if any(type(each) not in self._types for each in arrays if each is not None):
            return False
        if any(map(_may_change, options)):
            return False
        bound = _bound(product, chosen, backend, alpha, beta)
        if bound is None:
            return False
        output = product.problem.d.dtype
        shape, launch, refuse, reaches, in_place = bound
        found = BoundCall(
            launch, refuse, shape, getattr(self._torch, output.torch or output.name), product.like.array.device,
            backend.info.ordinal, reaches, in_place, any(each.requires_grad for each in arrays if each is not None),
            until is not None,
        )  # fmt: skip
        with self._learning:
            if len(self._bound) >= MOST_CALLS:
                del self._bound[next(iter(self._bound))]
            key = _key(*arrays, options)
            self._bound[key] = found
        if until is not None:
            until.add_done_callback(lambda done: self._forget(key, found))
        self._guard(arrays, found)
        if self._next_look < math.inf:
            self._outcomes.setdefault(backend.info.name, tuned_table.outcomes(backend.info.name))
        return True

    def _guard(self, arrays: tuple[Any, Any, Any, Any], found: BoundCall) -> None:
        """Nothing: `PlanCalls` does something here."""

    def _forget(self, key: Any, found: BoundCall) -> None:
        with self._learning:
            if self._bound.get(key) is found:
                del self._bound[key]

    def _look_now(self) -> None:
        self._next_look = 0.0

    def _tuned_anew(self) -> bool:
        """Whether a search has ended since calls were bound; they are forgotten then."""
        self._next_look = time.monotonic() + tuned_table.LOOK_S
        now = {gpu: tuned_table.outcomes(gpu) for gpu in self._outcomes}
        if now == self._outcomes:
            return False
        with self._learning:
            self._bound.clear()
        self._outcomes.clear()
        return True


class PlanCalls(TorchCalls):
    """Bound calls of one plan, almost all of which say the same: they are compared with the last one that was bound.

    The comparison is torch's own, the guard that compiled code of torch has (``TensorGuards``): one call for type,
    dispatch keys, element type, device, shape, strides and gradients of all tensors. Where this torch has none, or
    operands are aligned less than usual, a call is looked up like any other.
    """

    def __init__(self, torch: Any) -> None:
        super().__init__(torch, may_change=False)
        compiled = getattr(torch._C, "_dynamo", None)
        self._guards = getattr(getattr(compiled, "guards", None), "TensorGuards", None)
        self._guarded: dict[bool, tuple[Callable[..., bool], BoundCall]] = {}

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As `TorchCalls.repeat`."""
        guarded = self._guarded.get(out is None)
        if guarded is not None and c is None:
            agrees, found = guarded
            try:
                same = agrees(a, b) if out is None else agrees(a, b, out)
                if same and not (a.data_ptr() | b.data_ptr() | (0 if out is None else out.data_ptr())) & 15:
                    return self._launched(found, a, b, None, out)
            except TypeError:  # no tensor
                pass
        return super().repeat(a, b, c, out, options)

    def _guard(self, arrays: tuple[Any, Any, Any, Any], found: BoundCall) -> None:
        """Compare later calls with this one, if its operands are aligned as usual."""
        a, b, c, out = arrays
        given = [each for each in (a, b, out) if each is not None]
        if self._guards is None or c is not None or any(each.data_ptr() & 15 for each in given):
            return
        guards = self._guards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        self._guarded[out is None] = guards.check, found


def _key(a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that a plan may depend on: addresses only as far as they decide alignment."""
    get = _environment.get
    said = (
        a.__class__, a.shape, a.stride(), a.dtype, a.get_device(), a.data_ptr() & 15, a.is_neg(), a.requires_grad,
        b.__class__, b.shape, b.stride(), b.dtype, b.get_device(), b.data_ptr() & 15, b.is_neg(), b.requires_grad,
        options, get(_BACKEND), get(_AUTOTUNE), get(_FOLDER),
    )  # fmt: skip
    if c is None and out is None:
        return said
    return (*said, c is None, *(_said(each) for each in (c, out) if each is not None))


def _said(x: Any) -> tuple[Any, ...]:
    return (
        x.__class__, x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & 15, x.is_neg(), x.requires_grad,
    )  # fmt: skip


def _may_change(option: Any) -> bool:
    """Whether an option is an object whose value may be another one at the next call: an array, a mapping, a list."""
    array = hasattr(option, "__array__") or hasattr(option, "__cuda_array_interface__")
    return isinstance(option, dict | list) or (array and not isinstance(option, type | np.generic))


_Parts = tuple[Shape, Launch, Callable[[int], DeviceError], tuple[tuple[int, int], ...], bool]


def _bound(product: Product, chosen: Plan | Addend, backend: GpuBackend, alpha: float, beta: float) -> _Parts | None:
    """What a `BoundCall` is made of, or None where a repetition could not go without the long way."""
    direct = product.out is None or product.target is not None
    if product.like.device is None or product.copies or product.metadata is not None or not direct:
        return None
    operands = {"A": product.a, "B": product.b, "C": product.c, "D": product.target}
    indices: list[Shape] = [()] if chosen.problem.batch > 1 else list(product.indices())
    if chosen.kernel.repacks and len(indices) > 1:
        return None  # a shared operand would be repacked again and again
    launches = _launches(chosen, backend, alpha, beta, {name: each for name, each in operands.items() if each})
    if launches is None:
        return None
    one, refuse = launches
    result = product.target or _row_major(product)
    offsets = [tuple(_offset(each, index) for each in (product.a, product.b, product.c, result)) for index in indices]
    launch = one if offsets == [(0, 0, 0, 0)] else _each(one, offsets)
    reaches = tuple(
        map(_reach, (*((product.a, product.b) if product.reads_operands else (None, None)), product.c, result))
    )
    in_place = product.c is not None and product.c.strides == result.strides
    return product.result_shape, launch, refuse, reaches, in_place


def _row_major(product: Product) -> ArrayView:
    """The result that is yet to be allocated, as matrices."""
    shape = product.result_shape
    described = ArrayView("out", None, product.like.framework, FRESH, shape, row_major(shape), product.problem.d.dtype)
    return product.as_matrices(described)


def _offset(operand: ArrayView | None, index: Shape) -> int:
    return 0 if operand is None else operand.at(index).pointer - operand.pointer


def _reach(operand: ArrayView | None) -> tuple[int, int]:
    """Bytes from an operand's address to its lowest element, and past its highest one."""
    if operand is None:
        return 0, 0
    low, high = operand.byte_range()
    return low - operand.pointer, high - operand.pointer


def _each(one: Launch, offsets: list[tuple[int, ...]]) -> Launch:
    """A launch for each matrix of a batch."""

    def launch(stream: int, a: int, b: int, c: int, d: int) -> int:
        for of_a, of_b, of_c, of_d in offsets:
            status = one(stream, a + of_a, b + of_b, c + of_c, d + of_d)
            if status:
                return status
        return 0

    return launch


def _launches(
    chosen: Plan | Addend, backend: GpuBackend, alpha: float, beta: float, operands: Mapping[str, ArrayView]
) -> tuple[Launch, Callable[[int], DeviceError]] | None:
    """The launches of one product as one function, and what turns a status into an error; None where tensor maps cannot
    be rewritten."""
    kernel = compiled(chosen)
    steps = [(backend.load(kernel), chosen.launch(kernel.entry, alpha, beta))]
    if chosen.kernel.repacks:
        copying, before = copy_launch(chosen.kernel.repacks, chosen.arch)
        steps.insert(0, (backend.load(copying), before))
    wanted = chosen.kernel.workspaces
    names = (*OPERANDS, *(each.name for each in wanted))
    pointers = {**dict.fromkeys(names, FRESH), **{name: each.pointer for name, each in operands.items()}}
    natives: list[Launch] = []
    for loaded, spec in steps:
        try:
            native = loaded.bind(spec, names, pointers)
        except DeviceError:  # the long way, with real addresses, says what is wrong, if anything is
            return None
        if native is None:
            return None
        natives.append(native)

    def refuse(status: int) -> DeviceError:
        last, spec = steps[-1]  # this function also keeps all kernels loaded
        refusal: DeviceError = last.refusal(spec, status)
        return refusal

    if not wanted:
        return natives[0], refuse
    return _with_workspaces(natives, wanted, backend.info.ordinal), refuse


def _with_workspaces(natives: Sequence[Launch], wanted: Sequence[Workspace], ordinal: int) -> Launch:
    """Launches that need the workspaces of their stream.

    Their addresses are asked for once for each stream: the memory is kept when a larger one is made
    (`warptile.gpu.workspaces`). One launch needs no lock, as work in a stream is in order; of several, none of another
    thread may come in between.
    """
    known: dict[int, tuple[Workspaces, tuple[int, ...]]] = {}

    def addresses(stream: int) -> tuple[Workspaces, tuple[int, ...]]:
        shared = workspaces.of_stream(ordinal, stream)
        with shared.lock, driver.on_device(ordinal):
            found = shared.pointers(wanted)
        known[stream] = shared, tuple(found[each.name] for each in wanted)
        return known[stream]

    (last,) = natives[-1:]

    def launch_one(stream: int, a: int, b: int, c: int, d: int) -> int:
        _, beside = known.get(stream) or addresses(stream)
        return last(stream, a, b, c, d, *beside)

    def launch_all(stream: int, a: int, b: int, c: int, d: int) -> int:
        shared, beside = known.get(stream) or addresses(stream)
        with shared.lock:
            for native in natives:
                status = native(stream, a, b, c, d, *beside)
                if status:
                    return status
        return 0

    return launch_one if len(natives) == 1 else launch_all
