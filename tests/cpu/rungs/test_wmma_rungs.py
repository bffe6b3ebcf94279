"""The WMMA rungs: right for every size, type and major; as many bytes and conflicts as their pages say; one line
between legal and illegal configurations, drawn by Python and by the kernels alike."""

from __future__ import annotations

import re

import pytest

from covering import covering, few, of_each
from tensor_product import compiled_once, product
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.dtypes import DTYPES
from warptile.errors import CompileError, UnsupportedError
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wmma import WMMA_RUNGS, nine
from warptile.rungs.wmma_tiles import FRAGMENTS, WmmaResources, capability

NAMES = tuple(rung.name for rung in WMMA_RUNGS)
STAGED = NAMES[1:]
FINAL = RUNGS["wmma-final"]
OUT = {"float16": "float16", "bfloat16": "bfloat16", "float64": "float64"}


def problem(
    dtype: str = "float16", size: tuple[int, int, int] = (512, 512, 512), b_major: str = "row", accumulator: str = ""
) -> Problem:
    element = DTYPES[dtype]
    b_major = "col" if element.bits < 8 else b_major
    sums = DTYPES[accumulator or element.accumulators[0]]
    out = DTYPES[OUT.get(dtype, sums.name)]
    return Problem.dense(*size, element, out=out, accumulator=sums, b_major=b_major)


def ok(*args: object, **kwargs: object) -> dict[str, float]:
    result = product(*args, **kwargs)  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.gaps_kept
    assert result.report.unfinished_copies == 0
    return result.report.counters


# --- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_ragged_product_with_c_and_unaligned_rows(name: str) -> None:
    ok(name, 193, 161, 97, alpha=-1.5, beta=0.5, gap=3)


@pytest.mark.parametrize("name", few(NAMES, 2))
def test_aligned_product_with_b_stored_by_columns_and_d_wider(name: str) -> None:
    ok(name, 136, 272, 96, b_major="col", out="float32", gap=8, beta=2)


@pytest.mark.parametrize("name", few(["wmma-final", "wmma-naive", "wmma-block", "wmma-multistage"], 1))
def test_one_element(name: str) -> None:
    ok(name, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "out"), few(covering(("wmma-naive", "wmma-async", "wmma-final"), ("float16", "float32"), pairs=()), 1)
)
def test_beta_zero_never_reads_c(name: str, out: str) -> None:
    ok(name, 64, 48, 33, with_c=True, beta=0, alpha=2, out=out)


@pytest.mark.parametrize(
    ("name", "schedule"),
    covering(("wmma-multistage", "wmma-double-buffer", "wmma-final"), ("latest", "earliest", "random:7"), pairs=()),
)
def test_rings_do_not_depend_on_when_copies_land(name: str, schedule: str) -> None:
    ok(name, 72, 80, 264, schedule=schedule)


WHOLE_BYTES = ("bfloat16", "tfloat32", "float64", "int8", "uint8")


@pytest.mark.parametrize(
    ("name", "dtype"),
    of_each(
        [
            *(("wmma-final", dtype) for dtype in WHOLE_BYTES),
            *covering(("wmma-naive", "wmma-vectorized"), WHOLE_BYTES, pairs=()),
        ],
        lambda case: case[1:],
    ),
)
def test_every_type(name: str, dtype: str) -> None:
    ok(name, 70, 90, 75, dtype=dtype, alpha=2, beta=3, gap=1)


@pytest.mark.parametrize(
    ("name", "dtype"),
    of_each(
        [
            ("wmma-naive", "int4"),
            ("wmma-naive", "uint4"),
            ("wmma-shared", "bit1"),
            ("wmma-final", "int4"),
            ("wmma-final", "bit1"),
        ],
        lambda case: case[1:],
    ),
)
def test_types_narrower_than_a_byte(name: str, dtype: str) -> None:
    ok(name, 38, 70, 264, dtype=dtype, b_major="col", alpha=2, beta=3, gap=1)


