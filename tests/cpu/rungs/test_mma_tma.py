"""mma-tma and mma-tma-swizzled: right for every type, layout, alignment and schedule; exactly the bank conflicts that
their rows predict; one line between legal and illegal configurations, drawn by Python and by the kernels alike."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from covering import covering, few
from tensor_product import compiled_once, ptx_once
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.dtypes import DTYPES
from warptile.errors import CompileError, DataRace, UninitializedRead, UnsupportedError
from warptile.launch.tensor_map import TensorMap
from warptile.planning.cost_bounds import row_conflict_ratio
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.mma_tiles import INSTRUCTIONS
from warptile.rungs.mma_tma import KEYS, MMA_TMA_RUNGS, MmaTma
from wgmma_product import Result, product

NAMES = tuple(rung.name for rung in MMA_TMA_RUNGS)
MAJORS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
SCHEDULES = ("latest", "earliest", "random:3")
OF_EACH_SIZE = ("int8", "float16", "tfloat32", "float64")
"""A type of 1, 2, 4 and 8 bytes: what decides how fragments are read."""

OUT = {name: name for name in ("float16", "bfloat16", "float64")} | dict.fromkeys(
    ("float8_e4m3", "float8_e5m2"), "bfloat16"
)


def problem(
    dtype: str = "float16",
    size: tuple[int, int, int] = (512, 512, 512),
    a_major: str = "row",
    b_major: str = "row",
) -> Problem:
    element = DTYPES[dtype]
    if element.bits < 8:
        a_major, b_major = "row", "col"
    accumulator = DTYPES[element.accumulators[0]]
    out = DTYPES[OUT.get(dtype, "int32" if accumulator.kind == "int" else "float32")]
    return Problem.dense(*size, element, out=out, accumulator=accumulator, a_major=a_major, b_major=b_major)


def small(name: str, dtype: str = "float16", **changes: int) -> dict[str, int]:
    """Warps of 32 x 32 (doubles: 32 x 16) in small CTAs, quick to emulate."""
    sizes = {"BM": 64, "BN": 64, "WM": 32, "WN": 16 if dtype == "float64" else 32, "STAGES": 3}
    return {**RUNGS[name].default_config(problem(dtype)), **sizes, **changes}


def ok(name: str, m: int, n: int, k: int, **options: object) -> Result:
    options.setdefault("config", small(name, str(options.get("dtype", "float16"))))
    result = product(name, m, n, k, **options)  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.guards_kept
    assert result.report.unfinished_copies == 0
    return result


# --- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "a_major", "b_major", "dtype", "gap", "beta", "schedule"),
    covering(
        NAMES, ("row", "col"), ("row", "col"), OF_EACH_SIZE, (0, 1, 5), (0, 3), SCHEDULES,
        pairs=((1, 2),),
    ),
)  # fmt: skip
def test_ragged_sizes_in_every_layout(
    name: str, a_major: str, b_major: str, dtype: str, gap: int, beta: int, schedule: str
) -> None:
    ok(
        name, 131, 97, 75, dtype=dtype, a_major=a_major, b_major=b_major, alpha=-2, beta=beta, gap=gap,
        offset=gap // 2, schedule=schedule,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "types"),
    few(
        covering(
            NAMES,
            (
                ("bfloat16", "float32", "bfloat16"),
                ("float16", "float16", "float16"),
                ("uint8", "int32", "int32"),
                ("int8", "int32_saturating", "int32"),
                ("float8_e4m3", "float32", "bfloat16"),
                ("float8_e5m2", "float16", "float16"),
                ("tfloat32", "float32", "float16"),
            ),
            pairs=(),
        ),
        2,
    ),
    ids=str,
)
def test_other_types(name: str, types: tuple[str, str, str]) -> None:
    dtype, accumulator, out = types
    a_major, b_major = MAJORS[len(dtype + out) % 4]
    ok(
        name,
        40,
        66,
        139,
        dtype=dtype,
        accumulator=accumulator,
        out=out,
        a_major=a_major,
        b_major=b_major,
        beta=2,
        gap=3,
    )


NARROW = (
    ("mma-tma", "int4", "int32"),
    ("mma-tma-swizzled", "uint4", "int32_saturating"),
    ("mma-tma", "bit1", "int32_xor"),
    ("mma-tma-swizzled", "bit1", "int32"),
)


@pytest.mark.parametrize(
    ("name", "dtype", "accumulator", "gap"), [(*case, gap) for case, gap in few(covering(NARROW, (0, 1), pairs=()), 2)]
)
def test_types_narrower_than_a_byte(name: str, dtype: str, accumulator: str, gap: int) -> None:
    ok(name, 38, 70, 264, dtype=dtype, accumulator=accumulator, b_major="col", alpha=2, beta=3, gap=gap)


@pytest.mark.parametrize("size", few([(1, 1, 1), (1, 70, 33), (70, 1, 64), (65, 63, 1), (40, 24, 0)], 2))
@pytest.mark.parametrize("name", few(NAMES[::-1], 1))
def test_hardly_any_rows_columns_or_k(name: str, size: tuple[int, int, int]) -> None:
    ok(name, *size, beta=2, gap=7, offset=8, a_major="col")


@pytest.mark.parametrize("name", few(NAMES, 1))
def test_beta_zero_never_reads_c(name: str) -> None:
    ok(name, 64, 48, 33, with_c=True, beta=0, alpha=2)


@pytest.mark.parametrize(("stages", "schedule"), covering((2, 3, 5), SCHEDULES, pairs=()))
def test_the_result_does_not_depend_on_when_tiles_arrive(stages: int, schedule: str) -> None:
    config = small("mma-tma-swizzled", STAGES=stages, GROUP=3)
    ok("mma-tma-swizzled", 72, 80, 520, schedule=schedule, config=config)


@pytest.mark.parametrize(("name", "dtype"), covering(NAMES, ("float16", "float64", "int4"), pairs=()))
def test_operands_that_tma_cannot_read_are_repacked(name: str, dtype: str) -> None:
    b_major = "col" if dtype == "int4" else "row"
    aligned = ok(name, 32, 64, 64, dtype=dtype, b_major=b_major)
    assert aligned.plan.kernel.copies == ()
    pitched = ok(name, 32, 64, 64, dtype=dtype, b_major=b_major, gap=1)
    assert [(each.source, each.transposed) for each in pitched.plan.kernel.copies] == [
        ("A", False),
        ("B", False),
    ]


# --- arithmetic ---------------------------------------------------------------------------------------------------


@cache
def tile_counts(name: str, dtype: str, a_major: str, b_major: str, bk: int) -> dict[str, float]:
    """Counts of one K tile in a CTA of 64 x 64, without prologue and epilogue: five tiles less four."""
    config = small(name, dtype, BK=bk)
    four, five = (
        ok(name, 64, 64, tiles * bk, dtype=dtype, a_major=a_major, b_major=b_major, config=config).report.counters
        for tiles in (4, 5)
    )
    return {key: five[key] - four[key] for key in four if "ratio" not in key}


@pytest.mark.parametrize(
    ("dtype", "a_major", "b_major", "bk", "ways"),
    few(
        [
            ("float16", "row", "col", 64, 8),
            ("int8", "row", "col", 128, 8),
            ("tfloat32", "row", "col", 32, 8),
            ("float16", "row", "col", 32, 4),  # rows of 64 bytes: every other one begins in the same bank
            *(("float16", a_major, b_major, 64, 8) for a_major, b_major in MAJORS if (a_major, b_major) != MAJORS[1]),
        ],
        1,
    ),
)
def test_plain_rows_have_the_conflicts_that_swizzled_ones_have_not(
    dtype: str, a_major: str, b_major: str, bk: int, ways: int
) -> None:
    # Four warps, each 32 rows of A and 32 columns of B; a wavefront delivers 128 bytes at best. ldmatrix reads eight
    # rows at the same 16 bytes of each, and rows of 128 bytes all begin in bank 0.
    ideal = 4 * (32 + 32) * bk * DTYPES[dtype].bits / 8 / 128
    plain, swizzled = (tile_counts(name, dtype, a_major, b_major, bk) for name in NAMES)
    assert plain["shared_load_wavefronts_ideal"] == swizzled["shared_load_wavefronts_ideal"] == ideal
    assert plain["shared_load_wavefronts"] == ways * ideal
    assert swizzled["shared_load_wavefronts"] == ideal
    if (a_major, b_major) == ("row", "col"):  # lines along K: rows of BK
        assert row_conflict_ratio(bk * DTYPES[dtype].bits / 8) == ways


@pytest.mark.parametrize("name", NAMES)
def test_tma_moves_every_byte_once_and_no_warp_copies(name: str) -> None:
    counts = tile_counts(name, "float16", "row", "col", 64)
    assert counts["tma_load_sectors"] == 2 * 64 * 64 * 2 / 32
    assert counts["global_load_requests"] == 0
    assert counts["shared_store_wavefronts"] == counts["shared_async_copy_wavefronts"] == 0
    assert counts["tensor_instructions"] == 64 * 64 * 64 / (16 * 8 * 16)


@pytest.mark.parametrize(
    ("a_major", "b_major", "dtype"), covering(("row", "col"), ("row", "col"), OF_EACH_SIZE, pairs=((0, 1),))
)
def test_swizzled_fragments_have_no_conflicts_in_any_layout(dtype: str, a_major: str, b_major: str) -> None:
    config = small("mma-tma-swizzled", dtype)
    four, five = (
        ok(
            "mma-tma-swizzled", 64, 64, tiles * config["BK"], dtype=dtype, a_major=a_major, b_major=b_major,
            config=config,
        ).report.counters
        for tiles in (1, 2)
    )  # fmt: skip
    assert (
        five["shared_load_wavefronts"] - four["shared_load_wavefronts"]
        == five["shared_load_wavefronts_ideal"] - four["shared_load_wavefronts_ideal"]
    )


def test_predictions_know_the_conflicts() -> None:
    plain, swizzled = (RUNGS[name].mechanism for name in NAMES)
    assert (plain.by_tma, plain.swizzled, swizzled.by_tma, swizzled.swizzled) == (True, False, True, True)
    of = problem(size=(4096, 4096, 4096))
    terms = [make_plan(of, rung=name).prediction.terms for name in (*NAMES, "mma-final")]
    assert terms[0]["shared"] > 5 * terms[1]["shared"]
    assert terms[1]["shared"] == terms[2]["shared"]
    assert terms[1]["issue"] < terms[2]["issue"]


# --- what is needed -----------------------------------------------------------------------------------------------


def kernel_of(name: str, m: int, n: int, k: int) -> tuple[str, str]:
    """Entry and PTX of the small configuration."""
    of = problem(size=(m, n, k))
    entry, ptx = ptx_once(translation_unit(RUNGS[name].resolve(of, small(name))), "sm_90a")
    return entry, ptx.decode()


@pytest.mark.parametrize("name", NAMES)
def test_every_wait_and_the_barrier_of_the_mainloop_are_needed(name: str) -> None:
    size = (64, 64, 7 * 64)
    entry, ptx = kernel_of(name, *size)
    barriers = [match.start(1) for match in re.finditer(r"^\s*(bar\.sync|barrier\.sync)", ptx, re.M)]
    assert len(barriers) == 2  # the mbarriers are initialised; a stage has been read
    mutant = f"{ptx[: barriers[1]]}// {ptx[barriers[1] :]}"
    with pytest.raises(DataRace):
        product(name, *size, config=small(name), kernel=(entry, mutant.encode()))
    waits = re.findall(r"mbarrier\.try_wait\.parity\S* completed, \[[^\]]+\], [^;]+;", ptx)
    assert len(waits) == 2  # the first tile's, and the mainloop's
    for wait in waits:
        mutant = ptx.replace(wait, "setp.eq.u32 completed, 0, 0;")
        with pytest.raises((DataRace, UninitializedRead)):
            product(name, *size, config=small(name), kernel=(entry, mutant.encode()))


def test_the_maps_swizzle_is_the_loaders() -> None:
    """The other rung's maps give a wrong result: nothing else agrees on the swizzle."""
    for name, other in ((NAMES[0], NAMES[1]), (NAMES[1], NAMES[0])):
        entry, ptx = kernel_of(other, 64, 64, 64)
        template = RUNGS[name].template, RUNGS[other].template
        assert template[1] in entry
        result = product(name, 64, 64, 64, config=small(name), kernel=(entry, ptx.encode()))
        assert not result.error_ratio <= 1


