"""Bound calls with more operands than four: as `warptile.runtime.bound_call`, with the addresses of these, and numbers.

They are calls with an epilogue, and those with a 2:4 sparse A, whose metadata are one more operand."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warptile.arrays.array_view import ArrayView
from warptile.arrays.batches import launch_indices
from warptile.arrays.operands import Product
from warptile.arrays.reductions import reduced
from warptile.arrays.sparse import METADATA
from warptile.epilogue.cuda import number_member
from warptile.epilogue.epilogue_program import Reduction
from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT
from warptile.errors import DeviceError
from warptile.launch.params import Scalar
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.bound_call import OPERANDS, for_each, launches_of, reach_of, row_major_result
from warptile.runtime.execute import NO_NUMBERS, GpuBackend

Launch = Callable[..., int]
"""``launch(stream, a, b, c, d, *others)``: then come further tensors and numbers in the order of the call, and further
outputs."""

NUMBERS = {int: "int", float: "float"}
"""Types of an epilogue's operands that are given as they are."""

_FORMATS = {"f32": "<fxxxx", "f64": "<d", "u64": "<Q"}


@dataclass(frozen=True, slots=True)
class FusedCall:
    """One call of `matmul` with further operands, of which only addresses, numbers and the stream are still open.

    Attributes:
        launch: queues all its launches.
        refuse: what a status of the driver means.
        shapes: shape of each output; of reductions of their partials.
        dtypes: type of each output, as the framework names it.
        reductions: for each output its reduction, or None.
        device: where they are.
        ordinal: CUDA ordinal of that.
        reaches: of A, B, C, D and each tensor, bytes from the address to the lowest element, and past the highest.
        aligned_with_d: for C and each tensor, whether it has the layout of D, so that both may be the same memory.
        formats: for each number, how it is written as eight bytes.
        gradients: an array asks for gradients.
        may_be_cast: torch's autocast, where it is on, would change the type of A, B or C.
        given: the reaches of outputs after the first that the caller gives.
    """

    launch: Launch
    refuse: Callable[[int], DeviceError]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    reductions: tuple[Reduction | None, ...]
    device: Any
    ordinal: int
    reaches: tuple[tuple[int, int], ...]
    aligned_with_d: tuple[bool, ...]
    formats: tuple[str, ...]
    gradients: bool
    may_be_cast: bool = False
    given: tuple[tuple[int, int], ...] = ()

    def words(self, numbers: list[float]) -> list[int]:
        """Numbers as the eight bytes of each that a launch writes.

        Raises:
            ValueError: one is outside the range of its type; the long way rounds or refuses it.
        """
        try:
            return [
                int.from_bytes(struct.pack(form, value), "little")
                for form, value in zip(self.formats, numbers, strict=True)
            ]
        except (OverflowError, struct.error) as error:
            raise ValueError(numbers) from error

    def returned(self, outputs: list[Any]) -> Any:
        """What a call returns whose launches write these arrays."""
        if len(outputs) == 1:
            return outputs[0]
        return tuple(
            each if how is None else reduced(each, how) for each, how in zip(outputs, self.reductions, strict=True)
        )

    def overlaps(self, a: int, b: int, c: int, d: int, tensors: list[int], given: Sequence[int] = ()) -> bool:
        """Whether D, at these addresses, shares bytes with what is read for other elements, or an output that the
        caller gives after it with anything."""
        of_a, of_b, of_c, of_d, *of_tensors = self.reaches
        low, high = d + of_d[0], d + of_d[1]
        read = [(a, of_a, False), (b, of_b, False)]
        by_elements = zip((c, *tensors), (of_c, *of_tensors), self.aligned_with_d, strict=True)
        read += [(at, reach, fits) for at, reach, fits in by_elements if at]
        if any(low < at + reach[1] and at + reach[0] < high and not (fits and at == d) for at, reach, fits in read):
            return True
        taken = [(at + reach[0], at + reach[1]) for at, reach, _ in read] + [(low, high)] if given else []
        for at, (below, above) in zip(given, self.given, strict=True):
            low, high = at + below, at + above
            if any(low < end and start < high for start, end in taken):
                return True
            taken.append((low, high))
        return False


