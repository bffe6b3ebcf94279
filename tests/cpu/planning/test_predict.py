"""Predictions: each formula against arithmetic done by hand, and the order that they must keep."""

import pytest

from simt_product import problem
from warptile.arch import H200
from warptile.device import REFERENCE
from warptile.dtypes import dtype
from warptile.planning.cost_bounds import predict, resident_ctas, row_conflict_ratio, tensor_rate
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.mma import MMA_RUNGS

LARGE = (4096, 4096, 4096)
MMA = {rung.name: rung for rung in MMA_RUNGS}


def predicted(name, given, **change):
    rung = MMA.get(name) or RUNGS[name]
    return predict(rung, given, {**rung.default_config(given), **change})


@pytest.mark.parametrize(
    ("pitch_bytes", "ratio"),
    [(256, 8), (64, 4), (272, 1), (80, 1), (128, 8), (16, 1), (32, 2)],
)
def test_rows_that_meet_in_a_bank_group(pitch_bytes, ratio):
    # Row r of a matrix starts in 16-byte group r * pitch / 16 of eight: 256 bytes: always the same; 64: two of eight.
    assert row_conflict_ratio(pitch_bytes) == ratio


def test_naive_is_bound_by_two_loads_for_each_multiply_add():
    prediction = predicted("simt-naive", problem(*LARGE, "float32"))
    assert prediction.bound == "shared"
    # Two wavefronts for 32 multiply-adds, one wavefront a clock: 32 FLOP a clock and multiprocessor.
    limit = 32 * H200.multiprocessors * H200.clock_hz / 1e12
    assert prediction.tflops == pytest.approx(limit, rel=0.01)


def test_l2_traffic_is_that_of_the_block_tiles():
    prediction = predicted("simt-warptile", problem(*LARGE, "float32"))
    # 32 x 32 blocks of 128 x 128, each 256 * 4096 floats.
    assert prediction.terms["l2"] == pytest.approx(1024 * 256 * 4096 * 4 / H200.l2_bytes_per_s * 1e3)


def test_warptile_is_bound_by_issuing_multiply_adds():
    prediction = predicted("simt-warptile", problem(*LARGE, "float32"))
    assert prediction.bound == "issue"
    peak = 128 * 2 * H200.multiprocessors * H200.clock_hz / 1e12
    assert 0.8 * peak < prediction.tflops < peak


def test_tensor_time_is_flops_over_rate_and_whole_waves():
    prediction = predicted("wmma-padded", problem(*LARGE, "float16"))
    # 1024 blocks on 132 multiprocessors: the busiest has 8 where the mean is 7.76.
    ideal_ms = 2 * 4096**3 / (H200.tensor_tflops["float16"] * 1e12) * 1e3
    assert prediction.terms["tensor"] == pytest.approx(ideal_ms * 8 / (1024 / 132))


def test_padding_takes_conflicts_out_of_the_prediction():
    given = problem(*LARGE, "float16")
    assert predicted("wmma-async", given).terms["shared"] > 2 * predicted("wmma-padded", given).terms["shared"]


def test_operands_that_fit_in_l2_come_from_dram_once():
    given = problem(1024, 1024, 1024, "float32")
    prediction = predicted("simt-warptile", given)
    assert prediction.terms["dram"] == pytest.approx(3 * 1024 * 1024 * 4 / H200.dram_bytes_per_s * 1e3)


def test_a_matrix_times_a_vector_is_not_predicted_at_peak():
    prediction = predicted("simt-warptile", problem(4096, 1, 4096, "float32"))
    assert prediction.tflops < 2


def test_reading_c_costs_dram_time():
    without = predicted("simt-warptile", problem(*LARGE, "float32"))
    with_c = predicted("simt-warptile", problem(*LARGE, "float32", with_c=True))
    more_ms = 4096 * 4096 * 4 / H200.dram_bytes_per_s * 1e3
    assert with_c.terms["dram"] - without.terms["dram"] == pytest.approx(more_ms)


@pytest.mark.parametrize("shape", [(1, 1, 1), (193, 161, 97), LARGE, (7, 5, 0), (16, 28672, 4096)])
@pytest.mark.parametrize("name", list(RUNGS))
def test_every_rung_has_a_prediction(name, shape):
    given = problem(*shape, "float16", accumulator="float16" if name == "simt-half2" else None)
    prediction = predicted(name, given)
    assert prediction.arch == "H200"
    resources = {each: time_ms for each, time_ms in prediction.terms.items() if each not in ("repacking", "launch")}
    assert prediction.bound == max(resources, key=resources.__getitem__)
    fused_repacking_ms = prediction.terms.get("repacking", 0.0) + prediction.terms.get("launch", H200.launch_s * 1e3)
    product_ms = prediction.time_ms - fused_repacking_ms
    if not RUNGS[name].estimates:
        assert product_ms == pytest.approx(max(resources.values()))
        assert ("tensor" in prediction.terms) == (RUNGS[name].family != "simt")
    else:
        assert 0.999 * max(resources.values()) < product_ms < 1.001 * sum(resources.values())
    assert prediction.tflops == pytest.approx(given.flops / prediction.time_ms / 1e9)