def test_maps_of_the_two_rungs_differ_in_the_swizzle_alone() -> None:
    of = problem(b_major="col")
    plain, swizzled = (RUNGS[name].resolve(of, small(name)).params.members for name in NAMES)
    for (_, before), (_, after) in zip(plain, swizzled, strict=True):
        if isinstance(before, TensorMap):
            assert before.swizzle == "none"
            assert before.box == (64, 64)
            assert replace(before, swizzle="128B") == after
        else:
            assert before == after


# --- configurations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(INSTRUCTIONS))
@pytest.mark.parametrize("name", NAMES)
def test_every_default_is_legal(name: str, dtype: str) -> None:
    for size in ((1, 1, 8), (4096, 4096, 4096)):
        for a_major, b_major in MAJORS:
            of = problem(dtype, size, a_major, b_major)
            assert RUNGS[name].illegal(of, RUNGS[name].default_config(of)) is None


@pytest.mark.parametrize(("name", "dtype"), few(covering(NAMES, tuple(INSTRUCTIONS), pairs=()), 1))
def test_defaults_compile_without_spills(name: str, dtype: str) -> None:
    a_major, b_major = MAJORS[len(dtype) % 4]
    of = problem(dtype, (4096, 4096, 4096), a_major, b_major)
    compiled_once(translation_unit(RUNGS[name].resolve(of, RUNGS[name].default_config(of))), "sm_90a")


