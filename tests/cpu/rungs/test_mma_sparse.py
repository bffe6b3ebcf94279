"""The rung mma-sparse: right for every type, size and major under every schedule; as many bytes, instructions and
wavefronts as its page says; one line between legal and illegal configurations, drawn by Python and by the kernel."""

from dataclasses import replace

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering, few
from warptile.arrays.operands import arrange
from warptile.arrays.sparse import SparseMatrix, sparsify
from warptile.codegen.nvrtc import compile_ptx, compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.dtypes import DTYPES
from warptile.emulator import EmulationReport
from warptile.errors import CompileError, LayoutError, ShapeError, UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.mma_sparse import INSTRUCTIONS, SparseMmaResources
from warptile.runtime.execute import EmulatorBackend, compiled_ptx
from warptile.verify.reference import error_ratio, is_correct, random_operand, reference

RUNG = RUNGS["mma-sparse"]
OUT = {"float16": "float16", "bfloat16": "bfloat16", "tfloat32": "float32"}
STEP = 64
"""Dense bytes of depth of one instruction."""


def problem(dtype="float16", size=(512, 512, 512), b_major="col", accumulator=None, out=None):
    element = DTYPES[dtype]
    sums = DTYPES[accumulator or element.accumulators[0]]
    result = DTYPES[out or OUT.get(dtype, "int32" if element.kind != "float" else "float32")]
    return Problem.dense(*size, element, out=result, accumulator=sums, b_major=b_major, sparse=True)


def matrix(rows, columns, dtype, generator, gap=0, by_columns=False):
    """Random numbers with ``gap`` unused elements after each row (column): NaN where the type has it."""
    if by_columns:
        return matrix(columns, rows, dtype, generator, gap).T
    whole = random_operand((rows, columns + gap), DTYPES[dtype], generator)
    if gap and DTYPES[dtype].kind == "float":
        whole[:, columns:] = np.nan
    return whole[:, :columns]


def weights(m, k, dtype, generator, gap=0):
    """A random 2:4 matrix, gaps after the rows of its values."""
    made = sparsify(matrix(m, k, dtype, generator))
    values = matrix(m, k // 2, dtype, generator, gap)
    values[...] = made.values
    return SparseMatrix(values, made.metadata)


def ok(m, n, k, *, dtype="float16", b_major="row", out=None, accumulate=None, alpha=1, beta=0, gap=0, config=None,
       schedule="latest") -> EmulationReport:  # fmt: skip
    """Multiply on the emulator, which checks accesses and races, and compare with the product of the dense matrix."""
    generator = np.random.default_rng([m, n, k])
    stored = "float32" if dtype == "tfloat32" else dtype
    precision = "tf32" if dtype == "tfloat32" else None
    a = weights(m, k, stored, generator, gap)
    b = matrix(k, n, stored, generator, gap, by_columns=b_major == "col")
    out = out or OUT.get(dtype, "int32" if DTYPES[dtype].kind != "float" else "float32")
    c = matrix(m, n, out, generator, gap) if beta else None
    frame = np.full((m, n + gap), 9, DTYPES[out].numpy)
    product = arrange(a, b, c, frame[:, :n], beta=beta, out_dtype=out, accumulate=accumulate, precision=precision)
    assert product.copies == ()
    plan = make_plan(product.problem, rung="mma-sparse", config=config)
    buffers = {"A": a.values.base, "B": b.base, "E": a.packed(), "D": frame}
    buffers |= {"C": c.base} if c is not None else {}
    report = EmulatorBackend(schedule=schedule).emulate(plan, compiled_ptx(plan), buffers, alpha, beta)
    expected = reference(product.problem, a.to_dense(), b, c, alpha=alpha, beta=beta)
    assert is_correct(error_ratio(np.ascontiguousarray(frame[:, :n]), expected))
    assert np.all(frame[:, n:] == np.asarray(9, frame.dtype))
    assert report.unfinished_copies == 0
    return report


# --- results -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "b_major", "gap"),
    few(
        [
            ("float16", "row", 3),
            ("float16", "col", 4),
            ("bfloat16", "row", 8),
            ("tfloat32", "row", 4),
            ("tfloat32", "col", 1),
            ("int8", "row", 1),
            ("int8", "col", 16),
            ("uint8", "row", 16),
            ("float8_e4m3", "col", 2),
            ("float8_e5m2", "row", 16),
        ],
        4,
    ),
)
def test_every_type_and_major_in_ragged_products_with_c_and_gaps(dtype, b_major, gap):
    ok(40, 70, 132, dtype=dtype, b_major=b_major, alpha=2, beta=3, gap=gap)


def test_sums_of_whole_numbers_are_exact():
    generator = np.random.default_rng(1)
    w = sparsify(generator.integers(-9, 10, (96, 160)).astype(np.float16))
    x = generator.integers(-9, 10, (160, 72)).astype(np.float16)
    d = wt.matmul(w, x, out_dtype="float32", backend="emulator")
    assert np.array_equal(d, w.to_dense().astype(np.float64) @ x)