@pytest.mark.parametrize("name", few(["wmma-final", "wmma-naive", "wmma-shared"], 1))
def test_float16_accumulators(name: str) -> None:
    ok(name, 70, 90, 75, accumulator="float16", beta=1, gap=8)


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    covering(("wmma-naive", "wmma-final"), ((32, 8, 16), (8, 32, 16)), ("float16", "bfloat16", "int8"), pairs=()),
)
def test_other_fragment_shapes(name: str, shape: tuple[int, int, int], dtype: str) -> None:
    fm, fn, fk = shape
    config = {**RUNGS[name].default_config(problem(dtype, (70, 90, 75))), "FM": fm, "FN": fn, "FK": fk}
    if name == "wmma-naive":
        config |= {"BM": 2 * fm, "BN": 2 * fn}
    ok(name, 70, 90, 75, dtype=dtype, config=config)


@pytest.mark.parametrize(
    "change", few([{"GROUP": 3}, {"ZIGZAG": 0}, {"STAGES": 5}, {"MIN_BLOCKS": 2}, {"SETS": 1, "BK": 48}], 1)
)
def test_final_in_other_configurations(change: Config) -> None:
    ok("wmma-final", 300, 200, 136, config={**nine(problem())[0], **change})


# --- arithmetic ---------------------------------------------------------------------------------------------------


def test_naive_moves_a_byte_for_four_flop() -> None:
    # A step of m16n16k16 is 2 * 16 * 16 * 16 = 8192 FLOP on 2 * 16 * 16 halves = 1024 bytes: 8 FLOP for each byte that
    # is asked for. Each of its eight loads takes 16 bytes of eight rows, half of each 32-byte sector: 2048 bytes move.
    counters = ok("wmma-naive", 64, 96, 64)
    assert counters["tensor_flops"] == 2 * 64 * 96 * 64
    assert counters["tensor_flops"] / counters["global_load_bytes"] == 8
    assert counters["tensor_flops"] / (32 * counters["global_load_sectors"]) == 4


@pytest.mark.parametrize("name", few(STAGED, 3))
def test_staged_operands_serve_a_block_tile(name: str) -> None:
    # A block's step reads (BM + BN) * BK halves for 2 * BM * BN * BK FLOP: BM * BN / (BM + BN) FLOP a byte.
    config = RUNGS[name].default_config(problem(size=(256, 256, 64)))
    bm, bn = config["BM"], config["BN"]
    counters = ok(name, bm, bn, 64, config=config)
    assert counters["tensor_flops"] / counters["global_load_bytes"] == bm * bn / (bm + bn)


def fragment_load_wavefronts(name: str) -> tuple[float, float]:
    """Wavefronts of shared loads, and the ideal, for one step of BK = 32: two depths less one, without the epilogue."""
    one, two = (ok(name, 128, 128, k) for k in (32, 64))
    return tuple(two[key] - one[key] for key in ("shared_load_wavefronts", "shared_load_wavefronts_ideal"))  # type: ignore[return-value]


@pytest.mark.parametrize("name", few(["wmma-block", "wmma-vectorized", "wmma-async"], 1))
def test_unpadded_rows_conflict_as_derived(name: str) -> None:
    # A fragment is loaded by four groups of eight rows of 16 bytes. Rows of A are 64 bytes apart: eight rows meet in
    # two of the eight 16-byte columns of banks, 4 wavefronts; rows of B are 256 bytes apart: one column, 8 wavefronts.
    # Eight warps x two fragments of depth x (four fragments of A, two of B), four groups each.
    wavefronts, ideal = fragment_load_wavefronts(name)
    assert ideal == 8 * 2 * (4 + 2) * 4
    assert wavefronts == 8 * 2 * (4 * 4 + 2 * 8) * 4
    assert wavefronts / ideal == pytest.approx(16 / 3)


@pytest.mark.parametrize(
    "name", few(["wmma-shared", "wmma-padded", "wmma-multistage", "wmma-double-buffer", "wmma-dynamic-smem"], 2)
)
def test_padded_rows_do_not_conflict(name: str) -> None:
    # 64 + 16 and 256 + 16 bytes: consecutive rows start 16 bytes further on modulo 128 (80 = 5 * 16, 5 is odd).
    wavefronts, ideal = fragment_load_wavefronts(name)
    assert wavefronts == ideal == 8 * 2 * (4 + 2) * 4


def test_final_reads_shared_memory_without_conflicts() -> None:
    for config in (nine(problem())[index] for index in few((8, 0, 5), 1)):
        assert ok("wmma-final", 128, 256, 64, config=config)["shared_load_conflict_ratio"] == 1


