"""Bytes of rungs by memory level: from counters, scaled to other extents, and predicted where nothing was counted."""

from dataclasses import replace

import msgspec
import pytest

from recorded import cell, profile
from warptile.bench.profiling.ncu_metrics import HBM_BYTES, L2_TO_SM
from warptile.bench.protocol.records import committed
from warptile.bench.protocol.workloads import BF16, F16_F32, F32, SIZES, square, to_problem
from warptile.bench.report.record_lookup import RecordLookup
from warptile.bench.report.rung_traffic import Moved, moved, traffic
from warptile.roofline.intensity import tile_intensity
from warptile.rungs import RUNGS

COUNTERS = {
    "tensor_operand_wavefronts": 5.0, "global_load_sectors": 100.0, "global_store_sectors": 7.0,
    "tma_load_sectors": 40.0, "tma_store_sectors": 6.0, "tma_reduce_sectors": 1.0,
}  # fmt: skip
OPCODES = {
    "LDS": {"shared_wavefronts": 10.0, "shared_wavefronts_ideal": 10.0},
    "STS": {"shared_wavefronts": 2.0, "shared_wavefronts_ideal": 2.0},
    "LDGSTS": {"shared_wavefronts": 3.0, "shared_wavefronts_ideal": 3.0},
    "LDG": {"l1_tag_requests": 11.0}, "STG": {"l1_tag_requests": 4.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def lookup():
    return RecordLookup()


def problem_of(size):
    return to_problem(F16_F32.key(size, size, size))


def test_wavefronts_and_lines_take_128_bytes_and_tma_its_sectors():
    found = moved(profile("wmma-final", counters=COUNTERS, by_opcode=OPCODES))
    assert found["shared"] == Moved(128 * (10 + 2 + 3 + 5) + 32 * 40 + 128 * 11, 32 * 7 + 128 * 4)
    assert found["l2"] == Moved(32 * 40 + 32 * 100, 32 * 7 + 32 * 7)


def test_global_accesses_of_stream_k_are_partial_accumulators():
    found = moved(profile("wgmma-stream-k", counters=COUNTERS, by_opcode=OPCODES))
    assert found["shared"] == Moved(128 * 20 + 32 * 40, 32 * 7, 128 * 15)
    assert found["l2"] == Moved(32 * 40, 32 * 7, 32 * 107)


def test_operands_grow_with_mnk_d_with_mn_and_partial_sums_do_not():
    parts = Moved(1000.0, 100.0, 10.0)
    counted, wanted = problem_of(2048), problem_of(4096)
    assert parts.at(counted, counted) == 1110
    assert parts.at(counted, wanted) == 8 * 1000 + 4 * 100 + 10
    assert parts.at(counted, replace(counted, k=4096)) == 2 * 1000 + 100 + 10


def test_the_counted_bytes_of_a_staged_rung_are_its_tiles(lookup):
    """What is counted at L2 is each CTA's operands once, and D: the formula of the tile gives it exactly."""
    for name in ("wmma-shared", "mma-final", "wgmma-store"):
        each = lookup.cell(name, BF16 if name.startswith("wgmma") else F16_F32, 2048)
        found = traffic(each, lookup)
        key, config = each.problem, each.config
        operands = 2 * key.m * key.n * key.k / tile_intensity(config["BM"], config["BN"], 2)
        assert found.l2 == pytest.approx(operands + 2 * key.m * key.n, rel=0.02), name
        assert "l2" not in found.predicted


def test_scaled_bytes_are_what_was_counted_at_the_larger_size(lookup):
    """The counters of wgmma-final at 4096^3, and those at 2048^3 scaled to it."""
    each = lookup.cell("wgmma-final", BF16, 4096)
    alone = lookup.counted_alone("wgmma-final", each.problem, each.config)
    found = traffic(each, lookup)
    d = 2 * each.problem.m * each.problem.n
    assert found.l2 - d == pytest.approx(alone.total(L2_TO_SM[1]), rel=1e-3)
    assert found.dram == alone.total(*HBM_BYTES)
    assert found.predicted == ()


def test_dram_is_predicted_where_nothing_was_counted(lookup):
    found = traffic(lookup.cell("wmma-final", F16_F32, 4096), lookup)
    assert found.predicted == ("dram",)
    assert 3 * 2 * 4096**2 <= found.dram < found.l2


def test_a_rung_that_stages_nothing_has_a_predicted_l2(lookup):
    for name, group in (("wmma-naive", F16_F32), ("simt-naive", F32)):
        found = traffic(lookup.cell(name, group, 4096), lookup)
        assert "l2" in found.predicted, name
        assert "shared" not in found.predicted, name


def test_other_tiles_than_those_that_were_counted_are_predicted(lookup):
    each = lookup.cell("wgmma-store", BF16, 4096)
    smaller = msgspec.structs.replace(each, config={**each.config, "BN": 128})
    found = traffic(smaller, lookup)
    assert {"l2", "dram"} <= set(found.predicted)
    assert found.l2 > traffic(each, lookup).l2


def test_a_configuration_of_another_time_has_no_bytes(lookup):
    assert traffic(cell(config={"BM": 128}), RecordLookup([])) is None


def test_without_profiles_everything_is_predicted():
    each = RecordLookup().cell("wmma-final", F16_F32, 4096)
    found = traffic(each, RecordLookup([]))
    assert found.predicted == ("dram", "l2", "shared")
    counted = traffic(each, RecordLookup(committed()))
    assert found.l2 == pytest.approx(counted.l2, rel=0.15)  # padded rows are copied in more sectors
    assert 0.5 * counted.shared < found.shared < counted.shared  # the cost model has no wavefronts of copies


def test_a_sparse_a_is_half_as_many_bytes(lookup):
    each = lookup.cell("wgmma-sparse", BF16, 4096)
    counted, predicted = traffic(each, lookup), traffic(each, RecordLookup([]))
    assert "l2" not in counted.predicted
    assert predicted.l2 == pytest.approx(counted.l2, rel=0.15)  # metadata is counted


def test_every_sustained_result_has_bytes_at_l2_and_dram(lookup):
    for name, rung in RUNGS.items():
        for size in SIZES:
            each = lookup.cell(name, BF16 if rung.family == "wgmma" else F16_F32, size)
            if each is not None:
                found = traffic(each, lookup)
                assert found.l2 > 0, (name, size)
                assert found.dram > 0, (name, size)
                assert square(rung, BF16 if rung.family == "wgmma" else F16_F32, size) == each.problem