@pytest.mark.parametrize(("stages", "schedule"), few(covering((2, 5), ("latest", "earliest", "random:7"), pairs=()), 1))
def test_the_ring_does_not_depend_on_when_copies_land(stages, schedule):
    config = {**RUNG.default_config(problem(size=(64, 64, 500))), "STAGES": stages}
    ok(64, 80, 500, config=config, schedule=schedule)


@pytest.mark.parametrize("schedule", few(["latest", "random:3"], 1))
def test_a_stage_of_one_step(schedule):
    # The copies of a tile are then started before its only barrier.
    config = {**RUNG.default_config(problem(size=(64, 96, 200))), "BK": STEP // 2, "STAGES": 3}
    ok(64, 96, 200, config=config, schedule=schedule)


@pytest.mark.parametrize("size", [(1, 1, 4), *([(33, 1, 36), (8, 8, 0)] if ALL else [])])
def test_small_products(size):
    generator = np.random.default_rng(size)
    w, x = sparsify(matrix(*size[::2], "float16", generator)), matrix(size[2], size[1], "float16", generator)
    d = wt.matmul(w, x, backend="emulator")
    assert is_correct(error_ratio(d, reference(arrange(w, x).problem, w.to_dense(), x)))


@pytest.mark.skipif(not ALL, reason="make test-all")
def test_a_large_tile():
    # 130 rows and 96 columns of one 256 x 128 tile; 112 of 128 elements of depth in its last stage.
    config = RUNG.default_config(problem(size=(8192, 8192, 8192)))
    assert (config["BM"], config["BN"], config["WM"], config["WN"]) == (256, 128, 64, 64)
    ok(130, 96, 240, b_major="col", config=config)


@pytest.mark.parametrize(("dtype", "accumulate"), few([("float16", "float16"), ("int8", "int32_saturating")], 1))
def test_other_accumulators(dtype, accumulate):
    ok(40, 48, 64, dtype=dtype, accumulate=accumulate)


def test_tiles_of_other_widths():
    # Warps of 96 x 48: three strips of B a step; three words of metadata.
    config = {**RUNG.default_config(problem()), "BM": 96, "BN": 96, "WM": 96, "WN": 48, "STAGES": 2}
    ok(100, 96, 136, b_major="col", config=config)


# --- counters ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def a_tile():
    """Counters of a block of 64 x 64, and how many more there are with one tile of 64 halves of depth more."""
    four, five = (ok(64, 64, 64 * tiles, b_major="col").counters for tiles in (4, 5))
    return five, {name: five[name] - four[name] for name in five}


def test_an_instruction_covers_32_halves_of_depth(a_tile):
    five, more = a_tile
    assert five["tensor_instructions"] == (64 // 16) * (64 // 8) * (5 * 64 // 32)
    assert more["barriers"] == 4  # warps


def test_half_of_a_all_of_b_and_a_sixteenth_of_metadata_are_loaded(a_tile):
    # A row of A: 64 halves of depth, 64 bytes of values and 8 of metadata. 64 rows; 64 columns of B of 128 bytes.
    _, more = a_tile
    assert more["global_load_bytes"] == 64 * (64 + 8) + 64 * 128


def test_shared_memory_is_read_without_conflicts(a_tile):
    # Four warps of 32 x 32, two MMA-K blocks: two groups of 16 rows of A and four fragments of B by ldmatrix.x4, four
    # wavefronts each, and a word of metadata for 32 rows.
    _, more = a_tile
    assert more["shared_load_wavefronts"] == 4 * 2 * ((2 + 4) * 4 + 1)
    assert more["shared_load_wavefronts"] == more["shared_load_wavefronts_ideal"]


# --- configurations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INSTRUCTIONS)
def test_the_default_is_legal_whatever_the_alignment(dtype):
    width = 2 if dtype == "tfloat32" else 4
    for size in ((1, 1, width), (4096, 4096, 4096), (4095, 4097, 4096 + width)):
        for b_major in ("row", "col"):
            given = problem(dtype, size, b_major)
            assert RUNG.illegal(given, RUNG.default_config(given)) is None


@pytest.mark.parametrize(
    ("dtype", "size", "b_major"),
    few(
        [
            ("float16", (8192, 8192, 8192), "row"),
            ("int8", (4096, 4096, 4096), "col"),
            ("tfloat32", (4095, 4097, 4098), "row"),
            ("float8_e4m3", (4095, 4097, 4100), "row"),
        ],
        1,
    ),
)
def test_defaults_compile_without_spills(dtype, size, b_major):
    given = problem(dtype, size, b_major)
    kernel = compile_source(translation_unit(RUNG.resolve(given, RUNG.default_config(given))), "sm_90a")
    assert kernel.resources.spill_bytes == 0


BASE = {"BM": 64, "BN": 64, "BK": 64, "WM": 32, "WN": 32, "FM": 16, "FN": 8, "FK": 32, "STAGES": 3, "GROUP": 8}
BASE |= {"MIN_BLOCKS": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"BM": 96, "WM": 64}, "BM is 96; it must be a multiple of WM, which is 64"),
        ({"WM": 16}, "WM is 16; metadata comes for 32 rows"),
        ({"BN": 24, "WN": 24}, "WN is 24; columns of B are loaded 16 at a time"),
        ({"BK": 48}, "BK is 48; an MMA-K block is 32 elements"),
        ({"BK": 32, "WN": 16}, "strips of B of 16 columns and one MMA-K block are double-buffered"),
        ({"BK": 96}, "BK is 48, 96 bytes in a line of A's stage"),
        ({"STAGES": 1}, "a ring needs at least 2"),
        ({"FK": 16}, r"FM, FN, FK are \(16, 8, 16\); float16 has m16n8k32"),
    ],
)
def test_python_and_the_kernel_draw_the_same_line(change, reason):
    given, beyond = problem(), {**BASE, **change}
    assert RUNG.illegal(given, BASE) is None
    with pytest.raises(UnsupportedError, match=reason):
        make_plan(given, rung="mma-sparse", config=beyond)
    with pytest.raises(CompileError):
        compile_source(translation_unit(RUNG.resolve(given, beyond)), "sm_90a")