def test_final_fills_padded_rows_as_derived() -> None:
    # 384 rows of 128 bytes a stage (256 of A, 2 * 64 of B). A row starts 16 bytes further on than the one before,
    # modulo 128: eight rows take 1 + 3 * 2 + (3 + 4 + 4 + 3) wavefronts. Reading: 8 warps, 4 steps, 8 fragments of 4.
    config = nine(problem())[8]
    assert (config["BM"], config["BN"], config["BK"], config["WM"], config["WN"]) == (256, 128, 64, 64, 64)
    six, seven = (ok("wmma-final", 256, 128, 64 * tiles, config=config) for tiles in (6, 7))
    assert seven["shared_async_copy_wavefronts"] - six["shared_async_copy_wavefronts"] == 384 * 21 // 8
    assert seven["shared_store_wavefronts"] == six["shared_store_wavefronts"]  # D alone
    assert seven["shared_load_wavefronts"] - six["shared_load_wavefronts"] == 8 * 4 * 8 * 4


# --- configurations -----------------------------------------------------------------------------------------------


def compile_rung(name: str, of: Problem, config: Config, arch: str = "sm_90a") -> Source:
    source = translation_unit(RUNGS[name].resolve(of, config))
    assert compiled_once(source, arch).resources.spill_bytes == 0
    return source


@pytest.mark.parametrize(
    ("name", "arch"),
    few([(rung.name, "sm_75") for rung in WMMA_RUNGS if rung.min_arch <= 75], 1)
    + few(covering(NAMES, ("sm_80", "sm_90a"), pairs=())[::-1], 1),
)
def test_defaults_compile_without_spills(name: str, arch: str) -> None:
    large = problem(size=(4096, 4096, 4096))
    config = RUNGS[name].default_config(large)
    assert RUNGS[name].illegal(large, config) is None
    compile_rung(name, large, config, arch)


@pytest.mark.parametrize("dtype", [name for name in FRAGMENTS if name != "float16"])
def test_every_default_is_legal(dtype: str) -> None:
    for size in ((1, 1, 8), (4096, 4096, 4096)):
        for rung in WMMA_RUNGS:
            of = problem(dtype, size)
            assert rung.illegal(of, rung.default_config(of)) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "tfloat32", "float64"])
def test_types_that_an_architecture_lacks_do_not_compile_there(dtype: str) -> None:
    of = problem(dtype)
    assert capability(of) == 80
    with pytest.raises(CompileError, match="sm_80"):
        compile_rung("wmma-naive", of, RUNGS["wmma-naive"].default_config(of), "sm_75")


BASE = {"BM": 64, "BN": 64, "BK": 32, "WM": 32, "WN": 32, "FM": 16, "FN": 16, "FK": 16}
RING = {**BASE, "PAD": 8, "STAGES": 2}

BOUNDARIES = [
    ("wmma-naive", {"BM": 128, "BN": 64, "FM": 16, "FN": 16, "FK": 16}, {"BN": 80}, "32 warps"),
    ("wmma-block", BASE, {"WM": 48}, "multiple of WM"),
    ("wmma-block", BASE, {"WN": 24}, "multiple of WN"),
    ("wmma-block", BASE, {"WM": 8}, "multiple of FM"),
    ("wmma-block", BASE, {"BK": 24}, "multiple of FK"),
    ("wmma-block", {**BASE, "BM": 128, "WM": 16, "WN": 16}, {"BN": 128}, "threads"),
    ("wmma-padded", {**BASE, "PAD": 8}, {"PAD": 4}, "multiple of 8"),
    ("wmma-multistage", RING, {"STAGES": 1}, "at least 2"),
    (
        "wmma-final",
        {**RING, "SETS": 2, "GROUP": 8, "ZIGZAG": 1, "MIN_BLOCKS": 1},
        {"BK": 16},
        "with two sets of fragments",
    ),
]


COMPILED = few([reason for *_, reason in BOUNDARIES], 3)
"""Whether kernels refuse the same: of few boundaries in an ordinary run."""


@pytest.mark.parametrize(("name", "config", "change", "reason"), BOUNDARIES)
def test_python_and_kernels_draw_the_same_line(name: str, config: Config, change: Config, reason: str) -> None:
    of, rung = problem(), RUNGS[name]
    assert rung.illegal(of, config) is None
    beyond = {**config, **change}
    assert re.search(reason, rung.illegal(of, beyond) or "")
    if reason not in COMPILED:
        return
    compile_rung(name, of, config)
    source = translation_unit(rung.resolve(of, beyond))
    if reason == "multiple of 8":  # rows are rounded up to 16 bytes: the kernel would only waste what Python refuses
        return
    with pytest.raises(CompileError):
        compile_source(source, "sm_90a")


