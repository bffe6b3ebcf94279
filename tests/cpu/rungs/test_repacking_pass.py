"""The repacking pass on the emulator: every unit, size, stride and offset, between guard bands, without races."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from covering import covering, examples
from operand_copy import UNITS, copy, expected, moved, numbers, source_text
from warptile.arch import H200
from warptile.codegen.nvrtc import compile_ptx
from warptile.emulator import emulate
from warptile.launch.access import Access
from warptile.ptx import parse
from warptile.rungs import repack as repack_module
from warptile.rungs.repack import launch, name_expression

UNWRITTEN = 0xA5


@lru_cache
def kernel(source):
    compiled = compile_ptx(source, "sm_90a")
    return compiled.entry, parse(compiled.ptx.decode())


def assert_repacked(*repacks, offset_units=0):
    """One launch that repacks these operands. The emulator refuses reads past the last unit of a source."""
    entry, module = kernel(source_text(*repacks))
    sources, targets = {}, {}
    for what in repacks:
        count = (what.lines - 1) * what.source_stride + what.units
        sources[what.source] = numbers(offset_units + count, what.unit_bytes)
        target = np.full(what.target_bytes, UNWRITTEN, np.uint8).view(UNITS[what.unit_bytes])
        targets[what.target] = target.reshape(what.target_lines, what.target_stride)
    accesses = {what.target: Access(writes=True, complete=what.written) for what in repacks}
    spec = moved(launch(repacks, entry), **{what.source: offset_units * what.unit_bytes for what in repacks})
    report = emulate(module, spec, sources | targets, accesses=accesses, arch="sm_90a")
    for what in repacks:
        target = targets[what.target]
        assert np.array_equal(target[:, : what.target_units], expected(what, sources[what.source][offset_units:]))
        filled = -(-what.target_units * what.unit_bytes // 16) * 16 // what.unit_bytes
        assert np.all(np.ascontiguousarray(target[:, filled:]).view(np.uint8) == UNWRITTEN)
    return report


def assert_one(lines, units, stride, unit_bytes, transposed, offset_units=0):
    what = copy(lines, units, stride, unit_bytes, transposed, offset_units)
    return assert_repacked(what, offset_units=offset_units)


SHAPES = (
    (1, 1, 1, 0),
    (5, 37, 41, 1),
    (130, 131, 133, 3),
    (3, 700, 701, 1),
    (200, 16, 16, 0),
    (9, 64, 64, 7),
    (33, 70, 72, 16),
)


@pytest.mark.parametrize(
    ("lines", "units", "stride", "offset", "unit_bytes", "transposed"),
    [(*shape, *how) for shape, *how in covering(SHAPES, tuple(UNITS), (False, True), pairs=((1, 2),))],
)
def test_every_bit_is_repacked_and_nothing_else_changes(transposed, unit_bytes, lines, units, stride, offset):
    assert_one(lines, units, stride, unit_bytes, transposed, offset)


@pytest.mark.parametrize("seed", range(examples(24)))
def test_random_sizes_strides_and_offsets(seed):
    draw = np.random.default_rng(seed).integers
    unit_bytes, transposed = (1, 2, 4)[seed % 3], bool(seed // 3 % 2)
    lines, units = int(draw(1, 180)), int(draw(1, 260))
    stride = units + int(draw(0, 20))
    assert_one(lines, units, stride, unit_bytes, transposed, int(draw(0, 17)))


@pytest.mark.parametrize("unit_bytes", UNITS)
def test_a_transposition_has_no_bank_conflicts_but_around_the_ends_of_groups(unit_bytes):
    counters = assert_one(128, 128, 131, unit_bytes, True, 1).counters
    assert counters["shared_load_wavefronts"] > 0
    assert counters["shared_load_conflict_ratio"] == 1
    assert counters["shared_store_conflict_ratio"] < 1.12


def test_a_transposition_reads_each_aligned_chunk_of_a_line_once():
    counters = assert_one(128, 4096, 4097, 1, True, 1).counters
    assert counters["global_load_bytes"] < 1.13 * 128 * 4096


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, True)])
def test_two_operands_are_repacked_by_one_launch(transposed):
    repacks = (copy(70, 130, 133, 4, transposed[0], 3), copy(200, 37, 41, 4, transposed[1], 3, "B"))
    assert launch(repacks, "entry").grid == (sum(each.tiles for each in repacks), 1, 1)
    assert_repacked(*repacks, offset_units=3)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_source_is_evict_first_where_only_the_target_fits_into_l2(transposed, monkeypatch):
    what = copy(37, 130, 131, 2, transposed, 1)
    for l2_bytes, once in ((what.target_bytes - 1, "false"), (what.target_bytes, "true"), (what.moved_bytes, "false")):
        monkeypatch.setattr(repack_module, "H200", replace(H200, l2_bytes=l2_bytes))
        assert name_expression([what]).endswith(f", {once}>>")
        assert_repacked(what, offset_units=1)


def test_stores_are_16_bytes_and_so_are_loads_away_from_the_ends_of_lines():
    counters = assert_one(64, 4096, 4097, 2, False, 1).counters
    warps = 64 * 4096 * 2 / 16 / 32
    assert counters["global_store_requests"] == warps
    assert counters["global_store_bytes"] == 64 * 4096 * 2
    assert counters["global_load_requests"] < 2.1 * warps


def test_an_aligned_source_is_read_once():
    counters = assert_one(64, 4096, 4104, 2, False, 8).counters
    assert counters["global_load_requests"] == 64 * 4096 * 2 / 16 / 32


@pytest.mark.parametrize("transposed", [False, True])
def test_an_empty_operand_has_an_empty_grid(transposed):
    assert 0 in launch([copy(0, 5, 5, 2, transposed)], "entry").grid
    assert 0 in launch([copy(5, 0, 1, 2, transposed)], "entry").grid


@pytest.mark.parametrize(
    ("lines", "units", "unit_bytes", "along"),
    [(4095, 4095, 2, 32), (16384, 100, 2, 16), (1, 70000, 2, 256), (1, 1, 1, 1), (9, 999, 1, 32)],
)
def test_threads_along_a_line(lines, units, unit_bytes, along):
    assert copy(lines, units, units, unit_bytes, False).threads_along == along