def test_candidates_are_legal_and_differ() -> None:
    of = problem(size=(4096, 4096, 4096))
    found = RUNGS["mma-tma-swizzled"].candidates(of)
    assert len({tuple(sorted(config.items())) for config in found}) == len(found) >= 20
    assert all(set(config) == set(KEYS) for config in found)
    assert {config["STAGES"] for config in found} == {2, 3, 4, 5}


BASE = {"BM": 64, "BN": 64, "BK": 64, "WM": 32, "WN": 32, "FM": 16, "FN": 8, "FK": 16, "STAGES": 2, "GROUP": 8}
BASE["MIN_BLOCKS"] = 1
BOUNDARIES = [
    (problem(), BASE, {"STAGES": 1}, "at least 2"),
    (problem(), {**BASE, "BK": 32}, {"BK": 16}, "double-buffered"),
    (problem(), {**BASE, "BM": 256, "WM": 64}, {"BM": 320}, "320 lines of A; a box of TMA has at most 256"),
    (problem(a_major="col"), {**BASE, "BK": 256}, {"BK": 288}, "288 lines of A; a box of TMA has at most 256"),
]


COMPILED = few([(name, reason) for *_, reason in BOUNDARIES for name in NAMES], 2)
"""Whether kernels refuse the same: of few boundaries in an ordinary run."""


