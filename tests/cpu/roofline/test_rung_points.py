"""The rungs as points: which roof is the lowest, and that none is above it without a reason on the page."""

from pathlib import Path

import pytest

from recorded import UNMEASURED
from warptile import measured
from warptile.arch import H200
from warptile.measured import MeasuredProblem, MeasuredRung, MeasuredSource, MeasuredSummary, MeasuredTraffic
from warptile.roofline.intensity import CUDA, TENSOR
from warptile.roofline.published_gpus import DRAM, GPUS, L2, REFERENCE_GPU, SHARED
from warptile.roofline.rung_points import issue_tflops, points, runs_on, sizes, types
from warptile.rungs import RUNGS

PAGE = Path(__file__).parents[3] / "docs" / "roofline.md"

ABOVE = {"wgmma-pingpong": 1.10}
"""Rungs that the page explains, and how far above the roof they may be."""

TOLERANCE = 1.02
"""Of speeds: rounds differ by this much."""


def summary(*results):
    source = MeasuredSource("ladder-1", "NVIDIA H200", "2026-11-20", "sustained")
    return MeasuredSummary(measured.SCHEMA, (source,), results)


TRAFFIC = MeasuredTraffic(1e9, 1e9, 1e8, ("dram",))


def result(rung="wgmma-final", traffic=TRAFFIC, **changes):
    given = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bfloat16", "accumulator": "float32", "out": "bfloat16",
             "a_major": "row", "b_major": "col", "sparse": False}  # fmt: skip
    of = MeasuredProblem(**{**given, **changes})
    return MeasuredRung(rung, of, 0.2, 687.2, 1.0, 1.0, 1.0, 680.0, 0, 1500.0, traffic)


def test_a_point_is_flop_over_bytes_below_the_lowest_roof():
    (point,) = points(summary(result()))
    flops = 2 * 4096**3
    assert point.intensities == pytest.approx({SHARED: flops / 1e9, L2: flops / 1e9, DRAM: flops / 1e8})
    assert (point.bound, point.attainable_tflops) == (TENSOR, H200.wgmma_tflops["bfloat16"])
    assert point.share == pytest.approx(687.2 / H200.wgmma_tflops["bfloat16"])
    assert (point.predicted, point.family, point.source.record) == (("dram",), "wgmma", "ladder-1")


def test_more_bytes_at_l2_make_it_the_lowest_roof():
    (point,) = points(summary(result(traffic=MeasuredTraffic(1e9, 2e9, 1e8, ()))))
    assert point.bound == L2
    assert point.attainable_tflops == pytest.approx(2 * 4096**3 / 2e9 * 9.78)


def test_bytes_that_are_not_known_are_no_roof():
    (point,) = points(summary(result(traffic=MeasuredTraffic(None, 2e9, 1e8, ()))))
    assert SHARED not in point.intensities
    assert points(summary(result(traffic=None))) == []


def test_another_gpu_has_the_same_bytes_and_no_speed():
    (point,) = points(summary(result(rung="simt-warptile", dtype="float32")), GPUS["A100"])
    assert point.intensities[SHARED] == pytest.approx(2 * 4096**3 / 1e9)
    assert (point.bound, point.attainable_tflops) == (CUDA, 19.5)
    assert (point.tflops, point.share, point.sm_clock_mhz) == (None, None, None)


def test_rungs_are_of_gpus_that_have_their_instructions():
    assert runs_on(RUNGS["wgmma-final"], GPUS["H100"])
    assert not any(runs_on(RUNGS["wgmma-final"], GPUS[name]) for name in ("V100", "A100", "L40S", "B200"))
    assert runs_on(RUNGS["wmma-async"], GPUS["A100"])
    assert not runs_on(RUNGS["wmma-async"], GPUS["T4"])
    assert points(summary(result()), GPUS["A100"]) == []


def test_names_types_and_sizes_select():
    found = summary(
        result(), result(m=8192, n=8192, k=8192), result(rung="mma-final", dtype="float16", accumulator="float16"),
        result(rung="mma-final", dtype="float16"),
    )  # fmt: skip
    assert sizes(found) == (4096, 8192)
    assert types(found) == ("bfloat16", "float16")
    assert [point.rung for point in points(found)] == ["mma-final", "wgmma-final"]
    assert [point.rung for point in points(found, names=("wgmma-final",), size=8192)] == ["wgmma-final"]
    (widest,) = points(found, dtype="float16")
    assert widest.problem.accumulator == "float32"


def test_the_ceilings_are_what_instructions_were_measured_to_issue():
    assert issue_tflops(RUNGS["simt-warptile"], "float32") == H200.fp32_tflops
    assert issue_tflops(RUNGS["simt-half2"], "float16") == 2 * H200.fp32_tflops
    assert issue_tflops(RUNGS["wgmma-final"], "bfloat16") == H200.wgmma_tflops["bfloat16"]
    assert issue_tflops(RUNGS["wgmma-sparse"], "bfloat16", sparse=True) == pytest.approx(
        H200.wgmma_tflops["bfloat16"] * H200.sparse_gain
    )
    assert issue_tflops(RUNGS["mma-sparse"], "float16", sparse=True) == H200.sparse_tflops["float16"]
    assert issue_tflops(RUNGS["mma-final"], "float16") == H200.tensor_tflops["float16"]


def test_what_ships_has_every_rung_at_every_level():
    found = {point.rung: point for point in points(measured.summary())}
    assert found.keys() == RUNGS.keys() - set(UNMEASURED)
    for point in found.values():
        assert point.intensities.keys() == {SHARED, L2, DRAM}, point.rung
        assert point.intensities[SHARED] < point.intensities[L2] < point.intensities[DRAM], point.rung


@pytest.mark.parametrize("size", sizes(measured.summary()))
def test_no_rung_is_above_its_roof_but_those_that_the_page_explains(size):
    for dtype in (None, *types(measured.summary())):
        for point in points(measured.summary(), dtype=dtype, size=size):
            assert 0 < point.share <= ABOVE.get(point.rung, TOLERANCE), (point.rung, dtype)
            if point.share > 1:
                assert f"`{point.rung}`" in PAGE.read_text().split("### Above the roof")[1]


def test_no_rung_runs_faster_than_its_instruction_or_dram_allow_at_all():
    for size in sizes(measured.summary()):
        for point in points(measured.summary(), size=size):
            hard = [limit.tflops for limit in point.limits if limit.name in (TENSOR, CUDA, DRAM, SHARED)]
            assert point.tflops <= min(hard), (point.rung, size)


def test_which_roof_limits_which_family():
    found = {point.rung: point.bound for point in points(measured.summary(), REFERENCE_GPU)}
    assert {found[name] for name in ("simt-naive", "wmma-naive", "wmma-padded", "mma-vectorized")} == {SHARED}
    assert {found[name] for name in ("simt-warptile", "simt-half2")} == {CUDA}
    assert {found[name] for name in ("mma-final", "mma-sparse", "mma-tma-swizzled")} == {TENSOR}
    assert {bound for name, bound in found.items() if name.startswith("wgmma")} == {L2}
    assert DRAM not in found.values()
