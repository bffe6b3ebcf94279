"""What to launch, as pure data: the same for the GPU and for the emulator.

A `LaunchSpec` names its operands ("A", "B", ...); an executor binds each name to memory of its own
(a device pointer, or an emulated buffer).
"""

from __future__ import annotations

from dataclasses import dataclass

Dim3 = tuple[int, int, int]

SCALAR_BYTES = {"s32": 4, "u32": 4, "s64": 8, "u64": 8, "f16": 2, "f32": 4, "f64": 8}


@dataclass(frozen=True)
class Scalar:
    """A kernel parameter passed by value. ``type`` is one of s32, u32, s64, u64, f16, f32, f64."""

    type: str
    value: int | float

    def __post_init__(self) -> None:
        assert self.type in SCALAR_BYTES, self.type


@dataclass(frozen=True)
class Pointer:
    """A kernel parameter that is the address of ``operand`` plus ``offset_bytes``; operand None is a null pointer."""

    operand: str | None
    offset_bytes: int = 0


Argument = Scalar | Pointer


@dataclass(frozen=True)
class LaunchSpec:
    """One kernel launch.

    Attributes:
        entry: lowered (mangled) symbol of the kernel.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        cluster: blocks of a cluster in x, y, z.
        dynamic_shared_bytes: dynamic shared memory of one block.
        arguments: one for each kernel parameter, in order.
    """

    entry: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    cluster: Dim3 = (1, 1, 1)
    dynamic_shared_bytes: int = 0

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands that the arguments point to, each once, in order."""
        names = [a.operand for a in self.arguments if isinstance(a, Pointer) and a.operand is not None]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Rows:
    """Rows in memory: ``count`` of ``columns`` elements, ``stride_bytes`` apart, from ``offset_bytes`` on."""

    count: int
    columns: int
    element_bytes: int
    stride_bytes: int
    offset_bytes: int = 0

    def element(self, byte: int) -> tuple[int, int]:
        """Row and column of the element that holds a byte, counted from the start of the operand."""
        row, rest = divmod(byte - self.offset_bytes, max(self.stride_bytes, 1))
        return row, rest // self.element_bytes


@dataclass(frozen=True)
class Access:
    """How a kernel may use one operand; the emulator checks it.

    Attributes:
        writes: the kernel may write it; the caller's array is then updated.
        complete: elements that must all have been written when the launch is over.
    """

    writes: bool = False
    complete: Rows | None = None