@pytest.mark.parametrize(("of", "config", "change", "reason"), BOUNDARIES)
@pytest.mark.parametrize("name", NAMES)
def test_python_and_kernels_draw_the_same_line(
    name: str, of: Problem, config: Config, change: Config, reason: str
) -> None:
    rung, beyond = RUNGS[name], {**config, **change}
    assert isinstance(rung, MmaTma)
    assert rung.illegal(of, config) is None
    assert re.search(reason, rung.illegal(of, beyond) or "")
    if (name, reason) not in COMPILED:
        return
    kernel = rung.resolve(of, config)
    compiled_once(translation_unit(kernel), "sm_90a")
    with pytest.raises(CompileError, match="static assert"):
        compile_source(translation_unit(replace(kernel, instance=rung.instance(of, beyond))), "sm_90a")


def test_what_cannot_be_taken_is_said() -> None:
    rung = RUNGS["mma-tma"]
    assert "bytes of shared memory" in (rung.illegal(problem(), {**BASE, "STAGES": 40}) or "")
    assert "A as [M, K]" in (
        rung.illegal(replace(problem("int4"), a=replace(problem("int4").a, major="col")), BASE) or ""
    )
    half, single = DTYPES["float16"], DTYPES["float32"]
    batch = Problem.dense(64, 64, 64, half, out=single, accumulator=single, batch=2)
    assert "it takes one in a launch" in (rung.illegal(batch, BASE) or "")
    with pytest.raises(UnsupportedError, match=r"compute capability 9\.0 and sm_80 has 8\.0"):
        make_plan(problem(), rung="mma-tma", arch="sm_80")


@pytest.mark.parametrize(("dtype", "rung"), [("float64", "mma-specialized"), ("int4", "mma-final")])
def test_a_plan_without_a_named_rung_takes_the_tuned_one(dtype: str, rung: str) -> None:
    assert make_plan(problem(dtype, (4096, 4096, 4096))).rung.name == rung
