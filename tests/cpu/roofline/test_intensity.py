"""The formulas of the roofline, with values computed by hand."""

import pytest

from warptile.dtypes import DTYPES
from warptile.problem import Problem
from warptile.roofline.intensity import CUDA, TENSOR, ideal_bytes, ideal_intensity, limits, tile_intensity
from warptile.roofline.own_problem import roofs_over
from warptile.roofline.published_gpus import DRAM, GPUS, L2, SHARED


def problem(m, n, k, dtype="float16", out=None, **more):
    element = DTYPES[dtype]
    accumulator = DTYPES[element.accumulators[0]]
    return Problem.dense(m, n, k, element, out=DTYPES[out or dtype], accumulator=accumulator, **more)


def test_a_tiles_intensity_does_not_depend_on_k():
    assert tile_intensity(256, 256, 2) == 128
    assert tile_intensity(128, 128, 2) == 64
    assert tile_intensity(128, 256, 2) == pytest.approx(85.333, abs=1e-3)
    assert tile_intensity(128, 128, 1) == 128
    assert tile_intensity(128, 128, 2, a_density=0.5) == pytest.approx(2 * 128 * 128 / (192 * 2))


def test_ideal_bytes_are_every_matrix_once():
    assert ideal_bytes(problem(2, 3, 4)) == 2 * (2 * 4 + 4 * 3 + 2 * 3)
    assert ideal_bytes(problem(2, 3, 4, out="float32")) == 2 * (8 + 12) + 4 * 6
    assert ideal_bytes(problem(2, 3, 4, with_c=True)) == 2 * (8 + 12 + 2 * 6)
    assert ideal_bytes(problem(2, 3, 4, batch=5)) == 5 * 2 * (8 + 12 + 6)
    assert ideal_bytes(problem(16, 8, 32, sparse=True)) == 2 * (16 * 32 // 2 + 32 * 8 + 16 * 8)
    assert ideal_intensity(problem(4096, 4096, 4096)) == pytest.approx(2 * 4096**3 / (3 * 2 * 4096**2))
    assert ideal_intensity(problem(0, 8, 8)) == 0.0


def test_the_lowest_roof_comes_first():
    gpu = GPUS["A100"]
    found = limits(gpu, {SHARED: 10.0, L2: 100.0, DRAM: 100.0}, TENSOR, 312.0)
    assert [limit.name for limit in found] == [SHARED, DRAM, TENSOR, L2]
    assert [limit.tflops for limit in found] == pytest.approx([194.9184, 203.9, 312.0, 721.92])


def test_a_level_without_a_bandwidth_or_an_intensity_is_no_roof():
    assert [limit.name for limit in limits(GPUS["H100"], {L2: 1.0, DRAM: 10.0}, CUDA, 66.9)] == [DRAM, CUDA]
    assert [limit.name for limit in limits(GPUS["A100"], {}, TENSOR, 312.0)] == [TENSOR]


def test_a_thin_problem_is_limited_by_dram_and_a_square_one_by_arithmetic():
    thin = {each.gpu.name: each for each in roofs_over(problem(1, 8192, 8192), GPUS.values())}
    assert {each.bound for each in thin.values()} == {DRAM}
    moved = 2 * (8192 + 8192 * 8192 + 8192)
    assert thin["H200"].milliseconds == pytest.approx(1e3 * moved / 4.8e12)
    square = {each.gpu.name: each for each in roofs_over(problem(8192, 8192, 8192), GPUS.values())}
    assert {each.bound for each in square.values()} == {TENSOR}
    assert square["T4"].milliseconds == pytest.approx(1e3 * 2 * 8192**3 / 65e12)
    assert square["T4"].ridges == pytest.approx({SHARED: 65 / 4.0704, L2: 65 / 1.27, DRAM: 65 / 0.32})


def test_gpus_without_units_for_a_type_are_left_out():
    assert [each.gpu.name for each in roofs_over(problem(64, 64, 64, "float8_e4m3", "float32"), GPUS.values())] == [
        "L40S", "H100", "H200", "B200",
    ]  # fmt: skip
    assert {each.bound for each in roofs_over(problem(4096, 4096, 4096, "float32"), GPUS.values())} == {CUDA}
    assert roofs_over(problem(64, 64, 64), [GPUS["B200"]])[0].ridges.keys() == {SHARED, DRAM}
