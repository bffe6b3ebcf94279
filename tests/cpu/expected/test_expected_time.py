"""Expected times: of every rung, and as the records and the device ask."""

from dataclasses import replace

import pytest

from simt_product import problem
from warptile.arch import H200
from warptile.device import REFERENCE
from warptile.errors import UnsupportedError
from warptile.expected.expected_time import expected_time, prepared
from warptile.expected.time_constants import shipped
from warptile.ladder import plan_for
from warptile.planning.plan import make_plan
from warptile.rungs import RUNGS
from warptile.runtime.execute import choose_backend

SHAPES = [(1, 1, 1), (193, 161, 97), (4096, 4096, 4096), (7, 5, 0), (16, 28672, 4096)]


def expected(name, given, **options):
    rung = RUNGS[name]
    return expected_time(rung, given, rung.default_config(given), **options)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", list(RUNGS))
def test_every_rung_has_an_expected_time(name, shape):
    given = problem(*shape, "float16", accumulator="float16" if name == "simt-half2" else None)
    found = expected(name, given)
    assert 0 < found.time_ms < 1e4
    assert found.tflops == pytest.approx(given.flops / found.time_ms / 1e9)
    assert found.arch == "H200"
    if found.clock_mhz is not None:
        assert 900 < found.clock_mhz <= shipped().constants.boost_mhz
    # The larger of SM and DRAM at the boost clock, at least, and the launch.
    if not RUNGS[name].estimates:
        terms = dict(found.terms)
        assert found.time_ms >= max(terms.pop("sm"), terms.pop("dram")) + sum(terms.values()) - 1e-9


@pytest.mark.parametrize("name", [name for name in RUNGS if name != "wgmma-split"])
def test_every_type_of_a_rung_has_an_expected_time(name):
    for dtype in RUNGS[name].dtypes:
        try:
            plan = plan_for(RUNGS[name], (256, 256, 256), choose_backend("emulator"), dtype)
        except UnsupportedError:
            continue
        assert 0 < expected_time(plan.rung, plan.problem, plan.config).time_ms < 1


@pytest.mark.parametrize("name", ["simt-warptile", "wmma-final", "mma-final", "wgmma-store", "wgmma-stream-k"])
def test_no_rung_is_faster_than_its_units(name):
    given = problem(8192, 8192, 8192, "float32" if name.startswith("simt") else "float16")
    found = expected(name, given, sustained=False)
    peak = 2 * 128 * 132 * 1.98e-3 if name.startswith("simt") else 2 * 2048 * 132 * 1.98e-3
    assert found.tflops < peak


def test_power_lowers_the_clock_of_what_keeps_tensor_cores_busy():
    given = problem(8192, 8192, 8192, "float16")
    hot, cool = expected("mma-final", given), expected("mma-final", given, sustained=False)
    assert hot.clock_mhz < 1800 < cool.clock_mhz
    assert cool.clock_mhz == shipped().constants.boost_mhz
    assert hot.time_ms > cool.time_ms
    waiting = expected("mma-naive", given)
    assert waiting.clock_mhz == cool.clock_mhz
    assert waiting.time_ms == expected("mma-naive", given, sustained=False).time_ms


def test_bfloat16_takes_less_power():
    times = [
        expected("wgmma-store", problem(8192, 8192, 8192, element, out=element, b_major="col")).time_ms
        for element in ("bfloat16", "float16")
    ]
    assert times[0] < times[1]


def test_fewer_sms_take_longer():
    given = problem(4096, 4096, 4096, "float16")
    rung = RUNGS["mma-final"]
    config = rung.default_config(given)
    fewer = expected_time(rung, given, config, replace(REFERENCE, multiprocessors=66))
    assert fewer.time_ms > 1.3 * expected_time(rung, given, config).time_ms


def test_operands_that_fit_in_l2_come_from_dram_once():
    given = problem(1024, 1024, 1024, "float32")
    rung = RUNGS["simt-warptile"]
    shape = prepared(rung, given, rung.default_config(given), REFERENCE, shipped().work).shape
    assert shape.dram_bytes == 3 * 1024 * 1024 * 4
    large = problem(16384, 16384, 16384, "float32")
    shape = prepared(rung, large, rung.default_config(large), REFERENCE, shipped().work).shape
    assert shape.dram_bytes > 2 * 3 * 16384**2 * 4


def test_repacking_is_part_of_the_time():
    aligned = make_plan(problem(4096, 4096, 4096, "bfloat16", out="bfloat16"), rung="wgmma-store")
    odd = make_plan(problem(4096, 4096, 4095, "bfloat16", out="bfloat16"), rung="wgmma-store")
    assert odd.kernel.copies
    more = expected_time(odd.rung, odd.problem, odd.config)
    assert more.terms["repacking"] > 0
    assert more.time_ms > expected_time(aligned.rung, aligned.problem, aligned.config).time_ms


def test_plans_do_not_depend_on_expected_times():
    """The rates that plans rank by are those of `warptile.arch`; nothing in planning imports this room."""
    given = problem(4096, 4096, 4096, "float16")
    plan = make_plan(given, rung="mma-final")
    assert plan.prediction.terms["tensor"] == pytest.approx(
        4 * 2 * 256 * 128 * 4096 / (H200.tensor_tflops["float16"] * 1e12 / 132) * 1e3
    )
