"""Clocks of mainloops, each against arithmetic done by hand."""

import pytest

from simt_product import problem
from warptile.arch import H200
from warptile.device import REFERENCE
from warptile.expected.combined_limits import overlapped, share_kept, shared_unit_clocks
from warptile.expected.expected_time import prepared, time_of
from warptile.expected.kernel_work import k_tile, k_tile_by_formula, measured_kernel
from warptile.expected.time_constants import shipped
from warptile.expected.warp_mainloop import Mainloop, warp_mainloop
from warptile.rungs import RUNGS

MODEL = shipped()
LARGE = (4096, 4096, 4096)
HALF2 = {"simt-half2": {"BM": 256, "BN": 128}}


def prepared_rung(name, given, **change):
    rung = RUNGS[name]
    return prepared(rung, given, {**rung.default_config(given), **change}, REFERENCE, MODEL.work)


def mainloop(name, given, **change):
    launch = prepared_rung(name, given, **change)
    return launch, warp_mainloop(launch.rung, launch.kernel, launch.k_tile, launch.shape, MODEL.constants, H200)


@pytest.mark.parametrize(("one", "other"), [(3.0, 4.0), (4.0, 3.0), (5.0, 0.0), (0.0, 0.0)])
def test_two_limits_take_more_than_the_larger_and_less_than_both(one, other):
    found = overlapped(one, other, 2.0)
    assert found == pytest.approx((one**2 + other**2) ** 0.5)
    assert max(one, other) <= found <= one + other


def test_ctas_hide_each_others_chains_and_not_throughput():
    loop = Mainloop(1200.0, {"shared": 300.0, "issue": 200.0})
    assert loop.limit(1) == loop.limit(2) == "latency"
    assert loop.limit(8) == "shared"
    for queueing in (0.0, 0.5, 1.0):
        clocks = [loop.clocks(resident, queueing) for resident in (1, 2, 4, 64)]
        assert clocks == sorted(clocks, reverse=True)
        assert clocks[0] == 1200
        assert clocks[-1] == pytest.approx(300, rel=1e-3)


def test_chains_queue_for_a_shared_unit():
    # Two chains of 900 clocks elsewhere and 300 at the unit: a newcomer finds the other there a quarter of the time.
    assert shared_unit_clocks(1200, 300, 2, 1.0) == pytest.approx((900 + 300 * 1.25) / 2)
    assert shared_unit_clocks(1200, 300, 2, 0.0) == 600
    assert shared_unit_clocks(1200, 300, 100, 0.0) == 300  # the unit is the limit
    assert shared_unit_clocks(100, 300, 1, 1.0) == 300  # more work of the unit than a chain has clocks


@pytest.mark.parametrize(
    ("name", "accumulator", "trips"),
    [
        ("mma-naive", None, 64),  # 32 loads of one element for each operand, one after the other
        ("wmma-shared", None, 8),  # 16 of each, four in flight
        ("wmma-shared", "float16", 16),  # two in flight
        ("wmma-block", "float16", 12),  # three
        ("wmma-vectorized", None, 2),  # two loads of 16 bytes for each operand
        ("mma-swizzled", None, 2),
        ("wmma-async", None, 1),  # one wait for both
        ("simt-shared", None, 2),
    ],
)
def test_one_stage_waits_for_its_round_trips(name, accumulator, trips):
    element = "float32" if name.startswith("simt") else "float16"
    launch, loop = mainloop(name, problem(*LARGE, element, accumulator=accumulator))
    each, busy, constants = launch.k_tile, loop.busy_clocks, MODEL.constants
    math = 0.0 if name.startswith("simt") else busy["tensor"]
    issue = max(busy["issue"], busy["fma"]) if name.startswith("simt") else busy["issue"]
    fetched = each.bytes / constants.l2_bytes_per_clock
    epilogue = constants.tile_clocks / launch.shape.k_tiles
    alone = loop.chain_clocks - issue - busy["shared"] - math - fetched - epilogue
    assert alone / constants.load_clocks == pytest.approx(trips)


