"""The CUDA-core kernels on the emulator: right on every shape, type and stride, with the traffic that they claim."""

import re

import pytest

from covering import ALL, covering, few, of_each
from simt_product import problem, run
from tensor_product import ptx_once
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.errors import CompileError
from warptile.rungs import RUNGS
from warptile.rungs.simt import SIMT_RUNGS

NAMES = [rung.name for rung in SIMT_RUNGS]
MAJORS = ["row", "col"]


def usual(name: str) -> dict[str, str]:
    """Operand and accumulator type that a rung is mostly used with."""
    if name == "simt-half2":
        return {"element": "float16", "accumulator": "float16"}
    return {"element": "float32"}


@pytest.mark.parametrize(
    ("name", "shape", "b_major"),
    covering(NAMES, ((1, 1, 1), (64, 64, 64), (131, 67, 53)), MAJORS, pairs=((1, 2),)),
    ids=str,
)
def test_every_shape(name, shape, b_major):
    result = run(problem(*shape, b_major=b_major, **usual(name)), name)
    assert result.correct, result.ratio
    assert result.report.unfinished_copies == 0


@pytest.mark.parametrize("name", few(NAMES, 2))
def test_k_of_zero_gives_beta_times_c(name):
    result = run(problem(5, 7, 0, with_c=True, **usual(name)), name, beta=0.5)
    assert result.ratio == 0


@pytest.mark.parametrize(("name", "gap", "b_major"), covering(NAMES, (3, 4), MAJORS, pairs=()))
def test_alpha_beta_and_rows_with_gaps(name, gap, b_major):
    result = run(problem(45, 52, 29, b_major=b_major, gap=gap, with_c=True, **usual(name)), name, alpha=-2, beta=3)
    assert result.correct, result.ratio


@pytest.mark.parametrize("name", few(NAMES, 2))
def test_nans_in_c_do_not_reach_d_when_beta_is_zero(name):
    assert run(problem(33, 36, 8, with_c=True, **usual(name)), name, nan_c=True).correct


@pytest.mark.parametrize(
    ("name", "element", "out"),
    of_each(
        [(rung.name, element, out) for rung in SIMT_RUNGS for element in rung.dtypes for out in (None, "bfloat16")
         if out is None or element in ("float16", "float32")],
        lambda case: case[1:],
    ),
)  # fmt: skip
def test_every_type(name, element, out):
    accumulator = "float16" if name == "simt-half2" else None
    given = problem(37, 44, 21, element, out=out, accumulator=accumulator, gap=4, with_c=True)
    result = run(given, name, alpha=2, beta=-1)
    assert result.correct, result.ratio


@pytest.mark.parametrize("schedule", ["earliest", "latest", "random:3"])
def test_the_ring_of_stages_holds_under_every_schedule(schedule):
    # K of 97 is seven tiles of 16: three stages go round twice, and the first tile has one k.
    result = run(problem(40, 36, 97, "float32"), "simt-warptile", schedule=schedule)
    assert result.correct
    assert result.report.unfinished_copies == 0


def test_more_stages_than_tiles():
    assert run(problem(40, 36, 5, "float32"), "simt-warptile").correct


@pytest.mark.parametrize("b_major", few(MAJORS, 1))
def test_without_cp_async(b_major):
    assert run(problem(40, 36, 97, "float32", b_major=b_major), "simt-warptile", arch="sm_75").correct


def test_a_last_group_of_blocks_that_is_shorter():
    config = dict(zip(("BM", "BN", "BK", "WM", "WN", "TM", "TN", "STAGES", "MIN_BLOCKS", "GROUP"),
                      (32, 32, 16, 16, 32, 4, 4, 3, 8, 2), strict=True))  # fmt: skip
    assert run(
        problem(150, 70, 20, "float32"), "simt-warptile", config=config
    ).correct  # 5 x 3 tiles, groups of two rows


# --- traffic: exact counts, with the arithmetic ---------------------------------------------------------------------

M, N, K = 96, 64, 32


