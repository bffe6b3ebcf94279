"""What the wgmma rungs load: nothing outside of operands where they can avoid it, nothing twice, and no box in a loop
over lanes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covering import ALL, covering, few
from machine_code import kernels as machine_code
from warptile.codegen.nvrtc import compile_source, disassemble
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.emulator import run_grid
from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs import rung as rung_named
from warptile.rungs.legality import ceil_div
from warptile.rungs.tensor_tiles import round_up
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.cost import fills_boxes
from warptile.rungs.wgmma.launches import launches_of
from wgmma_product import ok, problem, small

FINAL = "wgmma-final"
LAYOUTS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))


@pytest.mark.parametrize(
    ("a_major", "b_major", "change"),
    covering(
        ("row", "col"), ("row", "col"),
        (
            {"SMS": 9}, {"PINGPONG": 1, "SMS": 4}, {"OVERLAP": 1}, {"SPLITS": 2, "SMS": 18}, {"STREAM": 1, "SMS": 5},
            {"CN": 2, "SMS": 8}, {"CM": 2, "CN": 2, "SMS": 8}, {"CM": 4, "SPLITS": 2, "SMS": 32},
        ),
        pairs=((0, 1),),
    ),
)  # fmt: skip
def test_final_loads_only_what_lies_inside_of_operands(a_major: str, b_major: str, change: dict[str, int]) -> None:
    # All starts and ends of tiles are multiples of sectors.
    m, n, k = 288, 208, 128
    config = {**small(FINAL, "bfloat16"), "BM": 128, "BN": 80, "STAGES": 3, **change}
    result = ok(FINAL, m, n, k, config=config, dtype="bfloat16", out="bfloat16", a_major=a_major, b_major=b_major)
    # CTAs, each of which receives what it needs; those of a cluster that lie outside of D do too.
    across, down = round_up(ceil_div(n, 80), change.get("CN", 1)), round_up(ceil_div(m, 128), change.get("CM", 1))
    assert result.report.counters["tma_load_sectors"] == (across * m + down * n) * k * 2 // 32
    assert result.report.counters["tma_zero_bytes"] == 0


def test_a_launch_that_loads_parts_of_tiles_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor maps tell that shared memory will be multiplied which nothing has written: it is followed at once."""

    def restore(*_: object) -> None:
        raise AssertionError("the launch is started again")

    monkeypatch.setattr(DeviceMemory, "restore", restore)
    ok(FINAL, 150, 72, 264, config=small(FINAL))
    monkeypatch.setattr(run_grid, "_has_maps_of_parts", lambda spec: False)
    with pytest.raises(AssertionError, match="started again"):
        ok(FINAL, 150, 72, 264, config=small(FINAL))


@pytest.mark.parametrize(("a_major", "b_major"), LAYOUTS if ALL else LAYOUTS[:2])
def test_zeros_outside_of_operands_are_counted(a_major: str, b_major: str) -> None:
    m, n, k = 288, 208, 128
    config = {**small(FINAL, "bfloat16"), "BM": 128, "BN": 80, "STAGES": 3, "CN": 2, "OVERLAP": 1, "SMS": 8}
    result = ok(FINAL, m, n, k, config=config, dtype="bfloat16", out="bfloat16", a_major=a_major, b_major=b_major)
    down, across = 3, 4  # CTAs, of which the last along N has no columns
    outside = (down * 128 - m) * across + (across * 80 - n) * down
    assert result.report.counters["tma_zero_bytes"] == outside * k * 2


CLUSTERED = [
    {"BM": 128, "BN": 80, "CN": 2, "OVERLAP": 1},
    {"BM": 128, "BN": 80, "CM": 2},
    {"BM": 64, "BN": 80, "CN": 2, "OVERLAP": 1, "CONSUMERS": 1},
    {"BM": 256, "BN": 176, "CM": 2},
    {"BM": 256, "BN": 144, "CM": 2},
    {"BM": 128, "BN": 168, "CN": 2, "PINGPONG": 1},
    {"BM": 128, "BN": 152, "CN": 2, "PINGPONG": 1},
]


