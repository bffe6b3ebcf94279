"""Copies of operands on the emulator: every unit, size, stride and offset, between guard bands, without races."""

from functools import lru_cache

import numpy as np
import pytest

from operand_copy import UNITS, copy, expected, moved, numbers, source_text
from warptile.compile import compile_source
from warptile.emulator import emulate
from warptile.launch import Access
from warptile.ptx import parse

UNWRITTEN = 0xA5


@lru_cache
def kernel(source):
    made = compile_source(source, "sm_90a")
    return made.entry, parse(made.ptx.decode())


def run(what, source, offset_bytes=0):
    """The lines of the target after a launch, and the emulator's report. The source ends with its last unit, and the
    emulator refuses reads behind it."""
    entry, module = kernel(source_text(what))
    target = np.full(what.target_bytes, UNWRITTEN, np.uint8).view(UNITS[what.unit_bytes])
    target = target.reshape(what.target_lines, what.target_stride)
    accesses = {what.target: Access(writes=True, complete=what.written)}
    spec = moved(what.launch(entry), offset_bytes)
    report = emulate(module, spec, {"A": source, what.target: target}, accesses=accesses, arch="sm_90a")
    return target, report


def assert_copied(lines, units, stride, unit_bytes, transposed, offset_units=0):
    what = copy(lines, units, stride, unit_bytes, transposed, offset_units)
    count = (what.lines - 1) * what.source_stride + what.units
    source = numbers(offset_units + count, what.unit_bytes)
    target, report = run(what, source, offset_units * what.unit_bytes)
    assert np.array_equal(target[:, : what.target_units], expected(what, source[offset_units:]))
    filled = -(-what.target_units * what.unit_bytes // 16) * 16 // what.unit_bytes
    assert np.all(np.ascontiguousarray(target[:, filled:]).view(np.uint8) == UNWRITTEN)
    return report


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("unit_bytes", UNITS)
@pytest.mark.parametrize(
    ("lines", "units", "stride", "offset"),
    [
        (1, 1, 1, 0),
        (5, 37, 41, 1),
        (130, 131, 133, 3),
        (3, 700, 701, 1),
        (200, 16, 16, 0),
        (9, 64, 64, 7),
        (33, 70, 72, 16),
    ],
)
def test_every_bit_arrives_and_nothing_else_changes(transposed, unit_bytes, lines, units, stride, offset):
    assert_copied(lines, units, stride, unit_bytes, transposed, offset)


@pytest.mark.parametrize("seed", range(24))
def test_random_sizes_strides_and_offsets(seed):
    draw = np.random.default_rng(seed).integers
    unit_bytes, transposed = (1, 2, 4)[seed % 3], bool(seed // 3 % 2)
    lines, units = int(draw(1, 180)), int(draw(1, 260))
    stride = units + int(draw(0, 20))
    assert_copied(lines, units, stride, unit_bytes, transposed, int(draw(0, 17)))


@pytest.mark.parametrize("unit_bytes", UNITS)
def test_a_transposition_has_no_bank_conflicts(unit_bytes):
    counters = assert_copied(128, 128, 131, unit_bytes, True, 1).counters
    assert counters["shared_load_wavefronts"] > 0
    assert counters["shared_load_conflict_ratio"] == 1
    assert counters["shared_store_conflict_ratio"] == 1


@pytest.mark.parametrize("transposed", [False, True])
def test_more_lines_than_a_grid_has_blocks_are_taken_in_turn(transposed, monkeypatch):
    monkeypatch.setattr("warptile.rungs.copies.MAX_GRID_Y", 2)
    assert copy(300, 20, 21, 2, transposed).launch("entry").grid[1] == 2
    assert_copied(300, 20, 21, 2, transposed, 1)


def test_stores_are_16_bytes_and_so_are_loads_away_from_the_ends_of_lines():
    counters = assert_copied(64, 4096, 4097, 2, False, 1).counters
    warps = 64 * 4096 * 2 / 16 / 32
    assert counters["global_store_requests"] == warps
    assert counters["global_store_bytes"] == 64 * 4096 * 2
    assert counters["global_load_requests"] < 2.1 * warps


def test_an_aligned_source_is_read_once():
    counters = assert_copied(64, 4096, 4104, 2, False, 8).counters
    assert counters["global_load_requests"] == 64 * 4096 * 2 / 16 / 32


@pytest.mark.parametrize("transposed", [False, True])
def test_where_nothing_is_to_be_moved_there_are_no_blocks(transposed):
    assert 0 in copy(0, 5, 5, 2, transposed).launch("entry").grid
    assert 0 in copy(5, 0, 1, 2, transposed).launch("entry").grid


@pytest.mark.parametrize(
    ("lines", "units", "unit_bytes", "block"),
    [
        (4095, 4095, 2, (32, 8)),
        (16384, 100, 2, (16, 16)),
        (1, 70000, 2, (256, 1)),
        (1, 1, 1, (1, 1)),
        (9, 999, 1, (64, 4)),
    ],
)
def test_threads_lie_along_lines_as_far_as_these_go(lines, units, unit_bytes, block):
    assert copy(lines, units, units, unit_bytes, False).launch("entry").block == (*block, 1)