def bind_fused(
    product: Product,
    addresses: Mapping[str, int],
    chosen: Plan | Addend,
    backend: GpuBackend,
    alpha: float,
    beta: float,
    *,
    dtypes: tuple[Any, ...] = (),
    device: Any = None,
    gradients: bool = False,
    may_be_cast: bool = False,
) -> FusedCall | None:
    """The call with all but addresses, numbers and the stream fixed; None where operands are not read as they lie, or
    where an epilogue would be launched for each matrix of a batch.

    Args:
        product: the arrays.
        addresses: of further operands, in the order of the call; any number for one that is a number.
        chosen: the plan.
        backend: the GPU.
        alpha, beta: factors.
        dtypes, device, gradients, may_be_cast: as of `FusedCall`.
    """
    epilogue = product.epilogue
    direct = product.out is None or product.target is not None
    indices = launch_indices(product, chosen.problem)
    apart = len(indices) > 1  # each matrix has a launch of its own
    if product.copies or not direct or (apart and (epilogue is not None or chosen.kernel.copies)):
        return None
    named = {} if epilogue is None else dict(epilogue.tensors)
    if product.metadata is not None:
        named[METADATA] = product.metadata
    numbers = NO_NUMBERS if epilogue is None else epilogue.numbers
    if len(addresses) != len(named) + len(numbers):
        return None  # of no product metadata are read
    if any(each.pointer != addresses.get(name) for name, each in named.items()):
        return None  # it was copied
    tensors = {name: named[name] for name in addresses if name in named}
    native = _launches(chosen, backend, alpha, beta, product, tensors, tuple(addresses))
    if native is None:
        return None
    one, refuse, formats = native
    result = product.target or row_major_result(product)
    launch = for_each(one, indices, (product.a, product.b, product.c, result, *tensors.values())) if apart else one
    if launch is None:
        return None
    whole, problem = product.result_shape, product.problem
    further = (
        () if epilogue is None
        else epilogue.shapes(whole, product.batch, problem.m, problem.n, chosen.kernel.view.problem.epilogue)
    )  # fmt: skip
    read = (product.a, product.b) if product.reads_operands else (None, None)
    return FusedCall(
        launch, refuse, (whole, *further), dtypes, (None, *(epilogue.reductions if epilogue else ())), device,
        backend.info.ordinal,
        tuple(map(reach_of, (*read, product.c, result, *tensors.values()))),
        tuple(each is not None and _is_like(each, result) for each in (product.c, *tensors.values())),
        formats, gradients, may_be_cast, tuple(map(reach_of, epilogue.given)) if epilogue else (),
    )  # fmt: skip


def _is_like(operand: ArrayView, result: ArrayView) -> bool:
    """Whether elements of the two at the same index share memory, and no others, where both begin at one address."""
    return replace(operand, pointer=result.pointer).is_same_memory(result)


def _launches(
    chosen: Plan | Addend,
    backend: GpuBackend,
    alpha: float,
    beta: float,
    product: Product,
    tensors: Mapping[str, ArrayView],
    order: tuple[str, ...],
) -> tuple[Launch, Callable[[int], DeviceError], tuple[str, ...]] | None:
    """What `launches_of` makes of a product and its further operands, and how numbers are written; ``order`` has the
    names of both in that of the call."""
    epilogue = product.epilogue
    given_numbers = NO_NUMBERS if epilogue is None else epilogue.numbers
    placed = {"A": product.a, "B": product.b, "C": product.c, "D": product.target}
    operands = {name: each for name, each in placed.items() if each is not None}
    operands |= {_in_a_launch(name): each for name, each in tensors.items()}
    outputs = [] if epilogue is None else [f"{OUTPUT} {index}" for index in range(1, len(epilogue.types) + 1)]
    if epilogue is not None:
        operands |= dict(zip(outputs, epilogue.given, strict=False))
    numbers = [number_member(name) for name in order if name in given_numbers]
    found = launches_of(
        chosen, backend, alpha, beta, operands, numbers=given_numbers,
        names=(*OPERANDS, *map(_in_a_launch, tensors), *numbers, *outputs),
    )  # fmt: skip
    if found is None:
        return None
    members = dict(chosen.kernel.params.members)
    return *found, tuple(_FORMATS[_scalar(members[name]).type] for name in numbers)


def _in_a_launch(name: str) -> str:
    """What a launch calls a further operand."""
    return "E" if name == METADATA else f"{OPERAND} {name}"


def _scalar(field: Any) -> Scalar:
    assert isinstance(field, Scalar)
    return field
