"""Computes `wgmma.mma_async`: reads operands from shared memory and registers, writes D = A B + C to registers.

Warps of a warpgroup need not arrive together. Each makes its own 16 rows; where all four are there, they are one
matrix of 64 rows, which costs less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic import accumulate
from warptile.emulator.arithmetic.fragment_data import (
    FragmentCodec,
    read_registers,
    to_matrices,
    to_registers,
    write_registers,
)
from warptile.emulator.builders import Destination, Source
from warptile.emulator.checks.f16_overflow import finite
from warptile.emulator.checks.wgmma_registers import Rows, WgmmaRegisters
from warptile.emulator.lanes import WARP, Active, Array
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import Offsets
from warptile.errors import AccumulatorOverflow
from warptile.isa.mma import k_operand
from warptile.isa.numerics import FORMATS, group_accumulation
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.isa.wgmma import ROWS, SWIZZLES, WARPS, GroupShape, accumulator_places, pattern
from warptile.ptx.instruction import Instruction

BAND = ROWS // WARPS
"""Rows of one warp."""

Words = NDArray[np.uint64]
Warps = NDArray[np.intp]


@dataclass
class WgmmaIssue:
    """One execution of one `wgmma.mma_async`, by ``warps``, which are numbered through the wave and in order.

    Attributes:
        product: what is computed.
        warps: who executes it.
        group: of each warp, how many groups it had committed before.
        a: of each warp, the descriptor of A; None if A lies in registers.
        b: the descriptor of B.
        adds: of each warp, whether C is added.
        chosen: of a sparse A, which columns are stored: (warps, 16, stored columns).
        done: D has been computed; the warps need not know of it yet.
        over: of warpgroups of which a warp has waited for it, what the race check knows it by.
    """

    product: WgmmaOperation
    warps: Warps
    group: NDArray[np.int64]
    a: Words | None
    b: Words
    adds: NDArray[np.bool_]
    chosen: NDArray[np.int64] | None = None
    done: bool = False
    over: dict[int, int] = field(default_factory=dict)

    def part(self, mask: NDArray[np.bool_] | NDArray[np.intp]) -> WgmmaIssue:
        """The same of some of the warps."""
        a = None if self.a is None else self.a[mask]
        chosen = None if self.chosen is None else self.chosen[mask]
        return WgmmaIssue(
            self.product, self.warps[mask], self.group[mask], a, self.b[mask], self.adds[mask], chosen, self.done,
            self.over,
        )  # fmt: skip

    def leading(self) -> WgmmaIssue:
        """The same, once for each warpgroup, as if by its first warp."""
        _, first = np.unique(self.warps // WARPS, return_index=True)
        leading = self.part(first)
        return replace(leading, warps=leading.warps // WARPS * WARPS)

    def bands(self) -> Iterator[tuple[WgmmaIssue, int]]:
        """Whole warpgroups with 4, and what is left, by place in the warpgroup, with 1."""
        group = self.warps // WARPS
        first, count = np.unique(group, return_counts=True)
        whole = np.isin(group, first[count == WARPS])
        if whole.all():
            yield self, WARPS
            return
        if whole.any():
            yield self.part(whole), WARPS
        for place in range(WARPS):
            alone = ~whole & (self.warps % WARPS == place)
            if alone.any():
                yield self.part(alone), 1


@dataclass(frozen=True)
class WgmmaOperation:
    """One `wgmma.mma_async` instruction of the program.

    Attributes:
        instruction: its text and its line.
        shape: of the matrices.
        types: of D, A and B.
        memory: where operands lie.
        held: the registers of its function.
        rows: those of D and of A.
        targets: D.
        addends: the same registers, to be read.
        left: registers of A; empty if it lies in shared memory.
        transposed: A is MN-major, B is.
        negated: A is negated, B is.
        saturates: integers are held at their limits.
        checks_overflow: infinite f16 results of finite operands are reported.
    """

    instruction: Instruction
    shape: GroupShape
    types: tuple[str, str, str]
    memory: Memory
    held: WgmmaRegisters
    rows: tuple[Rows, Rows]
    targets: list[Destination]
    addends: list[Source]
    left: list[Source]
    transposed: tuple[bool, bool] = (False, False)
    negated: tuple[bool, bool] = (False, False)
    saturates: bool = False
    checks_overflow: bool = False

    # -- shared memory -----------------------------------------------------------------------------------------

    def reads(self, issue: WgmmaIssue, *, own_rows: bool) -> Iterator[tuple[NDArray[np.intp], Offsets]]:
        """Which lane reads which chunk of shared memory.

        The warpgroup reads together. It is all counted for its first lane, where its first warp is among those that
        issue; with ``own_rows`` each warp's rows of A are counted for the first lane of that warp instead.
        """
        leading = issue.part(issue.warps % WARPS == 0)
        parts = [("b", leading, WARPS)]
        if issue.a is not None and own_rows:
            parts += [("a", issue.part(issue.warps % WARPS == place), 1) for place in range(WARPS)]
        elif issue.a is not None:
            parts.insert(0, ("a", leading, WARPS))
        for matrix, part, warps in parts:
            descriptors = part.a if matrix == "a" else part.b
            if descriptors is None or not len(part.warps):
                continue
            for some, offsets in self._chunks(part.warps, descriptors, matrix, warps):
                yield np.repeat(part.warps[some] * WARP, offsets[0].size), offsets.ravel()

    def _chunks(
        self, leading_warps: Warps, descriptors: Words, matrix: str, warps: int
    ) -> Iterator[tuple[NDArray[np.bool_], Offsets]]:
        """Checked offsets of all chunks of one operand, for the descriptors of each swizzle; which they are.

        Of A the rows of ``warps`` warps, from the leading one's on.
        """
        words = descriptors.astype(np.int64)
        start, leading, stride = (((words >> place) & 0x3FFF) << 4 for place in (0, 16, 32))
        kinds = words >> 62 & 3
        leaders = Active.of(leading_warps * WARP)
        rows, k, first = (self.shape.n, self.shape.k, 0) if matrix == "b" else (BAND * warps, self.shape.stored, 0)
        if matrix == "a" and warps == 1:
            first = BAND * int(leading_warps[0] % WARPS)
        for kind in np.unique(kinds):
            some = kinds == kind
            found = pattern(
                rows, k, self.shape.family.bits, SWIZZLES[int(kind)],
                transposed=self.transposed[matrix == "b"], first=first,
            )  # fmt: skip
            addresses = found.addresses(start[some], leading[some], stride[some], words[some] >> 49 & 7)
            active = leaders if some.all() else leaders.where(some)
            addresses = addresses + self.memory.shared_base[active.index].reshape(-1, *(1,) * (addresses.ndim - 1))
            where, offsets = self.memory.resolve(self.instruction, active, "shared", addresses, CHUNK_BYTES)
            self.memory.check_read(self.instruction, active, where, offsets, CHUNK_BYTES)
            yield some, offsets

    def _fetch(self, band: WgmmaIssue, warps: int, matrix: str) -> Array:
        """One operand of every warpgroup (or warp) as raw elements: (n, rows, K)."""
        side = matrix == "b"
        bits, element = self.shape.family.bits, self.types[1 + side]
        signed = element == "s8"
        word = np.dtype(f"{'i' if signed else 'u'}{max(bits // 8, 4 if bits == 1 else 1)}")
        found: Array | None = None
        descriptors = band.b if side else band.a
        assert descriptors is not None
        for some, offsets in self._chunks(band.warps[::warps], descriptors[::warps], matrix, warps):
            raw = self.memory.shared_words(self.instruction, offsets, CHUNK_BYTES)
            elements = np.ascontiguousarray(raw).view(word)
            part = elements.astype(np.int32).view(np.uint32) if signed else elements.astype(np.uint32)
            if self.transposed[side]:
                part = part.swapaxes(1, 2)
            if found is None:
                found = np.empty((len(some), *part.shape[1:]), np.uint32)
            found[some] = part
        assert found is not None
        return found

    # -- the product -------------------------------------------------------------------------------------------

    def compute(self, issue: WgmmaIssue) -> None:
        """D of every warp, from what memory and registers hold now."""
        for band, warps in issue.bands():
            self._compute(band, warps)

    def _compute(self, band: WgmmaIssue, warps: int) -> None:
        result, left, right = self.types
        lanes = (band.warps[:, None] * WARP + np.arange(WARP)).ravel()
        active = Active.of(lanes)
        a = self._left(band, warps, active)
        b = self._fetch(band, warps, "b")
        if any(self.negated):
            sign = np.uint32(1 << FORMATS[left].bits - 1)
            a, b = (each ^ sign if negated else each for each, negated in zip((a, b), self.negated, strict=True))
        c = np.zeros((len(self.addends), len(lanes)), np.uint32)
        if band.adds.any():
            c = read_registers(self.addends, active, np.uint32)
            if not band.adds.all():
                c[:, np.repeat(~band.adds, WARP)] = 0
        c = self._matrix(c, warps)
        chosen = None if band.chosen is None else band.chosen.reshape(len(b), BAND * warps, -1)
        d = self._multiply(a, b, c, chosen)
        if self.checks_overflow and result == "f16":
            self._check_overflow(band, warps, finite(a, left), finite(b, right), c, d)
        write_registers(self.targets, active, self._registers(d, warps))

    def _left(self, band: WgmmaIssue, warps: int, active: Active) -> Array:
        if band.a is not None:
            return self._fetch(band, warps, "a")
        layout = self.shape.fragment()
        if self.types[1] == "b1":
            layout = k_operand(BAND, self.shape.stored // 32, 32)
        codec = FragmentCodec(layout, signed=self.types[1] == "s8")
        found = codec.matrices(read_registers(self.left, active, np.uint32))
        return found.reshape(-1, BAND * warps, found.shape[2])

    def _multiply(self, a: Array, b: Array, c: Array, chosen: NDArray[np.int64] | None) -> Array:
        result, left, right = self.types
        if left == "b1":
            return accumulate.multiply_bits(a, b, c.view(np.int32), exclusive=False).view(np.uint32)
        if result == "s32":
            signed = (each.view(np.int32) for each in (a, b, c))
            return accumulate.multiply_integer(*signed, saturate=self.saturates, chosen=chosen).view(np.uint32)
        return accumulate.multiply_float(a, b, c, left, result, group_accumulation(left), right=right, chosen=chosen)

    def _matrix(self, registers: Array, warps: int) -> Array:
        """Registers of D's layout to matrices (n, rows, N)."""
        bits = self._result_bits
        size = BAND * warps * self.shape.n
        found = to_matrices(registers, _places(self.shape.n, bits, warps), size, bits)
        return found.reshape(-1, BAND * warps, self.shape.n)

    def _registers(self, matrices: Array, warps: int) -> Array:
        """The other way round."""
        bits = self._result_bits
        flat = np.ascontiguousarray(matrices, np.uint32).reshape(len(matrices), -1)
        return to_registers(flat, _places(self.shape.n, bits, warps), bits)

    @property
    def _result_bits(self) -> int:
        return 16 if self.types[0] == "f16" else 32

    def _check_overflow(
        self, band: WgmmaIssue, warps: int, a: NDArray[np.bool_], b: NDArray[np.bool_], c: Array, d: Array
    ) -> None:
        rows, columns = np.asarray(a.all(axis=2))[:, :, None], np.asarray(b.all(axis=2))[:, None, :]
        made = ((d & 0x7FFF) == 0x7C00) & rows & columns & finite(c, "f16")
        if not made.any():
            return
        group, row, column = (int(i) for i in np.argwhere(made)[0])
        where = accumulator_places(self.shape.n, 16, warps).reshape(WARP * warps, -1)
        lane = int(np.argwhere(where == row * self.shape.n + column)[0][0])
        thread = self.memory.thread(int(band.warps[group * warps]) * WARP + lane)
        error = AccumulatorOverflow(
            f"{self.instruction.text}: row {row}, column {column} of the result is infinite, in {thread}, "
            "although the operands are finite; f16 ends at 65504: accumulate in f32, or scale the operands",
            kernel=self.memory.kernel,
            location=self.instruction.location,
        )
        self.memory.findings.report(error)


class UndefinedWgmma(WgmmaOperation):
    """The same of undefined bits: which of D are, given those of A, B and C."""

    def _multiply(self, a: Array, b: Array, c: Array, chosen: NDArray[np.int64] | None) -> Array:
        found = (a != 0).any(axis=2)[:, :, None] | (b != 0).any(axis=2)[:, None, :] | (c != 0)
        undefined: Array = found * np.uint32((1 << self._result_bits) - 1)
        return undefined


@cache
def _places(n: int, bits: int, warps: int) -> NDArray[np.intp]:
    """`accumulator_places` by register first."""
    return np.ascontiguousarray(accumulator_places(n, bits, warps).swapaxes(0, 1))