@pytest.mark.parametrize(
    ("dtype", "b_major"),
    few([("float16", "row"), ("float16", "col"), ("float64", "row"), ("uint8", "row"), ("int4", "col")], 2),
)
def test_shared_memory_is_what_the_compiler_says(dtype: str, b_major: str) -> None:
    of = problem(dtype, b_major=b_major)
    rung = RUNGS["wmma-multistage"]
    config = {**rung.default_config(of), "BM": 64, "BN": 96, "WM": 32, "WN": 32}
    assert rung.illegal(of, config) is None
    kernel = compiled_once(translation_unit(rung.resolve(of, config)), "sm_90a")
    resources = WmmaResources(of, config)
    assert resources.shared_bytes == kernel.resources.static_shared_bytes


@pytest.mark.parametrize(
    ("dtype", "accumulator"), [("float16", ""), ("float16", "float16"), ("float64", ""), ("int8", ""), ("bit1", "")]
)
@pytest.mark.parametrize("index", few([0, 1, 6], 1))
def test_dynamic_shared_memory_is_the_kernels(dtype: str, accumulator: str, index: int) -> None:
    of = problem(dtype, accumulator=accumulator)
    config = {**nine(of)[index], "STAGES": 2}
    kernel = FINAL.resolve(of, config)
    patch = f"RowPatch<Config::OPERATION, {config['WN']}>"
    text = (
        f'#include "wmma/final.cuh"\n{kernel.instance.text}\n'
        "namespace warptile {\n"
        f"using MEMORY = BlockMemory<Config::OPERATION, Config::TILE, Config::PAD, 2, {patch}>;\n"
        f'static_assert(sizeof(MEMORY) == {kernel.dynamic_shared_bytes}, "Python counts otherwise");\n'
        "}\ntemplate <int> __global__ void nothing() {}\n"
    )
    compile_source(Source(text, "nothing<0>"), "sm_90a")


def test_too_much_shared_memory_and_too_many_registers_are_refused() -> None:
    of = problem()
    assert "bytes of shared memory" in (RUNGS["wmma-multistage"].illegal(of, {**RING, "STAGES": 8}) or "")
    assert "bytes of shared memory" in (FINAL.illegal(of, {**nine(of)[7], "STAGES": 5}) or "")
    assert "registers" in (FINAL.illegal(of, {**nine(of)[6], "WM": 128}) or "")
    assert "registers" in (FINAL.illegal(of, {**nine(of)[6], "MIN_BLOCKS": 2}) or "")


def test_tuning_space_is_wide_legal_and_starts_with_the_nine() -> None:
    of = problem(size=(4096, 4096, 4096))
    space = FINAL.candidates(of)
    assert len(space) >= 300
    assert list(space[:9]) == list(nine(of))
    assert len({tuple(sorted(config.items())) for config in space}) == len(space)
    assert all(FINAL.illegal(of, config) is None for config in space)
    assert {config["STAGES"] for config in space} == {2, 3, 4, 5}
    assert {config["GROUP"] for config in space} == {1, 4, 8, 16}


def test_what_cannot_be_taken_is_said() -> None:
    row_major_bits = Problem.dense(
        64, 64, 128, DTYPES["bit1"], out=DTYPES["int32"], accumulator=DTYPES["int32"], b_major="row"
    )
    assert "stored as [N, K]" in (RUNGS["wmma-naive"].illegal(row_major_bits, {}) or "")
    assert "multiple of 2" in (RUNGS["wmma-naive"].illegal(problem("int4", (64, 64, 97)), {}) or "")
    assert "m16n16k16, m32n8k16" in (RUNGS["wmma-block"].illegal(problem(), {**BASE, "FK": 8}) or "")
    assert "wmma-block takes others" in (RUNGS["wmma-shared"].illegal(problem(), {**BASE, "PAD": 8}) or "")
    with pytest.raises(UnsupportedError, match="float32"):
        product("wmma-naive", 16, 16, 16, dtype="float32")
