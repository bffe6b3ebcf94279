"""What to launch, as pure data: the same for the GPU and for the emulator.

A `LaunchSpec` names its operands ("A", "B", ...); an executor binds each name to its memory
(a device pointer, or an emulated buffer).
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.launch.params import Field, MapPointer, Params, Pointer, Scalar, StructBytes
from warptile.launch.tensor_map import TensorMap

Dim3 = tuple[int, int, int]

Argument = Scalar | Pointer | TensorMap | MapPointer | Params | StructBytes


def placed_fields(argument: Argument) -> tuple[tuple[str, int, Field], ...]:
    """What a parameter holds: the name ("" for none), byte offset and value of each member, or of the one value."""
    if isinstance(argument, Params | StructBytes):
        return argument.placed
    return (("", 0, argument.map if isinstance(argument, MapPointer) else argument),)


@dataclass(frozen=True)
class LaunchSpec:
    """One kernel launch.

    Attributes:
        entry: lowered (mangled) symbol of the kernel.
        grid: CTAs in x, y, z.
        block: threads in x, y, z.
        cluster: CTAs of a cluster in x, y, z.
        dynamic_shared_bytes: dynamic shared memory of one CTA.
        overlaps_previous: it may start while the launch before it in its stream still runs (programmatic dependent
            launch): every thread executes ``griddepcontrol.wait`` before it touches an operand, and before it ends.
        co_resident: its CTAs wait for each other, so all of them must be resident at the same time.
        cooperative: it is a cooperative launch, as ``grid.sync()`` of cooperative groups needs it.
        arguments: one for each kernel parameter, in order.
    """

    entry: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    cluster: Dim3 = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    overlaps_previous: bool = False
    co_resident: bool = False
    cooperative: bool = False

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands that the arguments point to, each once, in order."""
        fields = [field for argument in self.arguments for _, _, field in placed_fields(argument)]
        names = [field.operand for field in fields if not isinstance(field, Scalar) and field.operand is not None]
        return tuple(dict.fromkeys(names))
