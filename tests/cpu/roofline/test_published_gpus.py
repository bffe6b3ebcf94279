"""Published figures of GPUs: each has a source, and they fit each other."""

import math

import pytest

from warptile.arch import H200
from warptile.errors import UnsupportedError
from warptile.roofline.published_gpus import DRAM, GPUS, L2, LEVELS, PEAK_NAMES, REFERENCE_GPU, SHARED, published

LANES = {"V100": 64, "T4": 64, "A100": 64, "L40S": 128, "H100": 128, "H200": 128, "B200": 128}
"""FP32 multiply-adds of an SM in a clock: CUDA C++ Programming Guide, "Arithmetic Instructions"."""


def test_the_seven_gpus_are_there_and_the_reference_is_the_one_that_was_measured():
    assert list(GPUS) == ["V100", "T4", "A100", "L40S", "H100", "H200", "B200"]
    assert REFERENCE_GPU.product == H200.name
    assert published("h200") is REFERENCE_GPU


def test_an_unknown_gpu_is_answered_with_those_that_there_are():
    with pytest.raises(UnsupportedError, match=r"got 'B100'; there are figures of V100, T4, .* gpu='H200'"):
        published("B100")


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_every_figure_is_positive_and_says_where_it_is_from(gpu):
    assert {"boost clock", "power limit", "DRAM", "L1/shared", "FP32", "FP16"} <= gpu.figures.keys()
    for name, figure in gpu.figures.items():
        assert figure.value > 0, name
        assert len(figure.source.title) > 5, name
        assert len(figure.source.place) > 5, name
        assert len(figure.where) > 5, name
    assert len(gpu.peaks) >= len({PEAK_NAMES[name] for name in gpu.peaks if name in PEAK_NAMES}) >= 2


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_the_fp32_peak_is_two_operations_a_lane_and_clock(gpu):
    computed = gpu.limits.multiprocessors * LANES[gpu.name] * 2 * gpu.boost_hz.value
    assert gpu.peaks["float32"].value == pytest.approx(computed, rel=0.01)


def test_shared_memory_is_sms_times_bytes_times_clock():
    assert GPUS["A100"].shared.value == pytest.approx(108 * 128 * 1.41e9)
    assert GPUS["T4"].shared.value == pytest.approx(40 * 64 * 1.59e9)
    assert GPUS["T4"].shared.value / 1e12 == pytest.approx(4.07, abs=0.005)
    assert "108 SMs x 128 bytes per clock x 1.41 GHz" in GPUS["A100"].shared.where


def test_ridge_points_are_peak_over_bandwidth():
    assert GPUS["V100"].ridge("float16", DRAM) == pytest.approx(125 / 0.9)
    assert GPUS["T4"].ridge("float16", DRAM) == pytest.approx(65 / 0.32)
    assert GPUS["A100"].ridge("bfloat16", DRAM) == pytest.approx(312 / 2.039)
    assert GPUS["H100"].ridge("float16", DRAM) == pytest.approx(295.3, abs=0.1)
    assert GPUS["H200"].ridge("float16", L2) == pytest.approx(989.5 / 9.78)
    assert GPUS["B200"].ridge("float8_e4m3", DRAM) == pytest.approx(4500 / 7.7)


def test_what_has_no_source_is_missing_and_never_guessed():
    for name in ("H100", "B200"):
        assert GPUS[name].bandwidth(L2) is None
        assert GPUS[name].ridge("float16", L2) is None
        assert "L2" not in GPUS[name].figures
    assert GPUS["V100"].peak("bfloat16") is None
    assert GPUS["T4"].ridge("float8_e4m3", DRAM) is None


def test_sparsity_doubles_the_peak_from_ampere_on():
    assert GPUS["A100"].peak("float16", sparse=True) == 624e12
    assert GPUS["H200"].peak("float16", sparse=True) == 1979e12
    assert GPUS["T4"].peak("float16", sparse=True) is None


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_bandwidths_grow_towards_the_sm(gpu):
    found = [figure.value for level in LEVELS if (figure := gpu.bandwidth(level)) is not None]
    assert found == sorted(found, reverse=True)


def test_what_was_measured_on_the_h200_is_below_what_is_published():
    assert H200.dram_bytes_per_s < REFERENCE_GPU.dram.value
    assert H200.l2_bytes_per_s < REFERENCE_GPU.bandwidth(L2).value
    assert H200.fp32_tflops * 1e12 < REFERENCE_GPU.peaks["float32"].value
    issued = {name: rate for name, rate in H200.wgmma_tflops.items() if REFERENCE_GPU.peak(name) is not None}
    assert {"float16", "bfloat16", "tfloat32", "float8_e4m3", "float8_e5m2", "int8", "uint8"} <= issued.keys()
    for name, rate in issued.items():
        assert rate * 1e12 < REFERENCE_GPU.peak(name), name
    per_clock = H200.shared_bytes_per_clock_per_sm * H200.multiprocessors
    assert math.isclose(REFERENCE_GPU.bandwidth(SHARED).value, per_clock * REFERENCE_GPU.boost_hz.value)
