"""One call of `matmul` whose launches are fixed but for addresses and the stream.

A call that was planned and compiled is *bound*: its launches become native functions (`warptile.gpu.native_launch`)
that take a stream and four addresses. `warptile.runtime.call_cache` keeps bound calls and finds them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from warptile.arrays.array_view import ArrayView, Shape, row_major
from warptile.arrays.batches import launch_indices
from warptile.arrays.operands import Product
from warptile.errors import DeviceError
from warptile.gpu import driver, stream_state, workspaces
from warptile.gpu.workspaces import Workspaces
from warptile.launch.workspace import Workspace
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.problem import MAX_ALIGNMENT_BYTES
from warptile.runtime.execute import NO_NUMBERS, GpuBackend, Launchable, compiled, copy_launch

OPERANDS = ("A", "B", "C", "D")
"""The operands whose addresses a bound launch is given, in that order; 0 for a C that there is not."""

Launch = Callable[[int, int, int, int, int], int]
"""``launch(stream, a, b, c, d)``, with addresses; returns the driver's status, 0 for success."""

FRESH = 1 << 40
"""Stands for the address of memory that is yet to be allocated: as well aligned as any."""


@dataclass(frozen=True, slots=True)
class BoundCall:
    """One call of `matmul`, of which only addresses and the stream are still open.

    Attributes:
        launch: queues all its launches.
        refuse: raises the error for a status of the driver.
        shape: shape of a new result.
        dtype: its type, as its framework names it.
        device: where it is, as its framework names it; of JAX the program that launches, of NumPy a list for the layout
            of the operands' copies.
        ordinal: CUDA ordinal of that.
        reaches: of A, B, C and D, bytes from the address to the lowest element, and past the highest one; (0, 0) of
            what is not read.
        in_place: C has the layout of D, so that they may be the same memory.
        gradients: an array asks for gradients, which only a caller that records none may leave out.
        stands_in: its kernel serves until the planned one is compiled.
        may_be_cast: torch's autocast, where it is on, would change the operands' type.
        recorder: makes the call on A, B and C and records its gradient; None until the first such call.
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
    may_be_cast: bool = False
    recorder: Callable[[Any, Any, Any], Any] | None = None

    def overlapping(self, operand: int) -> tuple[int, int]:
        """Distances in bytes from the address of A (0), B (1) or C (2) to that of D between which they share bytes."""
        (low, high), (d_low, d_high) = self.reaches[operand], self.reaches[3]
        return low - d_high, high - d_low

    def overlaps(self, a: int, b: int, c: int, d: int) -> bool:
        """Whether D, at these addresses, shares bytes with what is read (by address ranges), a C in place excepted."""
        (a_low, a_high), (b_low, b_high), (c_low, c_high), (d_low, d_high) = self.reaches
        low, high = d + d_low, d + d_high
        if (low < a + a_high and a + a_low < high) or (low < b + b_high and b + b_low < high):
            return True
        if not c or (c == d and self.in_place):
            return False
        return c_high > c_low and low < c + c_high and c + c_low < high


def bind(
    product: Product,
    chosen: Plan | Addend,
    backend: GpuBackend,
    alpha: float,
    beta: float,
    *,
    dtype: Any = None,
    device: Any = None,
    gradients: bool = False,
    stands_in: bool = False,
    may_be_cast: bool = False,
) -> BoundCall | None:
    """The call with all but addresses and the stream fixed; None where a repetition could not go without planning.

    Args:
        product: the operands. Where memory is the host's, copies of it with the same remainder of the address modulo 16
            take its place.
        chosen: the plan.
        backend: the GPU.
        alpha, beta: factors.
        dtype, device, gradients, stands_in, may_be_cast: as of `BoundCall`.
    """
    direct = product.out is None or product.target is not None
    if product.copies or product.metadata is not None or not direct:
        return None
    operands = {"A": product.a, "B": product.b, "C": product.c, "D": product.target}
    indices = launch_indices(product, chosen.problem)
    if chosen.kernel.copies and len(indices) > 1:
        return None  # a shared operand would be repacked again and again
    launches = launches_of(chosen, backend, alpha, beta, {name: each for name, each in operands.items() if each})
    if launches is None:
        return None
    one, refuse = launches
    result = product.target or row_major_result(product)
    launch = for_each(one, indices, (product.a, product.b, product.c, result))
    if launch is None:
        return None
    reaches = tuple(
        map(reach_of, (*((product.a, product.b) if product.reads_operands else (None, None)), product.c, result))
    )
    in_place = product.c is not None and product.c.strides == result.strides
    return BoundCall(
        launch, refuse, product.result_shape, dtype, device, backend.info.ordinal, reaches, in_place, gradients,
        stands_in, may_be_cast,
    )  # fmt: skip


def row_major_result(product: Product) -> ArrayView:
    """The result that is yet to be allocated, as matrices."""
    shape = product.result_shape
    described = ArrayView("out", None, product.like.framework, FRESH, shape, row_major(shape), product.problem.d.dtype)
    return product.as_matrices(described)


def for_each(
    one: Callable[..., int], indices: Sequence[Shape], operands: Sequence[ArrayView | None]
) -> Callable[..., int] | None:
    """A launch for each matrix of a batch; None where they are aligned otherwise than the first.

    Args:
        one: the launch of one, given the addresses of ``operands``.
        indices: of the matrices.
        operands: A, B, and others.
    """
    offsets = [tuple(0 if each is None else each.at(index).pointer - each.pointer for each in operands)
               for index in indices]  # fmt: skip
    if any(offset % MAX_ALIGNMENT_BYTES for each in offsets for offset in each[:2]):
        return None  # tensor maps hold how far A and B are behind a multiple of 16 bytes
    if len(offsets) == 1 and not any(offsets[0]):
        return one

    def launch(stream: int, *addresses: int) -> int:
        for offset in offsets:
            status = one(stream, *map(add, addresses, offset))
            if status:
                return status
        return 0

    return launch


def reach_of(operand: ArrayView | None) -> tuple[int, int]:
    """Bytes from an operand's address to its lowest element, and past its highest one."""
    return (0, 0) if operand is None else operand.reach()


