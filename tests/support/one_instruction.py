"""Run one PTX instruction on the emulator's arithmetic, without a machine: parse, build, execute on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.emulator import ops as _registered
from warptile.emulator.builders import BUILDERS, Assembler
from warptile.emulator.lanes import Active, RegisterFile
from warptile.ptx import parse
from warptile.ptx.instruction import Register

assert _registered is not None

_NUMPY = {
    "pred": np.bool_, "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "b128": np.uint64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "s8": np.int8, "s16": np.int16,
    "s32": np.int32, "s64": np.int64, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


class Bench:
    """What operations need of a machine: registers, special registers, addresses."""

    def __init__(self, lanes: int) -> None:
        self.registers = RegisterFile(lanes)
        self.shifts: dict[str, Any] = {}
        self.steps = 0
        self._lane = np.arange(lanes, dtype=np.uint32)

    def special(self, name: str) -> Any:
        assert name == "laneid"
        return self._lane

    def clock(self, name: str) -> Any:
        return np.array([12345], dtype=np.uint64 if name.endswith("64") else np.uint32)

    def address_of(self, symbol: str) -> int:
        return {"table": 0x4000, "table2": 0x5000}[symbol]

    def addresses_of(self, symbol: str, offset: int = 0) -> Any:
        return np.array([self.address_of(symbol) + offset], dtype=np.int64)


def execute(text: str, registers: str, *, index: Any = None, lanes: int | None = None, **values: Any) -> Any:
    """Run the instructions ``text`` on registers declared by ``registers`` (``"f32 d a b, pred p"``).

    Args:
        text: one or more PTX statements.
        registers: types, each with names.
        index: the active lanes, a slice or an array; all by default.
        lanes: number of lanes; that of the values by default.
        values: what registers hold before, as arrays of their type or as raw bits of its width.

    Returns:
        Of the first register, its values afterwards as its type (all lanes); with several first registers joined
        by ``+`` in the declaration, a tuple of them.
    """
    declared: dict[str, str] = {}
    results: list[str] = []
    for group in registers.split(","):
        kind, *names = group.split()
        for name in names:
            plain = name.lstrip("+")
            declared[plain] = kind
            if name != plain or not results:
                results.append(plain)
    lines = "\n".join(f".reg .{kind} {name};" for name, kind in declared.items())
    module = parse(
        f".version 8.7\n.target sm_100a\n.address_size 64\n.global .b32 table[4];\n.shared .b8 table2[64];\n"
        f".entry k()\n{{\n{lines}\n{text}\n}}"
    )
    body = module.functions["k"].body
    assert body is not None
    count = lanes or max((len(value) for value in values.values()), default=4)
    bench = Bench(count)
    for name, value in values.items():
        array = bench.registers.array(Register(name, declared[name]))
        given = np.asarray(value)
        array[:] = given if declared[name] in ("pred", "b128") else given.view(array.dtype)
    chosen = slice(0, count) if index is None else index
    size = len(range(*chosen.indices(count))) if isinstance(chosen, slice) else len(chosen)
    for instruction in body:
        operation = BUILDERS[instruction.opcode](instruction, Assembler(bench))  # type: ignore[arg-type]
        operation.run(Active(chosen, size))
    found = []
    for name in results:
        array = bench.registers.array(Register(name, declared[name]))
        kind = _NUMPY[declared[name]]
        found.append(array if array.ndim == 2 else array.view(kind))
    return found[0] if len(found) == 1 else tuple(found)
