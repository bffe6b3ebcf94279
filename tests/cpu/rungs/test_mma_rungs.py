"""The mma rungs: right for every type, major and size; as many wavefronts as their pages say; one line between legal
and illegal configurations, drawn by Python and by the kernels alike."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from covering import covering, few, of_each
from tensor_product import compiled_once, product
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.dtypes import DTYPES
from warptile.errors import CompileError
from warptile.isa import mma
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.mma import FINAL_KEYS, MMA_RUNGS, operation_type, tile_type, usual
from warptile.rungs.mma_tiles import INSTRUCTIONS, MmaResources, capability

NAMES = tuple(rung.name for rung in MMA_RUNGS)
FINAL = RUNGS["mma-final"]
ASYNCHRONOUS = ("mma-double-buffer", "mma-multistage", "mma-final")
MAJORS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
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
    accumulator: str = "",
) -> Problem:
    element = DTYPES[dtype]
    if element.bits < 8:
        a_major, b_major = "row", "col"
    sums = DTYPES[accumulator or element.accumulators[0]]
    out = DTYPES[OUT.get(dtype, "int32" if sums.kind == "int" else "float32")]
    return Problem.dense(*size, element, out=out, accumulator=sums, a_major=a_major, b_major=b_major)


def small(name: str, dtype: str, bm: int = 64, bn: int = 64) -> dict[str, int]:
    """Warps of 32 x 32 (doubles: 32 x 16) in small blocks, quick to emulate."""
    wn, min_blocks = 16 if dtype == "float64" else 32, 0 if "float8" in dtype else 1
    config = {**RUNGS[name].default_config(problem(dtype)), "BM": bm, "BN": bn, "WM": 32, "WN": wn}
    config["MIN_BLOCKS"] = min_blocks
    return config | ({"STAGES": 3} if "STAGES" in config else {})


def ok(*args: object, **kwargs: object) -> dict[str, float]:
    result = product(*args, **kwargs)  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.gaps_kept
    assert result.report.unfinished_copies == 0
    return result.report.counters


# --- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "a_major", "b_major"), covering(OF_EACH_SIZE, ("row", "col"), ("row", "col"), pairs=((1, 2),))
)
def test_every_major(dtype: str, a_major: str, b_major: str) -> None:
    counters = ok(
        "mma-multistage", 70, 90, 75, dtype=dtype, a_major=a_major, b_major=b_major, alpha=2, beta=3, gap=1,
        config=small("mma-multistage", dtype),
    )  # fmt: skip
    assert counters["shared_load_conflict_ratio"] == 1


OTHER_NAMES = tuple(name for name in NAMES if name != "mma-multistage")


@pytest.mark.parametrize(
    ("name", "a_major", "b_major", "dtype"),
    covering(OTHER_NAMES, ("row", "col"), ("row", "col"), OF_EACH_SIZE, pairs=()),
)
def test_every_rung(name: str, a_major: str, b_major: str, dtype: str) -> None:
    ok(
        name, 70, 40, 75, dtype=dtype, a_major=a_major, b_major=b_major, alpha=-2, beta=3, gap=1,
        config=small(name, dtype),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"),
    of_each(
        [
            ("mma-naive", "float8_e4m3"),
            ("mma-naive", "bfloat16"),
            ("mma-final", "bfloat16"),
            ("mma-final", "uint8"),
            ("mma-final", "float8_e4m3"),
            ("mma-final", "float8_e5m2"),
        ],
        lambda case: case[1:],
    ),
)
def test_types_alike_in_size(name: str, dtype: str) -> None:
    a_major, b_major = MAJORS[len(dtype) % 4]
    ok(name, 40, 66, 75, dtype=dtype, a_major=a_major, b_major=b_major, config=small(name, dtype), gap=3)


@pytest.mark.parametrize(
    ("name", "dtype", "accumulator"),
    of_each(
        [
            ("mma-naive", "int4", "int32"),
            ("mma-swizzled", "uint4", "int32"),
            ("mma-double-buffer", "bit1", "int32"),
            ("mma-multistage", "int4", "int32"),
            ("mma-final", "int4", "int32"),
            ("mma-final", "uint4", "int32_saturating"),
            ("mma-final", "bit1", "int32"),
            ("mma-final", "bit1", "int32_xor"),
        ],
        lambda case: case[1:],
    ),
)
def test_types_narrower_than_a_byte(name: str, dtype: str, accumulator: str) -> None:
    ok(
        name, 38, 70, 264, dtype=dtype, accumulator=accumulator, b_major="col", alpha=2, beta=3, gap=1,
        config=small(name, dtype),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype", "accumulator", "out"),
    few(
        [
            ("mma-naive", "float16", "float16", "float16"),
            ("mma-final", "float16", "float16", "float32"),
            ("mma-final", "float16", "float32", "bfloat16"),
            ("mma-final", "tfloat32", "float32", "float16"),
            ("mma-final", "int8", "int32_saturating", "int32"),
            ("mma-final", "float8_e4m3", "float16", "float16"),
        ],
        2,
    ),
)
def test_accumulators_and_outputs(name: str, dtype: str, accumulator: str, out: str) -> None:
    ok(
        name, 40, 72, 75, dtype=dtype, accumulator=accumulator, out=out, a_major="col", b_major="col",
        config=small(name, dtype, 32, 32), beta=2, gap=8,
    )  # fmt: skip


OTHER_SHAPES = [
    (dtype, shape)
    for dtype in ("float16", "tfloat32", "float64", "int8", "int4", "bit1", "float8_e4m3")
    for shape in INSTRUCTIONS[dtype][1:]
]


@pytest.mark.parametrize(("dtype", "shape"), few(OTHER_SHAPES, 2))
def test_other_instructions(dtype: str, shape: tuple[int, int, int]) -> None:
    b_major = "col" if DTYPES[dtype].bits < 8 else "row"
    fm, fn, fk = shape
    config = {**small("mma-vectorized", dtype, 32, 32), "FM": fm, "FN": fn, "FK": fk}
    counters = ok("mma-vectorized", 32, 30, 264, dtype=dtype, b_major=b_major, config=config)
    if dtype not in ("int4", "float8_e4m3"):  # those are made of several others
        assert counters["tensor_instructions"] == 32 * 32 * -(-264 // config["BK"]) * config["BK"] / (fm * fn * fk)


@pytest.mark.parametrize("name", few(NAMES[::-1], 1))
def test_one_element(name: str) -> None:
    ok(name, 1, 1, 1, config=small(name, "float16"), a_major="col")


@pytest.mark.parametrize("name", few(["mma-final", "mma-naive"], 1))
def test_beta_zero_never_reads_c(name: str) -> None:
    ok(name, 64, 48, 33, with_c=True, beta=0, alpha=2, config=small(name, "float16"))


@pytest.mark.parametrize("name", few(NAMES[::-1], 1))
def test_no_depth_at_all_scales_c(name: str) -> None:
    ok(name, 40, 24, 0, beta=2, config=small(name, "float16"), b_major="row")


@pytest.mark.parametrize(("name", "schedule"), covering(ASYNCHRONOUS, ("latest", "earliest", "random:7"), pairs=()))
def test_rings_do_not_depend_on_when_copies_land(name: str, schedule: str) -> None:
    ok(name, 72, 80, 392, schedule=schedule, config=small(name, "float16"))


@pytest.mark.parametrize("change", few([{"GROUP": 3}, {"STAGES": 2}, {"SETS": 1, "STAGES": 5}, {"MIN_BLOCKS": 2}], 1))
def test_final_in_other_configurations(change: Config) -> None:
    ok("mma-final", 200, 136, 392, config={**small("mma-final", "float16"), **change})


def test_every_type_has_its_instructions() -> None:
    assert set(INSTRUCTIONS) == {name for name, element in DTYPES.items() if element.accumulators} - {
        "float32",
        "int32",
    }
    for dtype, shapes in INSTRUCTIONS.items():
        for m, n, k in shapes:
            shape = mma.find(f"m{m}n{n}k{k}", DTYPES[dtype].ptx)
            assert shape is not None
            needed = capability(problem(dtype), {"FM": m, "FN": n, "FK": k})
            assert max(needed, 80) == (90 if dtype == "float64" and m == 16 else 89 if "float8" in dtype else 80)


# --- arithmetic ---------------------------------------------------------------------------------------------------


@cache
def step_counts(name: str) -> dict[str, float]:
    """Counts of one stage of 64 halves in a block of 64 x 64, without the epilogue: two depths less one."""
    one, two = (ok(name, 64, 64, depth, config=small(name, "float16")) for depth in (128, 192))
    return {key: two[key] - one[key] for key in one if "ratio" not in key}


@pytest.mark.parametrize(
    ("name", "ratio"),
    few([("mma-naive", 8), ("mma-vectorized", 8), ("mma-swizzled", 1), ("mma-double-buffer", 1)], 2),
)
def test_the_swizzle_takes_conflicts_from_eight_to_one(name: str, ratio: int) -> None:
    # Four warps x four MMA-K blocks x (two groups of 16 rows of A and two of B) x four matrices each. Without the XOR
    # swizzle the eight rows of a matrix are in the same 16 bytes of 128.
    counts = step_counts(name)
    assert counts["shared_load_wavefronts_ideal"] == 4 * 4 * (2 + 2) * 4
    assert counts["shared_load_wavefronts"] == ratio * 4 * 4 * (2 + 2) * 4


def test_staging_in_16_bytes() -> None:
    # 2 * 64 * 64 halves, one or eight a lane; 64 or 128 bytes a wavefront, with the swizzle too.
    one, eight, swizzled, copied = (step_counts(name) for name in NAMES[:4])
    assert one["global_load_requests"] == 2 * 64 * 64 / 32 == 8 * eight["global_load_requests"]
    assert one["global_load_bytes"] == eight["global_load_bytes"] == 2 * 64 * 64 * 2
    assert one["shared_store_wavefronts"] == 2 * 64 * 64 * 2 / 64
    for each, kind, other in (
        (eight, "store", "async_copy"), (swizzled, "store", "async_copy"), (copied, "async_copy", "store"),
    ):  # fmt: skip
        assert each[f"shared_{kind}_wavefronts"] == each[f"shared_{kind}_wavefronts_ideal"] == 2 * 64 * 64 * 2 / 128
        assert each[f"shared_{other}_wavefronts"] == 0


@pytest.mark.parametrize("out", few(["float16", "float32"], 1))
def test_final_meets_no_conflict_at_all(out: str) -> None:
    # Neither in the ring nor on the way out: 128 columns of D are whole vectors.
    counters = ok("mma-final", 128, 128, 192, out=out, config={**small("mma-final", "float16"), "WN": 64})
    assert counters["shared_load_conflict_ratio"] == 1
    assert counters["shared_store_conflict_ratio"] == 1
    assert counters["shared_async_copy_conflict_ratio"] == 1


# --- configurations -----------------------------------------------------------------------------------------------


def resources_of(name: str, of: Problem, config: Config, arch: str = "sm_90a") -> int:
    """Static shared bytes of the kernel, which does not spill (`compile_source` would raise)."""
    return compiled_once(translation_unit(RUNGS[name].resolve(of, config)), arch).resources.static_shared_bytes


@pytest.mark.parametrize("name", few(NAMES, 1))
def test_defaults_compile_without_spills(name: str) -> None:
    of = problem(size=(4096, 4096, 4096))
    config = RUNGS[name].default_config(of)
    assert RUNGS[name].illegal(of, config) is None
    shared = resources_of(name, of, config)
    if RUNGS[name].resolve(of, config).dynamic_shared_bytes == 0:
        assert shared == MmaResources(of, config).shared_bytes


@pytest.mark.parametrize("dtype", few(["float64", "tfloat32", "int8", "float8_e4m3"], 1))
def test_final_compiles_without_spills_in_every_type(dtype: str) -> None:
    of = problem(dtype, (4096, 4096, 4096))
    resources_of("mma-final", of, FINAL.default_config(of))


@pytest.mark.parametrize(
    ("dtype", "arch"), few([("float16", "sm_80"), ("float8_e4m3", "sm_89"), ("int8", "sm_120a")], 1)
)
def test_other_architectures(dtype: str, arch: str) -> None:
    plan = make_plan(problem(dtype, (4096, 4096, 4096)), rung="mma-multistage", arch=arch)
    resources_of("mma-multistage", plan.problem, plan.config, arch)


def test_doubles_before_hopper_take_the_smallest_instruction() -> None:
    plan = make_plan(problem("float64"), rung="mma-multistage", arch="sm_80")
    assert (plan.config["FM"], plan.config["FN"], plan.config["FK"]) == (8, 8, 4)
    resources_of("mma-multistage", plan.problem, plan.config, "sm_80")


@pytest.mark.parametrize("dtype", list(INSTRUCTIONS))
def test_every_default_is_legal(dtype: str) -> None:
    for size in ((1, 1, 8), (4096, 4096, 4096)):
        for a_major, b_major in MAJORS:
            of = problem(dtype, size, a_major, b_major)
            for rung in MMA_RUNGS:
                assert rung.illegal(of, rung.default_config(of)) is None


@pytest.mark.parametrize(
    ("name", "dtype", "a_bytes", "b_bytes", "majors", "d_bytes"),
    few(
        [
            # The mixes in which the compiler, left to itself, kept to 128 registers and spilled some.
            ("mma-vectorized", "float16", 2, 16, ("row", "row"), 16),
            ("mma-vectorized", "float16", 2, 16, ("col", "row"), 16),
            ("mma-swizzled", "float16", 16, 2, ("row", "row"), 2),
            ("mma-swizzled", "float16", 16, 4, ("row", "row"), 2),
        ],
        2,
    )
    + few(
        covering(
            NAMES, ("float16", "int8", "float64"), (16, 2, 4, 8), (16, 2, 8, 4), MAJORS, (16, 2), pairs=((0, 1), (2, 3))
        ),
        1,
    ),
    ids=str,
)
def test_no_mix_of_alignments_spills(
    name: str, dtype: str, a_bytes: int, b_bytes: int, majors: tuple[str, str], d_bytes: int
) -> None:
    of, rung = problem(dtype, (64, 64, 64), *majors), RUNGS[name]
    unit, out = of.a.dtype.bits // 8, of.d.dtype.bits // 8
    of = replace(
        of,
        a=replace(of.a, alignment_bytes=max(a_bytes, unit)),
        b=replace(of.b, alignment_bytes=max(b_bytes, unit)),
        d=replace(of.d, alignment_bytes=max(d_bytes, out)),
    )
    config = rung.default_config(of)
    assert rung.illegal(of, config) is None
    compiled_once(translation_unit(rung.resolve(of, config)), "sm_90a")


BASE = {"BM": 64, "BN": 64, "BK": 64, "WM": 32, "WN": 32, "FM": 16, "FN": 8, "FK": 16, "MIN_BLOCKS": 0}
RING = {**BASE, "STAGES": 2}
LAST = {**RING, "SETS": 2, "GROUP": 8, "MIN_BLOCKS": 1}

BOUNDARIES = [
    ("mma-naive", problem(), BASE, {"WM": 48}, "multiple of WM"),
    ("mma-naive", problem(), BASE, {"WN": 24}, "multiple of WN"),
    ("mma-naive", problem(), BASE, {"BM": 96, "WM": 24}, "16 at a time"),
    ("mma-naive", problem(), {**BASE, "WN": 16}, {"WN": 8}, "16 at a time"),
    ("mma-naive", problem("tfloat32"), {**BASE, "BK": 32, "FK": 8}, {"WN": 16}, "32 at a time"),
    ("mma-naive", problem(), {**BASE, "BK": 32}, {"BK": 24}, "an MMA-K block is 16 elements"),
    ("mma-naive", problem(), {**BASE, "BK": 32}, {"BK": 48}, "96 bytes in a line of A's stage"),
    ("mma-naive", problem(a_major="col"), {**BASE, "BM": 192, "WM": 64}, {"WM": 48}, "96 bytes of a line of A's stage"),
    ("mma-naive", problem(b_major="col"), {**BASE, "BM": 128, "BN": 128}, {"BM": 256, "BN": 160}, "threads"),
    ("mma-multistage", problem(), RING, {"STAGES": 1}, "at least 2"),
    ("mma-final", problem(), {**LAST, "BK": 32}, {"BK": 16}, "MMA-K blocks are double-buffered"),
    ("mma-final", problem(), {**LAST, "SETS": 1, "STAGES": 3}, {"WM": 16}, "groups of rows are double-buffered"),
    ("mma-final", problem(), {**LAST, "SETS": 1, "STAGES": 3}, {"STAGES": 2}, "at least 3"),
]


COMPILED = few([reason for *_, reason in BOUNDARIES], 3)
"""Whether kernels refuse the same: of few boundaries in an ordinary run."""


@pytest.mark.parametrize(("name", "of", "config", "change", "reason"), BOUNDARIES)
def test_python_and_kernels_draw_the_same_line(
    name: str, of: Problem, config: Config, change: Config, reason: str
) -> None:
    rung, beyond = RUNGS[name], {**config, **change}
    assert rung.illegal(of, config) is None
    assert re.search(reason, rung.illegal(of, beyond) or "")
    if reason not in COMPILED:
        return
    resources_of(name, of, config)
    with pytest.raises(CompileError, match="static assert"):
        compile_source(translation_unit(rung.resolve(of, beyond)), "sm_90a")


@pytest.mark.parametrize("dtype", ["float16", "tfloat32", "float64", "bit1"])
@pytest.mark.parametrize("a_major", ["row", "col"])
def test_dynamic_shared_memory_is_the_kernels(dtype: str, a_major: str) -> None:
    of = problem(dtype, a_major=a_major)
    config = usual(of)[0]
    operation, tile = operation_type(of, config), tile_type(of, config)
    stage = f"warptile::MmaStage<{operation}, {tile}, true>"
    bytes_in_kernel = f"warptile::MMA_MEMORY_BYTES<{stage}, {operation}, {tile}, {config['STAGES']}>"
    shared_bytes = FINAL.resolve(of, config).dynamic_shared_bytes
    text = (
        "#include <cuda_fp16.h>\n"
        '#include "tile/mma_stage.cuh"\n'
        f'static_assert({bytes_in_kernel} == {shared_bytes}, "Python counts otherwise");\n'
        "template <int> __global__ void nothing() {}\n"
    )
    compile_source(Source(text, "nothing<0>"), "sm_90a")


def test_what_cannot_be_taken_is_said() -> None:
    naive, large = RUNGS["mma-naive"], (4096, 4096, 4096)
    a_by_columns = Problem.dense(
        64, 64, 128, DTYPES["bit1"], out=DTYPES["int32"], accumulator=DTYPES["int32"], a_major="col", b_major="col"
    )
    assert "A as [M, K]" in (naive.illegal(a_by_columns, {}) or "")
    assert "multiple of 2" in (naive.illegal(problem("int4", (64, 64, 97)), {}) or "")
    assert "m16n8k16, m16n8k8" in (naive.illegal(problem(), {**BASE, "FK": 4}) or "")
    assert "bytes of shared memory" in (naive.illegal(problem(), {**BASE, "BK": 256}) or "")
    assert "bytes of shared memory" in (FINAL.illegal(problem(size=large), {**usual(problem())[0], "STAGES": 5}) or "")
    assert "registers" in (FINAL.illegal(problem(), {**LAST, "BM": 256, "BN": 128, "WM": 128, "WN": 64}) or "")
    assert "one set or two" in (FINAL.illegal(problem(), {**LAST, "SETS": 3}) or "")


def test_tuning_space_is_wide_legal_and_starts_with_the_usual() -> None:
    of = problem(size=(4096, 4096, 4096))
    space = FINAL.candidates(of)
    assert len(space) >= 300
    assert list(space[: len(usual(of))]) == list(usual(of))
    assert len({tuple(sorted(config.items())) for config in space}) == len(space)
    assert all(set(config) == set(FINAL_KEYS) for config in space)
    assert {config["STAGES"] for config in space} == {2, 3, 4, 5, 6}
    assert {config["FK"] for config in space} == {8, 16}