def launches_of(
    chosen: Launchable,
    backend: GpuBackend,
    alpha: float,
    beta: float,
    operands: Mapping[str, ArrayView],
    *,
    names: tuple[str, ...] = OPERANDS,
    numbers: Mapping[str, float] = NO_NUMBERS,
) -> tuple[Callable[..., int], Callable[[int], DeviceError]] | None:
    """The launches of one product as one function, and what turns a status into an error; None where tensor maps cannot
    be rewritten.

    Args:
        chosen: the plan.
        backend: the GPU.
        alpha, beta: factors.
        operands: what is in memory already.
        names: what the function is given behind the stream, in that order: addresses of operands, and members of the
            parameters that hold numbers.
        numbers: the epilogue's, of this call.
    """
    kernel = compiled(chosen)
    steps = [(backend.load(kernel), chosen.launch(kernel.entry, alpha, beta, numbers))]
    if chosen.kernel.copies:
        copying, before = copy_launch(chosen.kernel.copies, chosen.arch)
        steps.insert(0, (backend.load(copying), before))
    wanted = chosen.kernel.workspaces
    names = (*names, *(each.name for each in wanted))
    pointers = {**dict.fromkeys(names, FRESH), **{name: each.pointer for name, each in operands.items()}}
    natives: list[Callable[..., int]] = []
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


def _with_workspaces(
    natives: Sequence[Callable[..., int]], wanted: Sequence[Workspace], ordinal: int
) -> Callable[..., int]:
    """Launches that need the workspaces of their stream.

    Their addresses are asked for once for each stream that has memory of its own: that memory is kept when a larger one
    is made (`warptile.gpu.workspaces`). One launch needs no lock, as work in a stream is in order; of several, none of
    another thread may come in between. A stream that is captured, or that shares memory with others, is looked up
    every time.
    """
    state_of = stream_state.state_function()
    known: dict[int, tuple[Workspaces, tuple[int, ...]]] = {}

    def launches(stream: int, beside: Sequence[int], addresses: Sequence[int]) -> int:
        for native in natives:
            status = native(stream, *addresses, *beside)
            if status:
                return status
        return 0

    def looked_up(state: int, stream: int, addresses: Sequence[int]) -> int:
        with driver.on_device(ordinal):
            shared = workspaces.of_stream(ordinal, stream, state)
            with shared.used_on(stream):
                found = shared.pointers(wanted)
                beside = tuple(found[each.name] for each in wanted)
                if shared.lasting and not stream_state.is_captured(state):
                    known[state] = shared, beside
                return launches(stream, beside, addresses)

    (last,) = natives[-1:]

    def launch_one(stream: int, *addresses: int) -> int:
        state = state_of(stream)
        found = known.get(state)
        if found is None or found[0].closed:
            return looked_up(state, stream, addresses)
        return last(stream, *addresses, *found[1])

    def launch_all(stream: int, *addresses: int) -> int:
        state = state_of(stream)
        found = known.get(state)
        if found is None or found[0].closed:
            return looked_up(state, stream, addresses)
        with found[0].lock:
            return launches(stream, found[1], addresses)

    return launch_one if len(natives) == 1 else launch_all