@pytest.mark.parametrize("dtype", few(["float16", "tfloat32", "int8"], 1))
def test_shared_memory_is_what_the_kernel_lays_out(dtype):
    given = problem(dtype)
    config = RUNG.default_config(given)
    stage = "warptile::SparseStage<warptile::Config::OPERATION, warptile::Config::TILE>"
    source = translation_unit(RUNG.resolve(given, config))
    check = f'static_assert({stage}::BYTES == {SparseMmaResources(given, config).stage_bytes}, "stage");\n'
    compile_ptx(replace(source, text=source.text + check), "sm_90a")
    with pytest.raises(CompileError, match="static assertion"):
        compile_source(replace(source, text=source.text + check.replace("==", "!=")), "sm_90a")


# --- matmul --------------------------------------------------------------------------------------------------------


def test_weights_times_activations_and_back():
    # y = x w.T, as a linear layer has it, is the transpose of w x.T; neither transpose moves anything.
    generator = np.random.default_rng(3)
    w, x = sparsify(matrix(48, 64, "float16", generator)), matrix(20, 64, "float16", generator)
    y = wt.matmul(w, x.T, backend="emulator").T
    assert y.shape == (20, 48)
    expected = reference(arrange(w, x.T).problem, w.to_dense(), x.T)
    assert is_correct(error_ratio(np.ascontiguousarray(y.T), expected))


def test_one_matrix_of_weights_serves_a_batch():
    generator = np.random.default_rng(4)
    w, x = sparsify(matrix(32, 32, "float16", generator)), random_operand((2, 32, 8), DTYPES["float16"], generator)
    d = wt.matmul(w, x, backend="emulator")
    assert d.shape == (2, 32, 8)
    for i in range(2):
        expected = reference(arrange(w, x[i]).problem, w.to_dense(), x[i])
        assert is_correct(error_ratio(d[i], expected))
    v = wt.matmul(w, x[0, :, 0], backend="emulator")
    assert v.shape == (32,)
    assert np.array_equal(v, d[0, :, 0])


def test_a_plan_explains_itself_and_takes_other_weights():
    generator = np.random.default_rng(5)
    w, x = (sparsify(matrix(32, 64, "float16", generator)) for _ in range(2)), matrix(64, 8, "float16", generator)
    first, second = w
    plan = wt.plan(first, x, backend="emulator")
    assert "rung       wgmma-sparse" in plan.explain()
    assert np.array_equal(plan(second, x), wt.matmul(second, x, backend="emulator"))
    with pytest.raises(LayoutError, match=r"a: this plan is for .* make another"):
        plan(second.to_dense(), x)


def test_what_cannot_be_multiplied_says_what_can():
    generator = np.random.default_rng(6)
    w, x = sparsify(matrix(32, 64, "float16", generator)), matrix(8, 64, "float16", generator)
    with pytest.raises(UnsupportedError, match=r"b: got a SparseMatrix .* on the left.* matmul\(w, x.T\).T is x @ w.T"):
        wt.matmul(x, w, backend="emulator")
    with pytest.raises(ShapeError, match=r"a has shape \(32, 64\) and b has shape \(8, 64\)"):
        wt.matmul(w, x, backend="emulator")
    with pytest.raises(UnsupportedError, match=r"A is dense; it takes 2:4 weights, such as .*sparsify\(a\)"):
        wt.matmul(x, x.T, rung="mma-sparse", backend="emulator")
    with pytest.raises(UnsupportedError, match=r"'wmma-final' does not take .*: A is sparse,.* such as a.to_dense\(\)"):
        wt.matmul(w, x.T, rung="wmma-final", backend="emulator")
    single = sparsify(matrix(32, 64, "float32", generator))
    with pytest.raises(UnsupportedError, match="float32 is multiplied as TF32 only; say precision='tf32'"):
        wt.matmul(single, matrix(64, 8, "float32", generator), backend="emulator")


def test_a_group_that_is_cut_is_refused():
    given = replace(problem(), k=510)
    reason = "K is 510; a group of float16 is 4 along K, so it must be a multiple of that"
    assert RUNG.illegal(given, RUNG.default_config(given)) == reason