def test_a_cache_with_random_replacement_keeps_a_share():
    assert share_kept(30e6, 30e6) == 1.0
    for times, kept in ((2, 0.2032), (4, 0.0198)):  # the fixed points of exp((h - 1) * times)
        assert share_kept(times * 30e6, 30e6) == pytest.approx(kept, abs=1e-4)


def test_loads_that_l2_does_not_hold_hold_up_those_behind_them():
    """Of simt-naive: B of 16 MB stays in L2, B of 256 MB does not."""
    constants = MODEL.constants
    found = {}
    for size in (2048, 8192):
        launch, loop = mainloop("simt-naive", problem(size, size, size, "float32"))
        lines = launch.k_tile.lines * constants.line_clocks
        kept = share_kept(4 * size**2, constants.l2_kept * H200.l2_bytes)
        latency = constants.load_clocks + (1 - kept) * constants.dram_clocks
        in_order = launch.k_tile.requests * latency / constants.requests_in_flight
        found[size] = loop.busy_clocks["shared"]
        assert found[size] == pytest.approx(overlapped(lines, in_order, constants.overlap))
    assert found[8192] > 1.15 * found[2048]


def test_fragments_from_global_memory_ask_for_few_loads():
    """Of wmma-naive: each load looks up eight lines, so that lines are the limit, not the loads in flight."""
    launch, _ = mainloop("wmma-naive", problem(8192, 8192, 8192, "float16"))
    assert launch.k_tile.lines == 8 * launch.k_tile.requests


@pytest.mark.parametrize(
    ("name", "element", "loads"),
    [
        ("wmma-block", "float16", 256),  # (128 + 128) * 32 elements, 32 of each instruction
        ("mma-naive", "bfloat16", 512),
        ("simt-half2", "float16", 128),  # 256 x 16 of A; B is copied in vectors
        ("simt-shared", "float32", 0),
        ("wmma-vectorized", "float16", 0),
        ("wmma-async", "float16", 0),
        ("mma-tma", "float16", 0),
    ],
)
def test_loads_of_16_bits_take_longer(name, element, loads):
    accumulator = "float16" if name == "simt-half2" else None
    launch, loop = mainloop(name, problem(*LARGE, element, accumulator=accumulator), **HALF2.get(name, {}))
    each, constants = launch.k_tile, MODEL.constants
    by_tma = each.bytes / 128 if RUNGS[name].mechanism.by_tma else 0
    plain = each.read_wavefronts * constants.wavefront_clocks + each.write_wavefronts + by_tma
    plain += each.lines * constants.line_clocks
    assert loop.busy_clocks["shared"] - plain == pytest.approx(loads * constants.narrow_load_clocks, abs=1e-6)


def test_more_stages_wait_less():
    given = problem(*LARGE, "float16")
    chains = [mainloop("wmma-dynamic-smem", given, STAGES=stages)[1].chain_clocks for stages in (2, 3, 4, 5)]
    assert chains == sorted(chains, reverse=True)
    assert chains[0] > chains[-1]


def test_math_takes_flops_over_the_rate():
    _, loop = mainloop("mma-final", problem(*LARGE, "float16"))
    rate = H200.tensor_tflops["float16"] * 1e12 / H200.multiprocessors / H200.clock_hz
    assert loop.busy_clocks["tensor"] == pytest.approx(2 * 256 * 128 * 64 / rate)


def test_bank_conflicts_are_in_the_counts():
    given = problem(*LARGE, "float16", b_major="col")
    before, after = (mainloop(name, given)[1].busy_clocks["shared"] for name in ("mma-vectorized", "mma-swizzled"))
    assert before > 4 * after