@pytest.mark.parametrize("change", CLUSTERED if ALL else CLUSTERED[:3], ids=str)
def test_the_cost_model_knows_which_kernels_fill_boxes(change: dict[str, int]) -> None:
    m, n, k = 280, 200, 128
    config = {**small(FINAL, "bfloat16"), "STAGES": 3, "SMS": 8, **change}
    result = ok(FINAL, m, n, k, config=config, dtype="bfloat16", out="bfloat16", b_major="col")
    of = problem("bfloat16", (m, n, k), out="bfloat16")
    assert (result.report.counters["tma_zero_bytes"] > 0) == bool(
        fills_boxes(launches_of(tiles.view(of, config), config, REFERENCE), np)
    )


@pytest.mark.parametrize("swap", few([0, 1], 1))
def test_an_operand_that_one_cta_loads_once_leaves_l2_first(swap: int) -> None:
    config = {**small(FINAL), "SWAP": swap, "BM": 64, "BN": 64, "CONSUMERS": 1, "SMS": 2}
    of = problem(size=(50, 200, 136))
    without_l2 = replace(REFERENCE, l2_bytes=0)
    values = dict(RUNGS[FINAL].resolve(of, config, without_l2).instance.values)
    assert (values.get("EVICT_FIRST_A"), values.get("EVICT_FIRST_B")) == ((True, None) if swap else (None, True))
    ok(FINAL, 50, 200, 136, config=config, b_major="col", device=without_l2)


def test_swizzle_atoms_of_a_multicast_operand() -> None:
    # B's lines run along N: block 1 of a cluster finds the second and third panel by what a descriptor says.
    config = {**small("wgmma-multicast"), "BN": 192}
    ok("wgmma-multicast", 150, 200, 136, config=config, dtype="float16", out="float16", b_major="row")


def test_multicast_reads_b_once() -> None:
    # Four tiles; three stages each, of 128 rows of A and 64 columns of B, 128 bytes deep.
    alone, together = (
        ok(name, 256, 128, 192, config=small(name, SMS=4)).report.counters["global_load_bytes"]
        for name in ("wgmma-persistent", "wgmma-multicast")
    )
    assert alone == 4 * 3 * (128 + 64) * 128
    assert together == 4 * 3 * (128 + 64 / 2) * 128


@pytest.mark.parametrize(
    ("tile", "swap"),
    covering(
        (
            (16, {}), (48, {"PINGPONG": 1}), (80, {"CM": 2}), (96, {"OVERLAP": 1}), (112, {"CM": 2, "CN": 2}),
            (144, {"CM": 4}), (160, {"SPLITS": 2}), (176, {"CN": 2}), (128, {"CM": 2}),
        ),
        (0, 1), pairs=(),
    ),
)  # fmt: skip
def test_no_more_of_an_n_major_b_is_loaded_than_a_tile_has(tile: tuple[int, dict[str, int]], swap: int) -> None:
    bn, schedule = tile
    cm, cn = schedule.get("CM", 1), schedule.get("CN", 1)
    config = small(FINAL, BM=128, BN=bn, STAGES=3, CONSUMERS=2, SWAP=swap, SMS=4, **schedule)
    majors = {"a_major": "col"} if swap else {"b_major": "row"}
    extents = (bn * cn, 128 * cm) if swap else (128 * cm, bn * cn)
    counters = ok(FINAL, *extents, 192, dtype="bfloat16", config=config, **majors).report.counters
    assert counters["tma_load_sectors"] == cm * cn * 192 * (128 + bn) * 2 / 32


@pytest.mark.parametrize(
    ("name", "of", "loops"),
    [
        ("wgmma-final", problem(a_major="col", b_major="row"), False),
        ("wgmma-split", problem("float32", out="float32"), False),
        ("wgmma-sparse", replace(problem(), a=replace(problem().a, sparse=True)), False),
        ("mma-specialized", problem("float64", out="float64"), False),
        ("wgmma-persistent", problem(), True),  # its producer is thread 0: what the others avoid
    ],
)
def test_an_elected_producer_loads_without_a_loop_over_lanes(name: str, of: Problem, *, loops: bool) -> None:
    rung = rung_named(name)
    kernel = compile_source(translation_unit(rung.resolve(of, rung.default_config(of))), "sm_90a")
    (code,) = machine_code(disassemble(kernel.cubin)).values()
    loads = [place for place, statement in enumerate(code) if "UTMALDG" in statement]
    assert loads
    in_loops = [place for place in loads if any("BRA.U.ANY" in each for each in code[place : place + 6])]
    assert in_loops == (loads if loops else [])