def test_naive_reads_both_operands_for_every_multiply_add():
    counters = run(problem(M, N, K, "float32"), "simt-naive").report.counters
    # A warp is 32 columns of one row: at each k it asks for one element of A and for 32 of B.
    assert counters["global_load_bytes"] == 4 * (M * N * K // 32 + M * N * K)
    assert counters["global_store_bytes"] == M * N * 4
    assert counters["shared_load_requests"] == 0


def test_shared_reads_an_element_once_a_block():
    counters = run(problem(M, N, K, "float32"), "simt-shared").report.counters
    # Tiles of 32 x 32: A is read by N / 32 columns of blocks, B by M / 32 rows of blocks.
    assert counters["global_load_bytes"] == 4 * (M * K * (N // 32) + K * N * (M // 32))
    assert counters["shared_load_conflict_ratio"] == 1
    assert counters["shared_store_conflict_ratio"] == 1


@pytest.mark.parametrize("b_major", MAJORS)
def test_warptile_counts(b_major):
    result = run(problem(M, N, K, "float32", b_major=b_major), "simt-warptile")
    counters, config = result.report.counters, result.plan.config
    bm, bn, warps_per_block = config["BM"], config["BN"], 2
    assert (bm, bn) == (32, 32)
    assert counters["global_load_bytes"] == 4 * (M * K * (N // bn) + K * N * (M // bm))
    # A warp reads TM + TN floats a lane at each k, four at a time.
    warps = (M // bm) * (N // bn) * warps_per_block
    assert counters["shared_load_requests"] == warps * K * (config["TM"] + config["TN"]) // 4
    assert counters["shared_load_conflict_ratio"] == 1
    # cp.async writes a wavefront for each global line it reads. A (and B stored as [N, K]) is transposed: a warp copies
    # 8 k of 4 rows, 4 lines where one pass of 32 banks would do. B as [K, N] goes as 4 rows of 128 bytes in 4 passes.
    # A tile has 16 requests of the first kind an operand (64 wavefronts for 16 passes), 4 of the second (16 for 16).
    assert counters["shared_async_copy_conflict_ratio"] == {"row": (64 + 16) / (16 + 16), "col": 64 / 16}[b_major]
    assert counters["shared_store_wavefronts"] == 0
    # One barrier before the first tile and one between each two: K / BK tiles give K / BK barriers a warp.
    assert counters["barriers"] == warps * (K // config["BK"])


@pytest.mark.parametrize("b_major", few(MAJORS, 1))
def test_half2_has_no_conflicts(b_major):
    given = problem(M, N, K, "float16", accumulator="float16", b_major=b_major)
    counters = run(given, "simt-half2").report.counters
    assert counters["shared_load_conflict_ratio"] == 1
    assert counters["shared_store_conflict_ratio"] == 1


# --- what the compiler says -------------------------------------------------------------------------------------------


def resources(rung, given, config, arch="sm_90a"):
    return compile_source(translation_unit(rung.resolve(given, config)), arch).resources


def sample(configs):
    """A few whose tiles of a thread differ, the first of each; all of them in a long run."""
    unlike = {(config.get("TM"), config.get("TN"), config.get("MIN_BLOCKS")): config for config in configs[::-1]}
    return configs if ALL else few(list(unlike.values()), 1)


@pytest.mark.parametrize(
    ("name", "b_majors", "legal_at_least"),
    [
        ("simt-naive", ["row"], 6),
        ("simt-shared", ["row"], 4),
        ("simt-warptile", MAJORS, 12),
        ("simt-half2", ["row"], 4),
    ],
)
def test_every_candidate_compiles_without_spills(name, b_majors, legal_at_least):
    rung = RUNGS[name]
    problems = [problem(4096, 4096, 4096, b_major=b_major, **usual(name)) for b_major in b_majors]
    for given in problems:
        legal = [config for config in rung.candidates(given) if rung.illegal(given, config) is None]
        assert len(legal) >= legal_at_least
    for config, given in covering(sample(legal), problems, pairs=()):
        assert resources(rung, given, config).spill_bytes == 0, config


def test_float64_candidates_compile_without_spills():
    rung = RUNGS["simt-warptile"]
    given = problem(4096, 4096, 4096, "float64")
    for config in sample([config for config in rung.candidates(given) if rung.illegal(given, config) is None]):
        assert resources(rung, given, config).spill_bytes == 0, config


BOUNDARY = {
    "not whole warp tiles": {"BM": 96},
    "not 32 thread tiles": {"WM": 32},
    "one lane along n": {"WM": 128, "WN": 16, "BN": 128, "TM": 4, "TN": 16},
    "no whole 16-byte pieces": {"TM": 2, "TN": 64, "WM": 64, "WN": 64},
    "one stage": {"STAGES": 1},
    "BK not a multiple of eight": {"BK": 12},
}


@pytest.mark.parametrize("change", BOUNDARY.values(), ids=BOUNDARY)
def test_python_and_static_asserts_refuse_the_same(change):
    rung = RUNGS["simt-warptile"]
    given = problem(4096, 4096, 4096, "float32")
    config = {**rung.default_config(given), **change}
    assert rung.illegal(given, config) is not None
    with pytest.raises(CompileError, match=r"static assertion|static_assert"):
        resources(rung, given, config)


def test_the_inner_loop_is_multiply_adds():
    """At least 90 % of simt-warptile's PTX loop is fma: the rest is 16-byte loads and a few copies."""
    rung = RUNGS["simt-warptile"]
    given = problem(4096, 4096, 4096, "float32")
    config = rung.default_config(given)
    ptx = ptx_once(translation_unit(rung.resolve(given, config)), "sm_90a")[1].decode()
    lines = [line.strip() for line in ptx.splitlines()]
    at = [i for i, line in enumerate(lines) if line.startswith("fma.rn.f32")]
    tile = config["TM"] * config["TN"]
    in_loop = config["BK"] * tile
    assert len(at) == in_loop + tile  # and beta * C of the epilogue
    span = lines[at[0] : at[in_loop - 1] + 1]
    instructions = [line for line in span if re.match(r"(@!?%p\d+ )?[a-z]", line) and line.endswith(";")]
    assert in_loop >= 0.9 * len(instructions)