def test_counted_work_is_taken_as_it_is():
    given = problem(*LARGE, "float16")
    rung = RUNGS["mma-final"]
    config = rung.default_config(given)
    counted = measured_kernel(MODEL.work, rung, given, config)
    assert counted is not None
    found = k_tile(MODEL.work, rung, given, config)
    assert (found.instructions, found.read_wavefronts) == (counted.instructions, counted.read_wavefronts)
    assert found.bytes == 32 * counted.sectors
    # BM + BN rows of 64 halves.
    assert found.bytes == pytest.approx((256 + 128) * 64 * 2, rel=0.01)


def test_work_that_was_not_counted_is_scaled_from_what_was():
    given = problem(*LARGE, "float16")
    rung = RUNGS["mma-final"]
    other = {**rung.default_config(given), "BM": 128, "BN": 128, "WM": 64, "WN": 32}
    assert measured_kernel(MODEL.work, rung, given, other) is None
    counted = next(each for each in MODEL.work if each.rung == "mma-final" and each.instructions)
    over = counted.instructions / k_tile_by_formula(rung, given, {**other, **counted.tile}).instructions
    found, formula = k_tile(MODEL.work, rung, given, other), k_tile_by_formula(rung, given, other)
    assert found.instructions == pytest.approx(over * formula.instructions)
    assert found.bytes == pytest.approx(formula.bytes, rel=0.01)


@pytest.mark.parametrize("name", [name for name, rung in RUNGS.items() if rung.family != "wgmma"])
def test_counts_are_of_the_order_of_the_formulas(name):
    """A unit that is off, such as a K tile or a warp, would be off by powers of two."""
    known = [each for each in MODEL.work if each.rung == name and each.instructions]
    assert known
    for each in known:
        element = {32: "float32", 16: "float16"}[each.element_bits]
        given = problem(2048, 2048, 2048, element, accumulator=each.accumulator)
        config = {**RUNGS[name].default_config(given), **each.tile}
        formula = k_tile_by_formula(RUNGS[name], given, config)
        assert 0.95 * formula.instructions < each.instructions < 9 * formula.instructions
        if RUNGS[name].mechanism.staged:
            assert 0.9 * formula.bytes < 32 * each.sectors < 1.4 * formula.bytes
            assert 0.6 * formula.read_wavefronts < each.read_wavefronts < 3.2 * formula.read_wavefronts


# --- wgmma -----------------------------------------------------------------------------------------------------------


def sm_clocks(name, size, **change):
    given = problem(*size, "bfloat16", out="bfloat16", b_major="col")
    launch = prepared_rung(name, given, **change)
    return time_of(launch, MODEL.constants).terms["sm"] * 1e3 * MODEL.constants.boost_mhz


def test_a_wave_of_wgmma_store_is_tensor_time_and_an_epilogue():
    constants = MODEL.constants
    rate = H200.wgmma_tflops["bfloat16"] * 1e12 * constants.wgmma_share / H200.multiprocessors / H200.clock_hz
    loop = 2 * 128 * 256 * 4096 / rate
    epilogue = constants.tile_clocks + 128 * 256 * 2 / constants.out_bytes_per_clock
    # 512 tiles on 132 SMs: four each.
    assert sm_clocks("wgmma-store", LARGE) == pytest.approx(4 * (loop + epilogue))
    assert sm_clocks("wgmma-overlap", LARGE) == pytest.approx(4 * loop + epilogue)


def test_partial_waves_cost_whole_ones_but_not_with_stream_k():
    one, more = ((128 * 11, 256 * 12, 8192), (128 * 11 + 1, 256 * 12, 8192))  # 132 and 144 tiles
    assert sm_clocks("wgmma-store", more) == pytest.approx(2 * sm_clocks("wgmma-store", one))
    assert sm_clocks("wgmma-stream-k", more) < 1.6 * sm_clocks("wgmma-store", one)


def test_more_resident_ctas_hide_the_copies_of_one_stage():
    given = problem(*LARGE, "bfloat16", out="bfloat16", b_major="col")
    launch = prepared_rung("wgmma-tma", given)
    assert launch.shape.resident == 3  # 154 registers of 128 threads, and 32 KB
