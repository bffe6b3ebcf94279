"""Follow disassembled machine code (SASS) of small kernels lane by lane: which bytes go where, through which requests.

Registers hold numbers (addresses, lane arithmetic) or contents (for each byte, which byte of the tile it was loaded
from). Only what the compiler uses in kernels of a few lines is known; anything else raises.

The kernels have the parameters (tile, leading dimension, registers): the tile lies in global memory, or at the start of
the block's shared memory, and `registers` is where a lane dumps or takes its fragment.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

LANES = np.arange(32, dtype=np.uint64)
LOW = np.uint64(0xFFFFFFFF)
TILE, REGISTERS = 0x10_0000_0000, 0x20_0000_0000
UNKNOWN = -1


def kernels(disassembly: str) -> dict[str, list[str]]:
    """Instructions of each kernel by its name."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in disassembly.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            lines = found.setdefault(section[1], [])
        elif statement := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            lines.append(statement[1])
    return found


class Trace:
    """One warp, after it has run a kernel.

    Attributes:
        requests: of each access to the tile: name, bytes a lane (or matrices), transposed, address of each lane.
        stores: of each store: into the tile or the registers, address of each lane, contents per lane and byte.
    """

    def __init__(self, instructions: list[str], capability: int, leading_dimension: int) -> None:
        self.requests: list[tuple[str, int, bool, np.ndarray]] = []
        self.stores: list[tuple[str, np.ndarray, np.ndarray]] = []
        self._numbers: dict[str, np.ndarray] = {}
        self._contents: dict[str, np.ndarray] = {}
        self._predicates: dict[str, np.ndarray] = {}
        first = 0x210 if capability >= 90 else 0x160
        self._shared_start = 0x400 if capability >= 90 else 0
        values = (TILE, TILE >> 32, leading_dimension, 0, REGISTERS, REGISTERS >> 32)
        self._constants = {first + 4 * i: value & 0xFFFFFFFF for i, value in enumerate(values)}
        for instruction in instructions:
            name, _, rest = instruction.partition(" ")
            if name == "EXIT":
                return
            operands = [o.strip() for o in re.split(r",\s*(?![^\[]*\])", rest)] if rest else []
            self._step(name, [o.replace(".reuse", "") for o in operands], instruction)

    # -- values ------------------------------------------------------------------------------------------------

    def _number(self, operand: str, *, wide: bool = False) -> np.ndarray:
        """A 32-bit operand, or a pair of registers or constants as 64 bits."""
        if operand.startswith("-") and not operand[1:2].isdigit():
            return (np.uint64(0) - self._number(operand[1:])) & LOW
        if constant := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", operand):
            place = int(constant[1], 16)
            value = self._constants.get(place, 0) | (self._constants.get(place + 4, 0) << 32 if wide else 0)
            return np.full(32, value, np.uint64)
        if register := re.fullmatch(r"(U?R)(\d+|Z)", operand):
            if register[2] == "Z":
                return np.zeros(32, np.uint64)
            low = self._numbers[operand]
            return low | (self._numbers[_next(operand, 1)] << np.uint64(32)) if wide else low.copy()
        return np.full(32, int(operand, 16 if "0x" in operand else 10) & 0xFFFFFFFF, np.uint64)

    def _content(self, register: str) -> np.ndarray:
        return self._contents.get(register, np.full((32, 4), UNKNOWN, np.int64))

    def _set(self, register: str, number: np.ndarray | None, content: np.ndarray | None = None) -> None:
        if number is not None:
            self._numbers[register] = number.astype(np.uint64) & LOW
        self._contents.pop(register, None)
        if content is not None:
            self._contents[register] = content

    def _set_wide(self, register: str, number: np.ndarray) -> None:
        self._set(register, number)
        self._set(_next(register, 1), number >> np.uint64(32))

    def _predicate(self, name: str) -> np.ndarray:
        value = np.ones(32, bool) if name.lstrip("!") in ("PT", "UPT") else self._predicates[name.lstrip("!")]
        return (~value if name.startswith("!") else value).astype(np.uint64)

    def _address(self, operand: str, *, wide: bool) -> np.ndarray:
        inside = re.sub(r"desc\[UR\d+\]", "", operand).strip("[]")
        total = np.zeros(32, np.uint64)
        for part in inside.split("+"):
            register, _, suffix = part.partition(".")
            scale = np.uint64(int(suffix[1:])) if suffix.startswith("X") else np.uint64(1)
            total += self._number(register, wide=wide and "R" in register) * scale
        return total

    # -- instructions ------------------------------------------------------------------------------------------

    def _step(self, name: str, operands: list[str], text: str) -> None:
        kind, *options = name.split(".")
        if kind in ("NOP", "BRA", "LDC", "ULDC") or (kind in ("S2R", "S2UR", "MOV", "UMOV")):
            return self._move(kind, options, operands)
        memory = {"LDSM": self._ldmatrix, "MOVM": self._transpose, "PRMT": self._permute}
        access = re.fullmatch(r"(LD|ST)([SG]?)", kind)
        handler: Callable[[list[str], list[str]], None] | None = memory.get(kind)
        if access is not None:
            return self._access(access[1] == "ST", access[2] == "S", options, operands)
        if handler is not None:
            return handler(options, operands)
        return self._arithmetic(kind.removeprefix("U"), options, operands, text)

    def _move(self, kind: str, options: list[str], operands: list[str]) -> None:
        if kind in ("NOP", "BRA"):
            return
        target, source = operands
        if kind.startswith("S2"):
            self._set(target, {"SR_LANEID": LANES, "SR_TID.X": LANES, "SR_CgaCtaId": LANES * np.uint64(0)}[source])
        elif "64" in options:
            self._set_wide(target, self._number(source, wide=True))
        else:
            self._set(target, self._number(source), self._contents.get(source))

    def _arithmetic(self, kind: str, options: list[str], operands: list[str], text: str) -> None:
        target, *rest = operands
        carries = []
        while rest and re.fullmatch(r"U?P[\dT]", rest[0]):
            carries.append(rest.pop(0))
        if kind == "IMAD":
            if "MOV" in options:
                return self._set(target, self._number(rest[2]), self._contents.get(rest[2]))
            if rest[1] == "0x100" and self._join_bytes(target, rest[0], rest[2]):
                return None
            product = self._number(rest[0]) * self._number(rest[1])
            if "WIDE" in options:
                return self._set_wide(target, product + self._number(rest[2], wide=True))
            value = product + self._number(rest[2]) + (self._predicate(rest[3]) if "X" in options else np.uint64(0))
        elif kind in ("IADD3", "VIADD"):
            numbers = [self._number(r) for r in rest if not re.fullmatch(r"!?U?P[\dT]", r)]
            value = sum(numbers, np.zeros(32, np.uint64))
            if "X" in options:
                value = value + sum(self._predicate(r) for r in rest[3:])
        elif kind == "LEA" and "HI" in options:
            pair = self._number(rest[0]) | (self._number(rest[2]) << np.uint64(32))
            value = (((pair << np.uint64(int(rest[3], 16))) >> np.uint64(32)) & LOW) + self._number(rest[1])
            if "X" in options:
                value = value + self._predicate(rest[4])
        elif kind == "LEA":
            if rest[2] == "0x8" and self._join_bytes(target, rest[0], rest[1]):
                return None
            value = ((self._number(rest[0]) << np.uint64(int(rest[2], 16))) & LOW) + self._number(rest[1])
        elif kind == "SHF" and options == ["R", "U32", "HI"]:
            value = self._number(rest[2]) >> self._number(rest[1])
        elif kind == "SHF" and options == ["L", "U32"]:
            value = self._number(rest[0]) << self._number(rest[1])
        elif kind == "LOP3":
            value = _lookup([self._number(r) for r in rest[:3]], int(rest[3], 16))
        elif kind == "HFMA2":  # a constant: -0 * 0 + two halves
            halves = np.array([float(r) for r in rest[-2:]], np.float16).view(np.uint16)
            value = np.full(32, (int(halves[0]) << 16) | int(halves[1]), np.uint64)
        else:
            raise NotImplementedError(text)
        for i, carry in enumerate(carries):
            self._predicates[carry] = (value >> np.uint64(32)) > i
        return self._set(target, value)

    def _join_bytes(self, target: str, high: str, low: str) -> bool:
        """high * 256 + low of two registers with one loaded byte each."""
        if high not in self._contents or low not in self._contents:
            return False
        joined = np.full((32, 4), UNKNOWN, np.int64)
        joined[:, 0], joined[:, 1] = self._content(low)[:, 0], self._content(high)[:, 0]
        self._set(target, None, joined)
        return True

    def _permute(self, options: list[str], operands: list[str]) -> None:
        target, first, selector, second = operands
        both = np.concatenate([self._content(first), self._content(second)], axis=1)
        self._set(target, None, np.stack([both[:, int(selector, 16) >> 4 * i & 7] for i in range(4)], axis=1))

    def _transpose(self, options: list[str], operands: list[str]) -> None:
        assert options == ["16", "MT88"], options
        halves = self._content(operands[1]).reshape(8, 8, 2)
        self._set(operands[0], None, halves.transpose(1, 0, 2).reshape(32, 4))

    def _ldmatrix(self, options: list[str], operands: list[str]) -> None:
        count = int(options[2]) if len(options) > 2 else 1
        transposed = options[1] == "MT88"
        rows = (self._address(operands[1], wide=False).astype(np.int64) - self._shared_start)[: 8 * count]
        self.requests.append(("LDSM", count, transposed, rows))
        for i in range(count):
            matrix = rows[8 * i : 8 * i + 8, None, None] + 2 * np.arange(8)[:, None] + np.arange(2)
            if transposed:
                matrix = matrix.transpose(1, 0, 2)
            self._set(_next(operands[0], i), None, matrix.reshape(32, 4))

    def _access(self, store: bool, shared: bool, options: list[str], operands: list[str]) -> None:
        place, register = (operands[0], operands[1]) if store else (operands[1], operands[0])
        size = next((s for o, s in (("128", 16), ("64", 8), ("U8", 1), ("U16", 2)) if o in options), 4)
        address = self._address(place, wide=not shared).astype(np.int64)
        outside = not shared and bool((address >= REGISTERS).all())
        offset = address - (self._shared_start if shared else REGISTERS if outside else TILE)
        registers = [_next(register, i) for i in range(-(-size // 4))]
        if not outside:
            self.requests.append(("ST" if store else "LD", size, False, offset))
        if store:
            content = np.concatenate([self._content(r) for r in registers], axis=1)[:, :size]
            self.stores.append(("registers" if outside else "tile", offset, content))
            return
        for i, name in enumerate(registers):
            content = np.full((32, 4), UNKNOWN, np.int64)
            held = min(4, size - 4 * i)
            content[:, :held] = offset[:, None] + 4 * i + np.arange(held)
            self._set(name, None, content)


def _next(register: str, by: int) -> str:
    name = re.fullmatch(r"(U?R)(\d+)", register)
    assert name is not None, register
    return f"{name[1]}{int(name[2]) + by}"


def _lookup(inputs: list[np.ndarray], table: int) -> np.ndarray:
    result = np.zeros(32, np.uint64)
    for row in range(8):
        if table >> row & 1:
            term = np.full(32, LOW)
            for bit, value in zip((4, 2, 1), inputs, strict=True):
                term = term & (value if row & bit else value ^ LOW)
            result |= term
    return result
