"""Predictions: each formula against arithmetic done by hand, and the order that they must keep."""

import pytest
from simt_product import problem

from warptile.arch import H200
from warptile.predict import predict, resident_blocks, row_conflict_ratio
from warptile.rungs import RUNGS

LARGE = (4096, 4096, 4096)


def predicted(name, given, **change):
    rung = RUNGS[name]
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
    assert prediction.bound == max(prediction.terms, key=prediction.terms.__getitem__)
    assert prediction.time_ms == pytest.approx(max(prediction.terms.values()) + H200.launch_s * 1e3)
    assert prediction.tflops == pytest.approx(given.flops / prediction.time_ms / 1e9)
    assert ("tensor" in prediction.terms) == (RUNGS[name].family != "simt")


def test_an_empty_product_takes_no_time():
    assert predicted("simt-naive", problem(0, 4, 4, "float32")).time_ms == 0


def test_the_ladder_is_predicted_to_climb():
    given = problem(*LARGE, "float16")
    names = ["simt-naive", "simt-shared", "simt-warptile", "wmma-async", "wmma-padded", "wmma-multistage", "wmma-final"]
    times = [predicted(name, given).time_ms for name in names]
    assert times == sorted(times, reverse=True)


def test_resident_blocks_follow_the_scarcest_resource():
    given = problem(*LARGE, "float32")
    warptile = RUNGS["simt-warptile"]
    config = dict(warptile.default_config(given))
    # 128 accumulators: 232 registers of 128 threads, so 65536 / 29696 = 2 blocks; 3 stages take 50 KB: 4 would fit.
    assert resident_blocks(warptile, given, config, H200) == 2
    # 8 stages take 133 KB of 228.
    assert resident_blocks(warptile, given, {**config, "STAGES": 8}, H200) == 1
    # 256 threads of at most 64 warps: 8 blocks, whatever else.
    assert resident_blocks(RUNGS["simt-naive"], given, {"BM": 8, "BN": 32}, H200) <= 8
