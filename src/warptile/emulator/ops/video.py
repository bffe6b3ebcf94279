"""SIMD video instructions on four bytes or two half-words (PTX ISA, "Video Instructions").

All parts in their own places: the parser refuses selectors (``%r1.b3210``) and masks, which no compiler writes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Array
from warptile.emulator.ops.typed import elementwise, joined, pieces
from warptile.ptx.instruction import Instruction

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_SIGNS = ("u32", "s32")


@builder(*[f"{name}{count}" for name in (*_OPERATIONS, "vset") for count in (2, 4)])
def parallel(instruction: Instruction, assembler: Assembler) -> Operation:
    """``vadd4``, ``vabsdiff2`` and the like: part by part; ``.sat`` clamps each, ``.add`` adds all of them to c."""
    name, count = instruction.opcode[:-1], int(instruction.opcode[-1])
    modifiers = Modifiers(instruction)
    accumulate, saturate = modifiers.flag("add"), modifiers.flag("sat")
    comparison = modifiers.need(*_COMPARISONS) if name == "vset" else None
    result = "u32" if comparison else modifiers.need(*_SIGNS)
    left, right = modifiers.need(*_SIGNS), modifiers.need(*_SIGNS)
    modifiers.done()
    if saturate and comparison:
        raise unknown(instruction, "vset does not saturate")
    function = _COMPARISONS[comparison] if comparison else _OPERATIONS[name]
    size = 4 // count
    kinds = [np.dtype(f"{'i' if sign == 's32' else 'u'}{size}") for sign in (result, left, right)]
    limits = np.iinfo(kinds[0])

    def run(a: Array, b: Array, c: Array) -> Array:
        parts = function(pieces(a, kinds[1]).astype(np.int64), pieces(b, kinds[2]).astype(np.int64)).astype(np.int64)
        if saturate:
            parts = np.clip(parts, limits.min, limits.max)
        if accumulate:
            total: Array = (parts.sum(axis=1) + c).astype(np.uint32)
            return total
        return joined(parts.astype(kinds[0]), np.uint32)

    return elementwise(instruction, assembler, run, *[np.uint32] * 4)
