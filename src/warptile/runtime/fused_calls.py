"""Bound calls with an epilogue: as `warptile.runtime.bound_call`, with the addresses of more operands, and numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from warptile.arrays.array_view import ArrayView
from warptile.arrays.epilogue_operands import EpilogueOperands
from warptile.arrays.operands import Product
from warptile.arrays.reductions import reduced
from warptile.epilogue.cuda import number_member
from warptile.epilogue.epilogue_program import Reduction
from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT
from warptile.errors import DeviceError
from warptile.gpu import driver, stream_state, workspaces
from warptile.launch.params import Scalar
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.bound_call import FRESH, OPERANDS, reach_of, row_major_result
from warptile.runtime.execute import GpuBackend, compiled, copy_launch

Launch = Callable[..., int]
"""``launch(stream, a, b, c, d, *others)``: then come the epilogue's tensors and numbers in the order of the call, and
further outputs."""

NUMBERS = {int: "int", float: "float"}
"""Types of an epilogue's operands that are given as they are."""

_FORMATS = {"f32": "<fxxxx", "f64": "<d", "u64": "<Q"}


@dataclass(frozen=True, slots=True)
class FusedCall:
    """One call of `matmul` with an epilogue, of which only addresses, numbers and the stream are still open.

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

    def words(self, numbers: list[float]) -> list[int]:
        """Numbers as the eight bytes of each that a launch writes."""
        return [
            int.from_bytes(struct.pack(form, value), "little")
            for form, value in zip(self.formats, numbers, strict=True)
        ]

    def returned(self, outputs: list[Any]) -> Any:
        """What a call returns whose launches write these arrays."""
        if len(outputs) == 1:
            return outputs[0]
        return tuple(
            each if how is None else reduced(each, how) for each, how in zip(outputs, self.reductions, strict=True)
        )

    def overlaps(self, a: int, b: int, c: int, d: int, tensors: list[int]) -> bool:
        """Whether D, at these addresses, shares bytes with what is read for other elements."""
        of_a, of_b, of_c, of_d, *of_tensors = self.reaches
        low, high = d + of_d[0], d + of_d[1]
        read = [(a, of_a, False), (b, of_b, False)]
        by_elements = zip((c, *tensors), (of_c, *of_tensors), self.aligned_with_d, strict=True)
        read += [(at, reach, fits) for at, reach, fits in by_elements if at]
        return any(low < at + reach[1] and at + reach[0] < high and not (fits and at == d) for at, reach, fits in read)


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
) -> FusedCall | None:
    """The call with all but addresses, numbers and the stream fixed; None where it is not one GEMM on operands as they
    lie.

    Args:
        product: the arrays.
        addresses: of the epilogue's operands, in the order of the call; any number for one that is a number.
        chosen: the plan.
        backend: the GPU.
        alpha, beta: factors.
        dtypes, device, gradients: as of `FusedCall`.
    """
    epilogue = product.epilogue
    direct = product.out is None or product.target is not None
    if epilogue is None or product.copies or product.metadata is not None or not direct:
        return None
    if chosen.problem.batch == 1 and len(list(product.indices())) > 1:
        return None
    if any(each.pointer != addresses[name] for name, each in epilogue.tensors.items()):
        return None  # it was copied
    native = _launches(chosen, backend, alpha, beta, product, epilogue, addresses)
    if native is None:
        return None
    launch, refuse, formats = native
    result = product.target or row_major_result(product)
    tensors = [epilogue.tensors[name] for name in addresses if name in epilogue.tensors]
    whole, problem = product.result_shape, product.problem
    further = epilogue.shapes(whole, product.batch, problem.m, problem.n, chosen.kernel.view.problem.epilogue)
    read = (product.a, product.b) if product.reads_operands else (None, None)
    return FusedCall(
        launch, refuse, (whole, *further), dtypes, (None, *epilogue.reductions), device,
        backend.info.ordinal,
        tuple(map(reach_of, (*read, product.c, result, *tensors))),
        tuple(each is not None and _is_like(each, result) for each in (product.c, *tensors)),
        formats, gradients,
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
    epilogue: EpilogueOperands,
    names_given: Iterable[str],
) -> tuple[Launch, Callable[[int], DeviceError], tuple[str, ...]] | None:
    kernel = compiled(chosen)
    spec = chosen.launch(kernel.entry, alpha, beta, epilogue.numbers)
    steps = [(backend.load(kernel), spec)]
    if chosen.kernel.copies:
        copying, before = copy_launch(chosen.kernel.copies, chosen.arch)
        steps.insert(0, (backend.load(copying), before))
    wanted = chosen.kernel.workspaces
    named = epilogue.named(epilogue.given)
    tensors = [f"{OPERAND} {name}" for name in names_given if name in epilogue.tensors]
    numbers = [number_member(name) for name in names_given if name in epilogue.numbers]
    outputs = [f"{OUTPUT} {index}" for index in range(1, len(epilogue.types) + 1)]
    names = (*OPERANDS, *tensors, *numbers, *outputs, *(each.name for each in wanted))
    pointers = dict.fromkeys(names, FRESH) | {name: each.pointer for name, each in named.items()}
    placed = {"A": product.a, "B": product.b, "C": product.c, "D": product.target}
    pointers |= {name: each.pointer for name, each in placed.items() if each is not None}
    natives: list[Launch] = []
    for loaded, each in steps:
        try:
            native = loaded.bind(each, names, pointers)
        except DeviceError:
            return None
        if native is None:
            return None
        natives.append(native)
    members = dict(chosen.kernel.params.members)
    formats = tuple(_FORMATS[_scalar(members[name]).type] for name in numbers)

    def refuse(status: int) -> DeviceError:
        last, of_last = steps[-1]
        refusal: DeviceError = last.refusal(of_last, status)
        return refusal

    if not wanted:
        return natives[0], refuse, formats
    ordinal, state_of = backend.info.ordinal, stream_state.state_function()

    def launch(stream: int, *addresses: int) -> int:
        status = 0
        with driver.on_device(ordinal):
            shared = workspaces.of_stream(ordinal, stream, state_of(stream))
            with shared.used_on(stream):
                found = shared.pointers(wanted)
                beside = [found[each.name] for each in wanted]
                for native in natives:
                    status = status or native(stream, *addresses, *beside)
        return status

    return launch, refuse, formats


def _scalar(field: Any) -> Scalar:
    assert isinstance(field, Scalar)
    return field
