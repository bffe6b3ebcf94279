"""The wgmma rungs: correct for every type, layout, alignment and schedule, in every configuration; Python and the
kernels refuse the same configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covering import ALL, covering, few, of_each
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.dtypes import DTYPES
from warptile.errors import CompileError, LayoutError
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.final import CLUSTERS, WGMMA_FINAL
from warptile.rungs.wgmma.rungs import WGMMA_RUNGS
from warptile.rungs.wgmma.tile_shapes import TUNABLES
from wgmma_product import ok, problem, small

NAMES = (*(rung.name for rung in WGMMA_RUNGS if not rung.sparse), "wgmma-final")
FINAL = "wgmma-final"
LAYOUTS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
SCHEDULES = ("latest", "earliest", "random:1")
OFFSETS = (8, 1, 4, 2)
"""Elements in front of a matrix, and between its lines: of 16 bits, aligned to 16, 2, 8 and 4 bytes."""

PARTIAL_WAVE = {"SMS": 3, "STREAM": 1}


# --- every rung ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "a_major", "b_major", "dtype", "out", "place", "beta", "schedule"),
    covering(
        NAMES, ("row", "col"), ("row", "col"), ("float16", "bfloat16"), ("float32", "float16", "bfloat16"), OFFSETS,
        (0, 3), SCHEDULES, pairs=((1, 2),),
    ),
)  # fmt: skip
def test_every_rung_in_every_layout(
    name: str, a_major: str, b_major: str, dtype: str, out: str, place: int, beta: int, schedule: str
) -> None:
    result = ok(
        name, 193, 161, 97, dtype=dtype, out=out, a_major=a_major, b_major=b_major, alpha=-2, beta=beta,
        gap=(place - 97 % place) % place + place, offset=place, schedule=schedule,
    )  # fmt: skip
    assert all(not copy.transposed for copy in result.plan.kernel.copies)


OTHER_TYPES = (
    ("tfloat32", "float32", "float32"),
    ("int8", "int32", "int32"),
    ("uint8", "int32_saturating", "int32"),
    ("float16", "float16", "float16"),
    ("float8_e4m3", "float32_fast", "bfloat16"),
    ("float8_e5m2", "float16", "float16"),
)


@pytest.mark.parametrize(
    ("name", "types", "majors", "beta", "gap", "schedule"),
    of_each(covering(NAMES, OTHER_TYPES, LAYOUTS, (3, 0), (0, 1, 2), SCHEDULES, pairs=()), lambda case: case[1:2]),
    ids=str,
)
def test_every_rung_in_other_types(
    name: str, types: tuple[str, str, str], majors: tuple[str, str], beta: int, gap: int, schedule: str
) -> None:
    (dtype, accumulator, out), (a_major, b_major) = types, majors
    result = ok(
        name, 130, 40, 75, dtype=dtype, accumulator=accumulator, out=out, a_major=a_major, b_major=b_major,
        alpha=2, beta=beta, gap=gap, offset=2 - gap, schedule=schedule,
    )  # fmt: skip
    transposed = {copy.source for copy in result.plan.kernel.copies if copy.transposed}
    if dtype != "float16":  # wgmma takes others along K alone
        assert transposed == {name for name, is_bad in (("A", a_major == "col"), ("B", b_major == "row")) if is_bad}


@pytest.mark.parametrize(
    ("name", "size"), [(FINAL, (1, 70, 0)), *few(covering(NAMES[::-1], ((70, 1, 33), (1, 70, 0)), pairs=()), 1)]
)
def test_tiny_extents(name: str, size: tuple[int, int, int]) -> None:
    ok(name, *size, beta=2, offset=8, gap=7, b_major="col", schedule=SCHEDULES[NAMES.index(name) % 3])


@pytest.mark.parametrize("name", few(["wgmma-tma", "wgmma-store", FINAL], 2))
def test_beta_zero_never_reads_c(name: str) -> None:
    ok(name, 100, 72, 40, with_c=True, beta=0, alpha=2)


@pytest.mark.parametrize("name", few(NAMES[::-1], 1))
def test_nothing_is_repacked_where_tma_takes_the_operands(name: str) -> None:
    result = ok(name, 136, 72, 200, a_major="col", out="float16", schedule=SCHEDULES[NAMES.index(name) % 3])
    assert result.plan.kernel.copies == ()
    # Whole lines of 16 bytes in D: a rung that stores by TMA does nothing else.
    stores_by_tma = name in ("wgmma-store", "wgmma-pingpong", FINAL)
    assert (result.report.counters["global_store_requests"] == 0) == stores_by_tma


# --- wgmma-final --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "accumulator", "out"),
    few(
        [
            ("float8_e4m3", "float32", "float32"),
            ("float8_e5m2", "float32", "float16"),
            ("float16", "float16", "float32"),
            ("float16", "float16", "bfloat16"),
            ("bit1", "int32", "int32"),
            ("uint8", "int32", "int32"),
            ("int8", "int32_saturating", "int32"),
            ("tfloat32", "float32", "bfloat16"),
        ],
        1,
    ),
)
def test_final_in_other_types(dtype: str, accumulator: str, out: str) -> None:
    a_major = "row" if dtype == "bit1" else "col"
    ok(
        FINAL, 131, 70, 328, dtype=dtype, accumulator=accumulator, out=out, a_major=a_major, b_major="col", beta=3,
        gap=1, offset=1,
    )  # fmt: skip


HALF = {"dtype": "float16", "out": "float16"}
TF32 = {"dtype": "tfloat32", "out": "float32"}
CASES: tuple[tuple[dict[str, int], Mapping[str, object]], ...] = (
    # Ping-pong: two warpgroups alternate in mainloop and epilogue.
    ({"PINGPONG": 1}, HALF),
    ({"PINGPONG": 1, "SMS": 4, "CM": 2, "ALONG_N": 1}, {"dtype": "bfloat16", "b_major": "col"}),
    ({"PINGPONG": 1, "SMS": 2, "STAGES": 2}, {"dtype": "float8_e4m3", "out": "float32"}),
    ({"PINGPONG": 1, "BM": 64, "SMS": 8, "CN": 2}, {"dtype": "int8", "beta": 3}),
    # The epilogue overlaps the next mainloop.
    ({"OVERLAP": 1}, {**HALF, "beta": 2}),
    ({"OVERLAP": 1, "BN": 128, "SMS": 1, "ALONG_N": 1}, {**HALF, "gap": 8, "offset": 8}),
    ({"OVERLAP": 1, "CM": 2, "CN": 2, "SMS": 4}, {"dtype": "float16", "accumulator": "float16", "out": "bfloat16"}),
    ({"OVERLAP": 1, "SWAP": 1, "BN": 40, "SMS": 4}, {**HALF, "beta": 2, "gap": 1}),
    ({"OVERLAP": 1, "CONSUMERS": 1, "BM": 64, "SMS": 5}, {"dtype": "float8_e5m2", "out": "float16"}),
    # Wider types hold only part of a tile.
    ({"OVERLAP": 1, "SMS": 1, "BN": 256}, {"dtype": "bfloat16", "out": "float32", "beta": 2}),
    ({"OVERLAP": 1, "SMS": 2, "BN": 256, "STAGES": 2}, {"dtype": "tfloat32", "gap": 1, "offset": 3}),
    ({"OVERLAP": 1, "SMS": 1, "SWAP": 1, "BN": 16}, {"dtype": "int8", "b_major": "col"}),
    # The same with epilogue store warps, as TMA cannot store D. Lines of D are unaligned and end within a subtile.
    ({"OVERLAP": 1, "SMS": 2}, {**HALF, "gap": 1, "offset": 3}),
    ({"OVERLAP": 1, "BN": 128, "SMS": 1, "ALONG_N": 1}, {**HALF, "gap": 3, "beta": 2, "b_major": "col"}),
    ({"OVERLAP": 1, "BM": 64, "CONSUMERS": 1, "CM": 2, "CN": 2, "SMS": 4}, {**HALF, "gap": 2, "offset": 1}),
    ({"OVERLAP": 1, "SWAP": 1, "SMS": 1}, {"dtype": "bfloat16", "out": "bfloat16", "gap": 5}),
    # K is split: of the last tiles, and of all.
    (PARTIAL_WAVE, HALF),
    ({**PARTIAL_WAVE, "BM": 64, "CONSUMERS": 1, "SMS": 7, "GROUP": 2}, {"dtype": "tfloat32", "beta": 2}),
    ({**PARTIAL_WAVE, "CM": 2, "SMS": 6, "BM": 64, "CONSUMERS": 1}, {"dtype": "float8_e4m3", "out": "bfloat16"}),
    ({**PARTIAL_WAVE, "SWAP": 1, "SMS": 4}, {"dtype": "float16", "accumulator": "float16", "out": "float16"}),
    ({"SPLITS": 2, "SMS": 16}, {"dtype": "bfloat16", "out": "float32", "gap": 3}),
    ({"SPLITS": 3, "SMS": 18, "BM": 256, "BN": 96, "CM": 2}, {**HALF, "a_major": "col", "b_major": "col"}),
    # In clusters along K, beside others.
    ({"SPLITS": 2, "SMS": 16, "CN": 2, "BN": 96}, {"dtype": "int8", "b_major": "col"}),
    ({"SPLITS": 4, "SMS": 132, "SWAP": 1, "ALONG_N": 1}, {**HALF, "beta": -1}),
    ({"SPLITS": 4, "SMS": 132, "CM": 2, "BM": 256}, {"dtype": "float16", "accumulator": "float16", "gap": 1}),
    # Clusters whose CTAs do not all have a tile.
    ({"CM": 2, "CN": 1, "SMS": 5}, {"dtype": "bfloat16", "a_major": "col"}),
    ({"CM": 1, "CN": 2, "SMS": 6, "GROUP": 1}, {"dtype": "float16", "b_major": "col"}),
    ({"CM": 2, "CN": 2, "SMS": 8}, {"dtype": "uint8", "accumulator": "int32_saturating"}),
    ({"CM": 4, "CN": 1, "SMS": 4, "BM": 64, "CONSUMERS": 1}, {"dtype": "float8_e4m3", "accumulator": "float32_fast"}),
    ({"CM": 2, "CN": 2, "SMS": 4, "SWAP": 1, "STAGES": 5}, {"dtype": "tfloat32", "b_major": "col"}),
    ({"CM": 1, "CN": 4, "SMS": 8}, {"dtype": "bfloat16", "b_major": "col"}),
    ({"CM": 4, "CN": 2, "SMS": 16, "BM": 64, "CONSUMERS": 1}, {**HALF, "gap": 8}),
    ({"CM": 2, "CN": 4, "SMS": 8, "BN": 64, "OVERLAP": 1}, {"dtype": "int8", "b_major": "col"}),
    ({"CM": 2, "CN": 4, "SMS": 8, "PINGPONG": 1}, {**HALF, "a_major": "col", "gap": 3}),
    # CTAs of a cluster take turns at loading B, whose lines are no equal parts of eight.
    ({"CM": 2, "SMS": 4, "BN": 72}, {**HALF, "b_major": "col"}),
    ({"CM": 4, "SMS": 4, "BM": 64, "CONSUMERS": 1, "BN": 40}, {"dtype": "tfloat32", "b_major": "col", "beta": 2}),
    ({"CM": 4, "CN": 2, "SMS": 8, "BN": 48, "SWAP": 1}, {"dtype": "int8", "b_major": "col"}),
    ({"CM": 2, "SPLITS": 2, "SMS": 132, "BN": 88}, {"dtype": "bfloat16", "b_major": "col", "gap": 1}),
    # Multicast boxes reach beyond the end of lines along N, along M, and along K.
    ({"CM": 2, "SMS": 4, "BK": 128, "STAGES": 2}, {**HALF, "b_major": "col"}),
    ({"CM": 2, "SMS": 4, "BN": 192}, HALF),
    ({"CN": 2, "SMS": 4}, {**HALF, "a_major": "col", "b_major": "col"}),
    # D^T = B^T A^T.
    ({"SWAP": 1}, {**HALF, "a_major": "col", "beta": 2}),
    ({"SWAP": 1, "SMS": 1, "BN": 24}, {"dtype": "int8", "a_major": "col", "gap": 1}),
    ({"SWAP": 1, "BN": 8, "SMS": 5}, {"dtype": "bfloat16", "out": "float32", "b_major": "col", "offset": 1}),
    # D of 32 bits from many accumulators, by columns: two warps write half of the rows of a subtile each.
    ({"SWAP": 1, "BN": 256, "SMS": 2, "STAGES": 2}, {"dtype": "bfloat16", "out": "float32"}),
    ({"SWAP": 1, "BN": 128, "SMS": 2, "OVERLAP": 1}, {"dtype": "bfloat16", "out": "float32", "beta": 2}),
    ({"SWAP": 1, "BM": 192, "BN": 128, "SMS": 3}, {"dtype": "int8", "beta": 3}),
    ({"SWAP": 1, "BN": 192, "SMS": 2}, {"dtype": "tfloat32", "gap": 1, "offset": 3}),
    ({"SWAP": 1, "BN": 96, "SMS": 4, "PINGPONG": 1, "CM": 2}, {"dtype": "float8_e4m3", "out": "float32"}),
    # Other tiles.
    ({"BN": 8, "SMS": 8}, {"dtype": "float16", "b_major": "col"}),
    ({"BN": 16, "SMS": 8}, {"dtype": "int8", "gap": 1}),
    ({"BN": 24, "SMS": 8}, {"dtype": "float16", "accumulator": "float16", "out": "float16"}),
    ({"BN": 40, "SMS": 4}, {"dtype": "bfloat16", "out": "float32"}),
    ({"BN": 96, "SMS": 3}, {"dtype": "tfloat32", "a_major": "col"}),
    ({"BN": 208, "SMS": 4}, {**HALF, "b_major": "col"}),
    ({"BN": 256, "SMS": 2}, {"dtype": "bfloat16", "out": "bfloat16"}),
    ({"BM": 64, "BN": 256, "CONSUMERS": 1}, {"dtype": "uint8"}),
    ({"BM": 192, "CONSUMERS": 1}, {**HALF, "a_major": "col"}),
    ({"BM": 256, "BN": 64}, {**HALF, "out": "float32", "offset": 2}),
    # Two consumers share the columns of a tile, as they cannot share its rows: in every schedule, and along K.
    ({"BM": 192, "BN": 128, "SMS": 3}, {**HALF, "beta": 2}),
    ({"BM": 192, "BN": 192, "SMS": 2, "OVERLAP": 1}, {"dtype": "bfloat16", "out": "bfloat16", "b_major": "col"}),
    ({"BM": 192, "BN": 128, "SWAP": 1, "CM": 2, "SMS": 4}, {**HALF, "gap": 1}),
    ({"BM": 192, "BN": 64, "CN": 2, "SMS": 4}, {"dtype": "float8_e4m3", "out": "float32"}),
    ({"BM": 64, "BN": 48, "SMS": 5}, {"dtype": "int8", "b_major": "col", "gap": 1}),
    ({**PARTIAL_WAVE, "BM": 192, "BN": 128}, {**HALF, "a_major": "col"}),
    ({"BM": 64, "BN": 128, "SPLITS": 2, "SMS": 16}, {"dtype": "bfloat16", "out": "float32", "gap": 3}),
    ({"BM": 192, "BN": 128, "SPLITS": 4, "SMS": 132}, {"dtype": "float16", "accumulator": "float16"}),
    ({"BM": 192, "BN": 96, "PINGPONG": 1, "CM": 2, "CN": 2, "SMS": 4}, {"dtype": "tfloat32"}),
    # Two swizzle atoms along K.
    ({"BK": 128}, {**HALF, "a_major": "col", "b_major": "col"}),
    ({"BK": 128, "STAGES": 2, "SWAP": 1}, {"dtype": "float16", "b_major": "row"}),
    ({"BK": 256, "BN": 80}, {"dtype": "int8"}),
)  # fmt: skip


MODE_KEYS = ("PINGPONG", "OVERLAP", "STREAM", "SPLITS", "SWAP", "CM", "CN")


def _parts(case: tuple[Config, Mapping[str, object]]) -> set[tuple[object, ...]]:
    """Every key, each value of a mode, and whether stores overlap a mainloop: by TMA, and where lines have gaps."""
    change, options = case
    modes = {(key, change[key]) for key in MODE_KEYS if key in change}
    return {*((key,) for key in change), *modes, ("OVERLAP" in change, "gap" in options)}


@pytest.mark.parametrize(("change", "options"), of_each(CASES, _parts))
def test_final_in_other_configurations(change: Config, options: Mapping[str, object]) -> None:
    number = [id(each) for each, _ in CASES].index(id(change))
    size = (130, 70, 300) if "BK" in change else (150, 200, 328) if ALL else (150, 72, 264)
    config = {**small(FINAL, str(options["dtype"])), **change}
    ok(FINAL, *size, config=config, schedule=SCHEDULES[number % 3], **options)


UNALIGNED_A: tuple[tuple[tuple[int, int, int], dict[str, int], Mapping[str, object]], ...] = (
    # Pitches that are odd, even and multiples of four elements, behind every kind of start; more rows of D than classes
    # have, and fewer than there are classes.
    ((70, 40, 197), {"BM": 64, "BN": 16, "CONSUMERS": 1}, {**HALF, "offset": 3}),
    ((136, 72, 194), {"BN": 32, "ALONG_N": 1}, {**HALF, "offset": 5, "beta": 2}),
    ((3, 5, 62), {"BM": 64, "BN": 8, "CONSUMERS": 1, "BK": 128}, {"dtype": "bfloat16", "offset": 7, "gap": 2}),
    ((200, 104, 204), {"BM": 128, "CONSUMERS": 1, "BN": 104}, {"dtype": "float16", "offset": 6, "out": "float32"}),
    # D by TMA, and where lines of D run across: of 16 bits and of 32.
    ((199, 128, 261), {"BM": 256, "BK": 128, "STAGES": 2}, {**HALF, "offset": 8, "gap": 8, "b_major": "row"}),
    ((40, 200, 193), {"SWAP": 1, "BN": 40}, {"dtype": "bfloat16", "out": "bfloat16", "offset": 4, "beta": 2}),
    ((16, 99, 331), {"SWAP": 1, "BM": 64, "BN": 16, "CONSUMERS": 1, "BK": 256}, {"dtype": "float16", "gap": 2}),
    # K is split.
    ((200, 120, 261), {"SPLITS": 2, "SMS": 16}, {**HALF, "offset": 2}),
    ((16, 200, 197), {"SWAP": 1, "BN": 16, "SPLITS": 3, "SMS": 132}, {**HALF, "gap": 2, "offset": 5}),
    # K is split in clusters, whose partial sums overwrite stages that warps read at their own pace.
    ((31, 72, 228), {"SWAP": 1, "BM": 64, "BN": 32, "CONSUMERS": 1, "SPLITS": 2, "SMS": 132}, {**HALF, "offset": 3}),
    # A is contiguous along M: an odd pitch, and pitches of an even number of elements and of four of them; K that is no
    # multiple of eight; K split.
    ((73, 40, 197), {"BM": 64, "BN": 16, "CONSUMERS": 1}, {**HALF, "a_major": "col", "offset": 3}),
    ((10, 130, 100), {"SWAP": 1, "BN": 16}, {"dtype": "bfloat16", "b_major": "row", "offset": 1, "beta": 2}),
    ((196, 24, 261), {"BM": 192, "CONSUMERS": 1, "BN": 24, "BK": 128, "STAGES": 2}, {**HALF, "a_major": "col"}),
    ((5, 203, 333), {"SWAP": 1, "BM": 64, "BN": 8, "CONSUMERS": 1, "SPLITS": 3, "SMS": 132},
     {**HALF, "b_major": "row", "gap": 2, "offset": 5}),
    # Elements of 32 bits.
    ((3, 130, 163), {"SWAP": 1, "BM": 64, "BN": 8, "CONSUMERS": 1, "SPLITS": 2, "SMS": 132}, {**TF32, "offset": 1}),
    ((136, 40, 98), {"BN": 40, "BK": 64, "STAGES": 3}, {**TF32, "gap": 3, "offset": 2, "beta": 2}),
)  # fmt: skip


def _unaligned_parts(case: tuple[object, dict[str, int], Mapping[str, object]]) -> set[object]:
    """What decides how A is read and D is stored."""
    _, change, options = case
    split = change.get("SPLITS"), "CONSUMERS" in change
    return {*({"SWAP", "BK"} & {*change}), split, *({"beta", "a_major", "b_major"} & {*options}), options["dtype"]}


@pytest.mark.parametrize(("size", "change", "options"), of_each(UNALIGNED_A, _unaligned_parts))
def test_an_unaligned_a_is_loaded_through_registers(
    size: tuple[int, int, int], change: dict[str, int], options: Mapping[str, object]
) -> None:
    """A is not repacked, whatever is between its rows: NaN, or the next row."""
    config = {**small(FINAL, str(options["dtype"])), **change}
    number = [id(each) for _, each, _ in UNALIGNED_A].index(id(change))
    result = ok(FINAL, *size, config=config, schedule=SCHEDULES[number % 3], **{"b_major": "col", **options})
    copied = {copy.source for copy in result.plan.kernel.copies}
    assert ("B" if config["SWAP"] else "A") not in copied
    overlapped = {**config, "SPLITS": 1, "OVERLAP": 1}
    assert {copy.source for copy in tiles.view(result.plan.problem, overlapped).repacks} > copied


FUSED: tuple[tuple[tuple[int, int, int], dict[str, int], Mapping[str, object]], ...] = (
    # Both operands, in several turns, the last of which not all blocks have; one of them; few blocks with many turns.
    ((200, 136, 541), {"SMS": 3, "GROUP": 2}, {"dtype": "bfloat16", "out": "bfloat16", "beta": 2}),
    ((264, 72, 541), {"SMS": 4, "ALONG_N": 1}, {**HALF, "offset": 8, "a_major": "col"}),
    ((136, 104, 1093), {"SMS": 2}, HALF),
)  # fmt: skip


@pytest.mark.parametrize(("size", "change", "options"), few(FUSED, 1))
def test_fused_repacking(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int], change: dict[str, int], options: Mapping[str, object]
) -> None:
    """CTAs repack misaligned operands for each other; the emulator catches every TMA load that is issued too early."""
    monkeypatch.setattr("warptile.rungs.wgmma.fused_repack.MOST_LINES", 1000)
    monkeypatch.setattr("warptile.rungs.wgmma.fused_repack.LEAST_WAVES", 1)
    config = {**small(FINAL, str(options["dtype"])), "OVERLAP": 1, **change}
    number = [id(each) for _, each, _ in FUSED].index(id(change))
    result = ok(FINAL, *size, config=config, schedule=SCHEDULES[number % 3], **{"b_major": "col", **options})
    assert not result.plan.kernel.copies
    assert len(result.plan.kernel.view.fused_repacks) == (1 if "a_major" in options else 2)
    assert "\nfused      repacked " in result.plan.explain()


def test_repacking_is_fused_for_large_gemms_whose_d_tma_stores() -> None:
    def fused(m: int, n: int, k: int, **changes: int) -> int:
        half = DTYPES["bfloat16"]
        given = Problem.dense(m, n, k, half, out=half, accumulator=DTYPES["float32"], b_major="col")
        config = {
            **WGMMA_FINAL.default_config(given), "BM": 128, "BN": 256, "BK": 64, "CONSUMERS": 2, "SWAP": 0, "CM": 1,
            "CN": 1, "PINGPONG": 0, "STREAM": 0, "SPLITS": 1, "OVERLAP": 1, "GROUP": 16, "SMS": 128, **changes,
        }  # fmt: skip
        return len(tiles.view(given, config).fused_repacks)

    assert fused(4096, 4096, 4095) == fused(8192, 8192, 8190) == 2
    assert fused(4096, 4096, 4096) == 0
    assert fused(4096, 4095, 4095) == fused(4096, 4096, 4095, OVERLAP=0) == fused(1024, 512, 4095) == 0
    assert fused(4096, 4096, 4095, GROUP=8) == fused(4096, 4096, 4095, CM=2) == fused(2048, 2048, 4095) == 0


BY_RESIDUE_CLASS: tuple[tuple[tuple[int, int, int], dict[str, int], Mapping[str, object]], ...] = (
    # Pitches that are odd, even and multiples of four elements, behind every kind of start; classes that have fewer
    # rows than a tile. All of a row's panels but its ends are stored by TMA.
    ((512, 197, 136), {"PINGPONG": 1, "SMS": 5}, HALF),
    ((488, 200, 72), {"PINGPONG": 1, "SMS": 4, "GROUP": 3}, {"dtype": "bfloat16", "gap": 1, "offset": 3}),
    (
        (480, 180, 72),
        {"CONSUMERS": 1, "BN": 48, "ALONG_N": 1, "CN": 2, "SMS": 8},
        {"dtype": "int8", "gap": 1, "offset": 1},
    ),
    ((1024, 132, 72), {"CONSUMERS": 1, "BN": 48, "CM": 2, "SMS": 8}, {**HALF, "offset": 5}),
)  # fmt: skip


@pytest.mark.parametrize(("size", "change", "options"), few(BY_RESIDUE_CLASS, 1))
def test_a_misaligned_d_is_stored_by_residue_class(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int], change: dict[str, int], options: Mapping[str, object]
) -> None:
    monkeypatch.setattr("warptile.rungs.wgmma.residue_classes.LEAST_COLUMNS", 64)
    config = {**small(FINAL, str(options["dtype"])), "BM": 64, **change}
    number = [id(each) for _, each, _ in BY_RESIDUE_CLASS].index(id(change))
    result = ok(FINAL, *size, config=config, schedule=SCHEDULES[number % 3], b_major="col", **options)
    assert result.plan.kernel.view.problem.batch == 8
    counters = result.report.counters
    assert 32 * counters["tma_store_sectors"] > 0.4 * result.d.nbytes
    assert counters["global_store_requests"] > 0


def test_where_splits_form_a_cluster() -> None:
    """Then nothing goes through global memory."""

    def clustered(size: tuple[int, int, int], **change: int) -> bool:
        of, config = problem(size=size), {**small(FINAL), "SMS": 132, **change}
        assert RUNGS[FINAL].illegal(of, config) is None
        each = config["CM"] * config["CN"]
        kernel = RUNGS[FINAL].resolve(of, config)
        blocks = kernel.cluster[0]
        assert (blocks == each) == bool(kernel.kernel_workspaces)
        assert blocks in (each, each * config["SPLITS"])
        return blocks > each

    one = (128, 64, 1024)
    assert [splits for splits in range(2, 17) if clustered(one, SPLITS=splits)] == [2, 4, 8]
    assert clustered(one, SPLITS=4, CN=2)
    assert not clustered(one, SPLITS=8, CN=2)
    assert not clustered(one, SPLITS=2, BN=8), "eight columns are not halved"
    assert not clustered((256, 128, 1024), SPLITS=2, BM=256, BN=128, STAGES=2), "stages have no room for sums"
    assert clustered((128, 66 * 64, 1024), SPLITS=2)
    assert clustered((128, 29 * 64, 1024), SPLITS=4)
    assert not clustered((128, 30 * 64, 1024), SPLITS=4), "clusters of four are not all there at one time"


def test_every_cta_has_a_split_of_one_tile() -> None:
    """One CTA on each SM: lanes add runs of partial accumulators. The result is the same in any order of arrival."""
    config = small(FINAL, BM=64, BN=48, CONSUMERS=1, SPLITS=64, SMS=64)
    options = {"config": config, "accumulator": "float16", "out": "float16", "b_major": "col", "beta": 2}
    first, second = (ok(FINAL, 61, 43, 64 * 64 - 8, schedule=schedule, **options) for schedule in SCHEDULES[:2])
    assert first.d.tobytes() == second.d.tobytes()


def test_cases_have_every_key_and_cluster() -> None:
    usual = small(FINAL)
    for key in TUNABLES:
        assert {change.get(key, usual[key]) for change, _ in CASES} - {usual[key]}, key
    assert {(change.get("CM", 1), change.get("CN", 1)) for change, _ in CASES} == set(CLUSTERS)
    assert {change["BN"] for change, _ in CASES if "BN" in change} >= {8, 16, 24, 40, 96, 208, 256}


@st.composite
def any_case(draw: st.DrawFn) -> tuple[str, tuple[int, int, int], Config, dict[str, object]]:
    """A rung, sizes, a configuration and options that are legal together."""

    def one(*values: object) -> object:
        return draw(st.sampled_from(values))

    name = str(one(FINAL, FINAL, *NAMES))
    dtype = str(one(*RUNGS[name].dtypes))
    element = DTYPES[dtype]
    sums = str(one(*element.accumulators))
    a_major, b_major = ("row", "col") if dtype == "bit1" else LAYOUTS[draw(st.integers(0, 3))]
    out = "int32" if element.kind != "float" else str(one("float16", "bfloat16", "float32"))
    m, n = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    k = draw(st.integers(0, 5)) * 64 * (8 if dtype == "bit1" else 1) + (
        0 if dtype == "bit1" else draw(st.integers(0, 9))
    )
    panel = 1024 // element.bits
    config: dict[str, int] = {
        **small(name, dtype), "BM": one(64, 128, 256), "BN": one(8, 16, 32, 48, 64, 72, 96, 128, 136, 192, 256),
        "BK": one(panel, panel, 2 * panel),
    }  # type: ignore[dict-item]  # fmt: skip
    if "STAGES" in config:
        config["STAGES"] = draw(st.integers(2, 5))
    if "SMS" in config:
        config |= {"SMS": draw(st.integers(1, 9)), "GROUP": draw(st.integers(1, 3))}
    if name == FINAL:
        cm, cn = draw(st.sampled_from(CLUSTERS))
        depth: dict[str, int] = one({}, {"OVERLAP": 1}, {"PINGPONG": 1}, {"STREAM": 1}, {"SPLITS": 2})  # type: ignore[assignment]
        config |= {"CM": cm, "CN": cn, "CONSUMERS": draw(st.integers(1, 2)), **depth}
        config |= {"ALONG_N": draw(st.integers(0, 1)), "SWAP": draw(st.integers(0, 1))}
    options = {
        "dtype": dtype, "accumulator": sums, "out": out, "a_major": a_major, "b_major": b_major, "beta": one(0, 2),
        "gap": draw(st.integers(0, 9)), "offset": draw(st.integers(0, 8)), "schedule": one(*SCHEDULES),
    }  # fmt: skip
    return name, (m, n, k), config, options


def _problem_of(size: tuple[int, int, int], options: Mapping[str, object]) -> Problem:
    return Problem.dense(
        *size, DTYPES[str(options["dtype"])], out=DTYPES[str(options["out"])],
        accumulator=DTYPES[str(options["accumulator"])], a_major=str(options["a_major"]),
        b_major=str(options["b_major"]),
    )  # fmt: skip


@pytest.mark.skipif(not ALL, reason="make test-all")
@settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(any_case().filter(lambda case: RUNGS[case[0]].illegal(_problem_of(case[1], case[3]), case[2]) is None))
def test_any_legal_case(case: tuple[str, tuple[int, int, int], Config, dict[str, object]]) -> None:
    name, size, config, options = case
    ok(name, *size, config=config, **options)


# --- arithmetic ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), few(covering(NAMES, ("float16", "int8"), pairs=()), 1))
def test_as_many_mmas_as_tiles_need(name: str, dtype: str) -> None:
    # 4 tiles of 128 x 64 with 3 K tiles each.
    depth = 3 * 1024 // DTYPES[dtype].bits
    counters = ok(name, 256, 128, depth, dtype=dtype, b_major="col").report.counters
    assert counters["tensor_flops"] == 2 * 256 * 128 * depth


# --- configurations -----------------------------------------------------------------------------------------------


def compiles(name: str, of: Problem, config: Config) -> None:
    """Without spills, and without products that the compiler puts one after the other: it raises for these."""
    compile_source(translation_unit(RUNGS[name].resolve(of, config)), "sm_90a")


BOUNDARIES = [
    # A rung, a problem, what its small configuration is changed to, and what must not be, each with its reason.
    ("wgmma-tma", problem(), {}, {"BM": 96}, "multiple of 64", "64 rows"),
    ("wgmma-tma", problem(), {"BM": 256, "BN": 8}, {"BM": 320, "BN": 8}, "at most 256", "it takes extents of 1 to 256"),
    ("wgmma-tma", problem(), {"BK": 128}, {"BK": 96}, "multiple of 64", "whole panels"),
    ("wgmma-tma", problem("int8"), {"BK": 256}, {"BK": 64}, "multiple of 128", "whole panels"),
    ("wgmma-tma", problem(a_major="col"), {"BM": 64, "BN": 8, "BK": 256}, {"BM": 64, "BN": 8, "BK": 320},
     "a TMA box has at most 256 lines", "it takes extents of 1 to 256"),
    ("wgmma-cooperative", problem(), {"BM": 128}, {"BM": 192}, "multiple of 128",
     "warpgroups share the rows or the columns"),
    ("wgmma-specialized", problem(), {"STAGES": 2}, {"STAGES": 1}, "at least 2", "at least two stages"),
    (FINAL, problem(b_major="row"), {"BM": 192, "BN": 128}, {"BM": 192, "BN": 96}, "contiguous along N",
     "whole panels of it"),
    (FINAL, problem(), {"STAGES": 2}, {"STAGES": 1}, "at least 2", "at least two stages"),
    (FINAL, problem(), {"PINGPONG": 1}, {"PINGPONG": 1, "CONSUMERS": 1}, "take turns", "two warpgroups alternate"),
    (FINAL, problem(), {"OVERLAP": 1}, {"OVERLAP": 1, "STREAM": 1}, "goes with", "whole, cooperative tiles alone"),
    (FINAL, problem(accumulator="float16"), {"STREAM": 1, "BN": 16}, {"STREAM": 1, "BN": 24}, "four at a time",
     "packets of four"),
]  # fmt: skip


COMPILED = few([asserted for *_, asserted in BOUNDARIES], 4)
"""What kernels refuse: of few boundaries in an ordinary run, and Python of all."""


@pytest.mark.parametrize(("name", "of", "within", "beyond", "reason", "asserted"), BOUNDARIES)
def test_python_and_kernels_draw_the_same_line(
    name: str, of: Problem, within: Config, beyond: Config, reason: str, asserted: str
) -> None:
    rung, dtype = RUNGS[name], of.a.dtype.name
    assert rung.illegal(of, small(name, dtype, **within)) is None
    assert re.search(reason, rung.illegal(of, small(name, dtype, **beyond)) or "")
    if asserted not in COMPILED:
        return
    compiles(name, of, small(name, dtype, **within))
    # TensorMap refuses too large boxes before there is anything to compile.
    with pytest.raises((CompileError, LayoutError), match=f"(static assert|tensor map)[^\n]*{asserted}"):
        compiles(name, of, small(name, dtype, **beyond))


REASONS = [
    ("wgmma-tma", problem("float64", out="float64"), {}, "operands are float64"),
    ("wgmma-tma", problem(a_major="col"), {"BM": 0}, "BM is 0"),
    ("wgmma-tma", problem(), {"BN": 12}, "a multiple of 8"),
    ("wgmma-tma", problem("int8"), {"BN": 40}, "8, 24 or a multiple of 16"),
    ("wgmma-tma", problem(), {"BN": 264}, "at most 256"),
    ("wgmma-tma", problem("float8_e4m3"), {}, "float32_fast"),
    ("wgmma-tma", problem(), {"BM": 128, "BN": 256}, "registers and has 255"),
    ("wgmma-cooperative", problem(), {"BM": 256, "BN": 256}, "registers and has 240"),
    ("wgmma-multicast", problem(), {"SMS": 1}, "a cluster has 2 CTAs"),
    ("wgmma-store", problem(), {"STAGES": 16}, "bytes of shared memory"),
    ("wgmma-tma", problem(), {"BK": 1024, "BM": 64}, "bytes of shared memory"),
    (FINAL, problem("bit1", b_major="row"), {}, r"B is \[K, N\]"),
    (FINAL, problem(), {"OVERLAP": 2}, "OVERLAP is 2; it is 0 or 1"),
    (FINAL, problem(), {"CONSUMERS": 3, "BM": 192}, "one or two consumer warpgroups"),
    (FINAL, problem(), {"CM": 1, "CN": 8, "SMS": 8}, "clusters are 1x1"),
    (FINAL, problem(), {"CM": 2, "CN": 2, "SMS": 3}, "a cluster has 4 CTAs"),
    (FINAL, problem(), {"OVERLAP": 1, "BM": 256, "BN": 192}, "none to hold a finished tile"),
    (
        FINAL,
        problem("tfloat32", out="float32"),
        {"OVERLAP": 1, "BN": 208, "SWAP": 1},
        "none to hold a finished tile",
    ),
    (FINAL, problem(size=(4096, 4096, 64)), {"OVERLAP": 1, "BN": 128}, "stores during 2 of them"),
    (FINAL, problem(), {"PINGPONG": 1, "STREAM": 1}, "split K of cooperative tiles"),
    (FINAL, problem(), {"SPLITS": 2, "STREAM": 1}, "one of them splits K"),
    (FINAL, problem("int8", accumulator="int32_saturating"), {"SPLITS": 2}, "depend on the order"),
    (FINAL, problem(), {"STREAM": 1, "CM": 4, "SMS": 132}, r"its 132 CTAs wait for each other; .* in clusters of 4"),
    (FINAL, problem(), {"SPLITS": 2}, "its 4096 CTAs wait for each other; .* runs 132 at a time"),
    (FINAL, problem(size=(64, 64, 64)), {"SPLITS": 2}, "K has 1 tiles of 64"),
    (FINAL, problem(), {"BM": 256, "BN": 256}, "registers and has 240"),
    (FINAL, problem("float8_e4m3"), {"BM": 256, "BN": 128}, "registers and has 240"),
    (FINAL, problem("float8_e4m3"), {"CM": 2, "CN": 2, "SMS": 4}, "producer of such a cluster spills"),
    (FINAL, problem(size=(4096, 4095, 4096)), {"OVERLAP": 1, "BN": 256, "SWAP": 1}, "registers and has 224"),
    (FINAL, problem(size=(4096, 4095, 4096)), {"STREAM": 1, "BM": 256}, "a D that TMA cannot store"),
    (FINAL, problem(size=(4092, 4095, 4096)), {"CN": 2, "SMS": 4, "BM": 256, "BN": 192}, "registers and has 240"),
    (FINAL, problem(b_major="col"), {"BM": 64, "BN": 24}, "one warpgroup's with BM=64, must be a multiple of 8"),
    (FINAL, problem(), {"PINGPONG": 1, "CM": 2, "CN": 2, "SMS": 4, "BN": 192}, "160 fit in a cluster along both"),
    (FINAL, problem(b_major="col"), {"BM": 192, "BN": 256, "SWAP": 1}, "144 fit with SWAP=1 and 192 rows"),
    (
        FINAL,
        problem(size=(4096, 4095, 4096), b_major="row"),
        {"BM": 256, "BN": 192},
        "176 fit where K is not contiguous",
    ),
    (FINAL, problem(size=(4096, 4095, 4096)), {"BM": 256, "BN": 128, "SWAP": 1}, "120 fit of float16 with SWAP=1"),
    (
        FINAL,
        problem(size=(4096, 4095, 4096), accumulator="float16"),
        {"BM": 128, "BN": 192, "PINGPONG": 1, "SWAP": 1},
        "92 fit of float16 with SWAP=1",
    ),
    (FINAL, problem(out="float32"), {"PINGPONG": 1, "BM": 128, "BN": 200}, "192 fit of float32 with PINGPONG=1"),
    (FINAL, problem(out="float32"), {"BN": 216, "SWAP": 1, "SMS": 2}, "104 fit of float32 with SWAP=1 and BN=216"),
    (
        FINAL,
        problem(size=(4096, 4095, 4096)),
        {"PINGPONG": 1, "CM": 2, "SMS": 4, "BM": 128, "BN": 152},
        "144 fit in a cluster with PINGPONG=1 and BN=152",
    ),
    (FINAL, problem(), {"STAGES": 9}, "bytes of shared memory"),
    (FINAL, problem(size=(2**31 - 1, 2**31 - 1, 64)), {}, "take larger tiles"),
]


@pytest.mark.parametrize(("name", "of", "change", "reason"), REASONS)
def test_what_cannot_be_taken_is_said(name: str, of: Problem, change: Config, reason: str) -> None:
    dtype = of.a.dtype.name if of.a.dtype.name in RUNGS[FINAL].dtypes else "float16"
    assert re.search(reason, RUNGS[name].illegal(of, small(name, dtype, **change)) or "legal")


def test_a_configuration_has_every_key() -> None:
    assert "it needs" in (RUNGS[FINAL].illegal(problem(), small("wgmma-store")) or "")


@pytest.mark.parametrize("size", few([(4096, 4096, 4096), (1, 1, 8), (4095, 33, 80), (8192, 16, 8192), (7, 9, 0)], 2))
@pytest.mark.parametrize("dtype", WGMMA_FINAL.dtypes)
def test_every_default_is_legal(dtype: str, size: tuple[int, int, int]) -> None:
    if dtype == "bit1":
        size = (*size[:2], max(size[2], 8))  # no depth has no leading dimension that is whole bytes
    for accumulator in DTYPES[dtype].accumulators:
        for a_major, b_major in LAYOUTS if dtype != "bit1" else (("row", "col"),):
            of = problem(dtype, size, a_major, b_major, accumulator)
            for name in NAMES:
                rung = RUNGS[name]
                refused = rung.illegal(of, rung.default_config(of))
                if accumulator == "int32_xor":
                    assert "the accumulator is int32_xor" in (refused or ""), name
                elif name != FINAL and dtype.startswith("float8") and accumulator == "float32":
                    assert "takes two levels" in (refused or ""), name
                else:
                    assert refused is None, name


@pytest.mark.parametrize("name", few(NAMES[::-1], 1))
def test_defaults_compile_without_spills(name: str) -> None:
    turn = NAMES.index(name)
    a_major, b_major = LAYOUTS[turn % 4]
    of = problem(("float16", "bfloat16")[turn % 2], a_major=a_major, b_major=b_major)
    config = RUNGS[name].default_config(of)
    assert RUNGS[name].illegal(of, config) is None
    compiles(name, of, config)


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    few(
        [
            ("tfloat32", "float32"), ("int8", "int32"), ("float8_e4m3", "float32"), ("float8_e5m2", "float32_fast"),
            ("float16", "float16"), ("bit1", "int32"),
        ],
        1,
    ),
)  # fmt: skip
def test_final_compiles_without_spills_in_every_type(dtype: str, accumulator: str) -> None:
    of = problem(dtype, accumulator=accumulator)
    compiles(FINAL, of, RUNGS[FINAL].default_config(of))


def test_stages_and_outputs_are_the_kernels() -> None:
    """What Python counts of shared memory, and of boxes in it, the kernels count too."""
    lines = []
    for dtype in ("float16", "tfloat32", "int8", "bit1"):
        for a_major, b_major in LAYOUTS if dtype == "float16" else (("row", "col"),):
            for bn, swap, most in ((8, 0, 128), (72, 0, 128), (72, 0, 0), (208, 0, 56), (208, 1, 128), (256, 1, 0)):
                of = problem(dtype, a_major=a_major, b_major=b_major, out="float32" if dtype == "tfloat32" else "")
                config = small(FINAL, dtype, BN=bn, SWAP=swap)
                seen = tiles.view(of, config).problem
                operation, tile = tiles.operation_type(seen), tiles.tile_type(seen, config)
                output = tiles.EpilogueSubtiles(seen.d.dtype.bits // 8, bn, seen.d.major == "col", most)
                kind = f"{operation}, {tile}, {str(most > 0).lower()}, 1, false, false, 1, {str(most == 56).lower()}"
                panels = f"warptile::WgmmaEpilogue<{kind}>::SUBTILES"
                facts = {
                    f"warptile::WgmmaStage<{operation}, {tile}>::BYTES": tiles.stage_bytes(seen, config),
                    f"{panels}::W": output.box[0],
                    f"{panels}::LINES": output.box[1],
                    f"{panels}::COUNT": output.count,
                    f"{panels}::BYTES": output.bytes,
                    f"{panels}::BUFFERS": output.buffers,
                }
                lines += [f'static_assert({what} == {count}, "Python: {count}");' for what, count in facts.items()]
    assert len(set(lines)) > 70
    includes = ["#include <cuda_fp16.h>", '#include "tile/wgmma_epilogue.cuh"']
    text = "\n".join([*includes, *lines, "template <int> __global__ void none() {}"])
    compile_source(Source(text, "none<0>"), "sm_90a")