def test_an_empty_product_takes_no_time():
    assert predicted("simt-naive", problem(0, 4, 4, "float32")).time_ms == 0


def test_the_ladder_is_predicted_to_climb():
    given = problem(*LARGE, "float16")
    names = ["simt-naive", "simt-shared", "simt-warptile", "wmma-async", "wmma-padded", "wmma-multistage", "wmma-final"]
    times = [predicted(name, given).time_ms for name in names]
    assert times == sorted(times, reverse=True)


def test_resident_ctas_follow_the_scarcest_resource():
    given = problem(*LARGE, "float32")
    warptile = RUNGS["simt-warptile"]
    config = dict(warptile.default_config(given))
    # 128 accumulators: 232 registers of 128 threads, so 65536 / 29696 = 2 blocks; 3 stages take 50 KB: 4 would fit.
    assert resident_ctas(warptile, warptile.resolve(given, config), REFERENCE) == 2
    # 8 stages take 133 KB of 228.
    assert resident_ctas(warptile, warptile.resolve(given, {**config, "STAGES": 8}), REFERENCE) == 1
    # 256 threads of at most 64 warps: 8 blocks, whatever else.
    naive = RUNGS["simt-naive"]
    assert resident_ctas(naive, naive.resolve(given, {"BM": 8, "BN": 32}), REFERENCE) <= 8


# --- mma.sync --------------------------------------------------------------------------------------------------------


def test_the_swizzle_takes_eight_way_conflicts_out_of_the_prediction():
    given = problem(*LARGE, "float16", b_major="col")
    before, after = predicted("mma-vectorized", given), predicted("mma-swizzled", given)
    # A block reads (64 + 32) x 64 halves for each of 8 warps, and copies (128 + 128) x 64 in and out of the data path:
    # 98304 / 128 wavefronts of reads, 8 times with rows 128 bytes apart; 32768 / 128 twice for the copies.
    reads, copies = 8 * 96 * 64 * 2 / 128, 2 * 256 * 64 * 2 / 128
    assert before.terms["shared"] / after.terms["shared"] == pytest.approx((8 * reads + copies) / (reads + copies))


@pytest.mark.parametrize(("a_major", "b_major"), [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")])
def test_swizzled_panels_cost_the_same_in_every_major(a_major, b_major):
    element = dtype("float16")
    given = Problem.dense(*LARGE, element, out=element, accumulator=dtype("float32"), a_major=a_major, b_major=b_major)
    same = predicted("mma-multistage", problem(*LARGE, "float16", out="float16"))
    assert predicted("mma-multistage", given).terms == pytest.approx(same.terms)


@pytest.mark.parametrize(
    ("element", "shape", "rate"),
    [("float16", {}, 647), ("float64", {}, 66), ("float64", {"FM": 8, "FK": 4}, 33), ("float8_e4m3", {}, 647)],
)
def test_an_instruction_has_its_own_rate(element, shape, rate):
    given = problem(*LARGE, element, out="float32" if element == "float8_e4m3" else None)
    rung = MMA["mma-multistage"]
    assert tensor_rate(rung, given, {**rung.default_config(given), **shape}, H200) == rate
    assert H200.tensor_rate("wmma", "float64") == 33


def test_unpacking_float8_is_issued_too():
    given = problem(*LARGE, "float8_e4m3", out="float32")
    tile = RUNGS["mma-multistage"].default_config(given)
    eighth = predicted("mma-multistage", given)
    plain = predicted("mma-multistage", problem(*LARGE, "int8"), **tile)
    # 13 instructions where int8 has one: 16 x 8 x 32 multiply-adds each, on 132 multiprocessors of 4 a clock.
    more = 12 * 4096**3 / (16 * 8 * 32) / 4 * (8 / (1024 / 132)) / 132 / H200.clock_hz * 1e3
    assert eighth.terms["issue"] - plain.terms["issue"] == pytest.approx(more)


def test_mechanisms_are_those_of_the_rungs():
    for rung in RUNGS.values():
        if rung.family == "wgmma":
            continue  # cost_bounds_wgmma counts its bytes
        assert (rung.mechanism.a_density < 1) == rung.sparse
        assert (rung.mechanism.packed == 2) == ("half2" in rung.name)
