"""The swizzle: every read and write of every legal stage is free of bank conflicts, counted by the emulator's rules; a
layout library and the C++ function agree with the Python one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from tensor_layouts import Swizzle

from emulation import run_cuda
from warptile.emulator.counters import Counters
from warptile.emulator.lanes import Active
from warptile.errors import SourceLocation
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES, ROW_BYTES, swizzled
from warptile.ptx.instruction import Instruction
from warptile.rungs.mma_tiles import SMEM_ROW_BYTES

Place = Callable[[int, int], int]
Requests = Iterator[list[tuple[int, int]]]
"""Warp-wide requests: for each lane the line and the byte of its 16 bytes."""


@dataclass(frozen=True)
class Stage:
    """One operand's stage: ``lines`` of ``line_bytes``, contiguous in the matrix; elements of ``size`` bytes, packed
    ones too (1). With ``k_major`` a line is a row of A (a column of B), else a K tile."""

    size: int
    k_major: bool
    lines: int
    line_bytes: int

    @property
    def row_bytes(self) -> int:
        return min(self.line_bytes, LINE_BYTES)

    def plain(self, line: int, byte: int) -> int:
        """Where a byte lies in panels: `Panels::offset` of kernels/tile/panels.cuh without its swizzle."""
        panel = byte // self.row_bytes * self.lines * self.row_bytes
        return panel + line * self.row_bytes + byte % self.row_bytes

    def swizzled(self, line: int, byte: int) -> int:
        """The same with it; panels start at multiples of eight rows."""
        return swizzled(self.plain(line, byte), self.row_bytes)


EXTENTS = (16, 32, 48, 64, 96, 128, 160, 192, 256)
DEPTH_BYTES = (32, 64, 128, 256)


def stages() -> Iterator[Stage]:
    """Every stage that legal configurations of these extents and depths have."""
    for size, extent, depth_bytes in product((1, 2, 4, 8), EXTENTS, DEPTH_BYTES):
        if depth_bytes % (128 if size == 8 else 32) == 0:
            yield Stage(size, True, extent, depth_bytes)
            if size == 4 and extent % 32:
                continue  # floats along M (N) are loaded 32 at a time
            line_bytes = extent * size
            if line_bytes in SMEM_ROW_BYTES or line_bytes % LINE_BYTES == 0:
                yield Stage(size, False, depth_bytes // size, line_bytes)


STAGES = tuple(dict.fromkeys(stages()))
SHAPES = tuple({(stage.lines, stage.line_bytes): stage for stage in STAGES}.values())
"""One of those that differ in the size of elements alone."""


def interleaved(g: int) -> int:
    """Lanes 8 q to 8 q + 7, which load together, meet rows (chunks) q and q + 4: `interleaved` of mma_fragments.cuh."""
    return g // 2 + g % 2 * 4


def matrix_reads(stage: Stage) -> Requests:
    """The 8x8 matrices that ldmatrix reads: eight lines, 16 bytes of each. Bytes that are transposed come in pairs, and
    the lines of a matrix are those of two lanes' four depths."""
    steps = range(0, stage.lines, 8)
    eight = [[first + row for row in range(8)] for first in steps]
    if stage.size == 1 and not stage.k_major:
        eight = [
            [first + 4 * (row // 2) + 2 * (matrix ^ row // 4) + row % 2 for row in range(8)]
            for first in range(0, stage.lines, 16)
            for matrix in (0, 1)
        ]
    for lines in eight:
        for byte in range(0, stage.line_bytes, CHUNK_BYTES):
            yield [(line, byte) for line in lines]


def register_reads(stage: Stage) -> Requests:
    """16 bytes of each lane g * 4 + t: of doubles along K chunk t of row g; of floats and doubles along M (N) chunk g
    of a line that depends on t."""
    lanes = [(lane // 4, lane % 4) for lane in range(32)]
    if stage.k_major:
        for first in range(0, stage.lines, 8):
            for byte in range(0, stage.line_bytes, 64):
                yield [(first + interleaved(g), byte + CHUNK_BYTES * t) for g, t in lanes]
        return
    doubles = stage.size == 8
    for first in range(0, stage.lines, 8):
        for part in (0, 1):
            for byte in range(0, stage.line_bytes, LINE_BYTES):
                if doubles:
                    yield [(first + 2 * t + part, byte + CHUNK_BYTES * g) for g, t in lanes]
                else:
                    yield [(first + t + 4 * part, byte + CHUNK_BYTES * interleaved(g)) for g, t in lanes]


def copies(stage: Stage) -> Requests:
    """16-byte copies into the stage: neighbouring lanes take neighbouring chunks of a line."""
    chunks = stage.line_bytes // CHUNK_BYTES
    for first in range(0, stage.lines * chunks, 32):
        yield [((first + lane) // chunks, (first + lane) % chunks * CHUNK_BYTES) for lane in range(32)]


def counted(requests: Requests, place: Place, kind: str) -> tuple[int, int]:
    """Wavefronts of all requests together, one a warp, and what they would be without conflicts.

    ``kind``: "ldmatrix", "stmatrix", "load" or "store" of 16 bytes a lane, or "cp.async" from lines 4096 bytes apart.
    """
    targets, sources, lanes = [], [], []
    for warp, request in enumerate(requests):
        targets += [place(line, byte) for line, byte in request]
        sources += [4096 * line + byte for line, byte in request]
        lanes += [32 * warp + lane for lane in range(len(request))]
    instruction = Instruction("x", (), (), SourceLocation(1), "x")
    counters, active = Counters(1), Active.of(np.array(lanes))
    counters.place([instruction], 0)
    target, source = np.array(targets, dtype=np.int64), np.array(sources, dtype=np.int64)
    if kind == "cp.async":
        reads = np.ones(len(lanes), dtype=np.bool_)
        counters.copy_async(instruction, active, source, target, CHUNK_BYTES, reads=reads, bypasses_l1=True)
    else:
        write, matrices = kind in ("stmatrix", "store"), kind.endswith("matrix")
        together = 8 if matrices else 0
        counters.access_shared(instruction, active, target, CHUNK_BYTES, write=write, pass_lanes=together)
    total, direction = counters.total(), "load" if kind in ("ldmatrix", "load") else "store"
    return int(total[f"shared_{direction}_wavefronts"]), int(total[f"shared_{direction}_wavefronts_ideal"])


def reads_of(stage: Stage) -> tuple[Requests, str]:
    """How fragments are read: doubles, and floats that are not along K, in 16-byte loads, all others by ldmatrix."""
    if stage.size == 8 or (stage.size == 4 and not stage.k_major):
        return register_reads(stage), "load"
    return matrix_reads(stage), "ldmatrix"


# --- no conflicts -------------------------------------------------------------------------------------------------


def test_there_are_stages_of_every_kind() -> None:
    assert {(stage.size, stage.k_major) for stage in STAGES} == {(s, k) for s in (1, 2, 4, 8) for k in (True, False)}
    assert {stage.row_bytes for stage in STAGES} == set(ROW_BYTES) == set(SMEM_ROW_BYTES)
    assert max(stage.line_bytes for stage in STAGES) == 16 * LINE_BYTES


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("k_major", [True, False])
def test_every_fragment_is_read_without_conflict(size: int, k_major: bool) -> None:
    for stage in STAGES:
        if (stage.size, stage.k_major) == (size, k_major):
            requests, kind = reads_of(stage)
            wavefronts, ideal = counted(requests, stage.swizzled, kind)
            assert wavefronts == ideal > 0


def test_every_byte_of_a_stage_is_read_once() -> None:
    for stage in STAGES:
        requests, _ = reads_of(stage)
        places = [place for request in requests for place in request]
        assert len(set(places)) == len(places) == stage.lines * stage.line_bytes // CHUNK_BYTES


def test_matrices_are_stored_without_conflict() -> None:
    for stage in SHAPES:
        as_halves = Stage(2, True, stage.lines, stage.line_bytes)
        wavefronts, ideal = counted(matrix_reads(as_halves), stage.swizzled, "stmatrix")
        assert wavefronts == ideal > 0


def test_stages_are_filled_without_conflict() -> None:
    for stage in SHAPES:
        wavefronts, ideal = counted(copies(stage), stage.swizzled, "store")
        assert wavefronts == ideal > 0


def test_asynchronous_copies_take_a_wavefront_for_every_line_they_read() -> None:
    # A wavefront of cp.async reads one line of the matrix and writes 128 bytes: rows of 128 bytes are ideal. Narrower
    # ones take as many wavefronts as there are lines, for the copy's source, not for the swizzle.
    for stage in SHAPES:
        wavefronts, ideal = counted(copies(stage), stage.swizzled, "cp.async")
        assert wavefronts == ideal * LINE_BYTES // stage.row_bytes


@pytest.mark.parametrize(("row_bytes", "ratio"), [(32, 2), (64, 4), (128, 8)])
def test_rows_below_each_other_conflict(row_bytes: int, ratio: int) -> None:
    # Eight rows of 16 bytes lie row_bytes apart: they meet in 128 / row_bytes of the eight columns of 16 bytes.
    for stage in STAGES:
        if stage.row_bytes == row_bytes and stage.size == 2:
            wavefronts, ideal = counted(matrix_reads(stage), stage.plain, "ldmatrix")
            assert wavefronts == ratio * ideal


@pytest.mark.parametrize(("unit_bytes", "ratio"), [(16, 4), (4, 8), (2, 8)])
def test_published_mask_leaves_a_conflict(unit_bytes: int, ratio: int) -> None:
    # `col ^ ((row & 0b1100) >> 2)` of T2, in rows of 128 bytes. Over the eight rows of a matrix the mask takes two
    # values: with col a chunk of 16 bytes four rows meet in each of two chunks; with col a word or a half none moves.
    def published(line: int, byte: int) -> int:
        column = byte // unit_bytes ^ (line & 0b1100) >> 2
        return line * 128 + column * unit_bytes + byte % unit_bytes & ~(CHUNK_BYTES - 1)

    wavefronts, ideal = counted(matrix_reads(Stage(2, True, 64, 128)), published, "ldmatrix")
    assert wavefronts == ratio * ideal


# --- one function -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row_bytes", "bits"), [(32, 1), (64, 2), (128, 3)])
def test_a_layout_library_agrees(row_bytes: int, bits: int) -> None:
    # CuTe's Swizzle<bits, 4, 3>: bits 4, 5, 6 of the offset by bits 7, 8, 9.
    oracle = Swizzle(bits, 4, 3)
    offsets = range(64 * LINE_BYTES)
    assert [swizzled(offset, row_bytes) for offset in offsets] == [oracle(offset) for offset in offsets]


def test_the_kernels_function_agrees() -> None:
    text = """
#include "tile/panels.cuh"
template <int> __global__ void places(unsigned* d) {
    const unsigned offset = blockIdx.x * blockDim.x + threadIdx.x;
    d[offset] = warptile::swizzled<32>(offset);
    d[offset + 32768] = warptile::swizzled<64>(offset);
    d[offset + 65536] = warptile::swizzled<128>(offset);
}
"""
    places = np.zeros((3, 32768), dtype=np.uint32)
    run_cuda(text, "places<0>", [places], grid=32, block=1024)
    for row_bytes, found in zip(ROW_BYTES, places, strict=True):
        assert found.tolist() == [swizzled(offset, row_bytes) for offset in range(32768)]


@pytest.mark.parametrize(
    "stage", [Stage(2, True, 16, 32), Stage(1, False, 32, 192 * 2), Stage(4, False, 8, 256), Stage(8, True, 64, 256)]
)
@pytest.mark.parametrize("swizzle", [True, False])
def test_panels_lie_where_python_says(stage: Stage, swizzle: bool) -> None:
    element = {1: "char", 2: "short", 4: "float", 8: "double"}[stage.size]
    units = stage.line_bytes // stage.size
    extent, depth = (stage.lines, units) if stage.k_major else (units, stage.lines)
    flags = ", ".join("true" if flag else "false" for flag in (stage.k_major, swizzle))
    text = f"""
#include "tile/panels.cuh"
template <int> __global__ void places(unsigned* d) {{
    using PANELS = warptile::Panels<{element}, {extent}, {depth}, {flags}>;
    static_assert(PANELS::BYTES == {stage.lines * stage.line_bytes}, "no gaps");
    for (unsigned byte = threadIdx.x; byte < {stage.line_bytes}; byte += blockDim.x)
        d[blockIdx.x * {stage.line_bytes} + byte] = PANELS::offset(blockIdx.x, byte);
}}
"""
    places = np.zeros((stage.lines, stage.line_bytes), dtype=np.uint32)
    run_cuda(text, "places<0>", [places], grid=stage.lines, block=128)
    expected = [
        [(stage.swizzled if swizzle else stage.plain)(line, byte) for byte in range(stage.line_bytes)]
        for line in range(stage.lines)
    ]
    assert places.tolist() == expected
    assert sorted(places.ravel().tolist()) == list(range(places.size))
