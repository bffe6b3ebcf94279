"""mma-unaligned: 16-bit products at any alignment in one launch, batches of small matrices above all."""

from dataclasses import replace

import numpy as np
import pytest
from ml_dtypes import bfloat16

import warptile as wt
from covering import covering, few
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.planning.plan import make_plan
from warptile.problem import Operand, Problem
from warptile.rungs.mma_unaligned import KEYS, MMA_UNALIGNED, SIZES
from warptile.runtime.execute import EmulatorBackend, compiled_ptx

UNALIGNED = {"rung": "mma-unaligned", "backend": "emulator"}
USUAL = (64, 64, 32, 32, 32, 3, 1, 3)
HALF, FLOAT = DTYPES["float16"], DTYPES["float32"]


def lying(batch, rows, columns, layout, offset, gap, dtype=np.float16, seed=0):
    """Normal numbers whose lines have ``gap`` elements between them, ``offset`` elements into memory full of NaNs."""
    lines, line = (rows, columns) if layout == "row" else (columns, rows)
    memory = np.full(batch * lines * (line + gap) + offset + 9, np.nan, dtype)
    held = memory[offset : offset + batch * lines * (line + gap)].reshape(batch, lines, line + gap)[..., :line]
    held[...] = np.random.default_rng((batch, rows, columns, seed)).standard_normal(held.shape).astype(dtype)
    return held if layout == "row" else held.swapaxes(1, 2)


def drawn(*shape, dtype=np.float16, seed=0):
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


def named(size, k):
    """The candidate of a size for such a K."""
    problem = Problem.dense(256, 256, k, HALF, out=HALF, accumulator=FLOAT)
    return MMA_UNALIGNED.candidates(problem)[SIZES.index(size)]


def assert_close(d, a, b, more=0.0):
    """Sums are right but for the roundings of float32 and of the result."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    magnitude = np.abs(wide_a) @ np.abs(wide_b) + np.abs(more)
    bits = {"float16": 11, "bfloat16": 8, "float32": 24}[d.dtype.name]
    error = np.abs(d.astype(np.float64) - (wide_a @ wide_b + more))
    assert (error <= (2.0**-bits + (a.shape[-1] + 2) * 2.0**-22) * magnitude).all()


@pytest.mark.parametrize(
    ("layout", "extents", "lies", "size"),
    few(
        covering(
            ("row row", "row col", "col row", "col col"),
            ((3, 16, 24, 40), (1, 70, 33, 97), (2, 5, 130, 31), (4, 49, 50, 16), (9, 3, 5, 4), (2, 96, 64, 128)),
            ((0, 0), (1, 0), (3, 1), (2, 2), (4, 3), (8, 8), (5, 7)),  # elements before a matrix, and between lines
            SIZES,
            pairs=((0, 2), (0, 3), (1, 2)),
        ),
        24,
    ),
    ids=str,
)
def test_products(layout, extents, lies, size):
    (batch, m, n, k), (offset, gap), (of_a, of_b) = extents, lies, layout.split()
    a, b = lying(batch, m, k, of_a, offset, gap), lying(batch, k, n, of_b, (offset * 3) % 8, gap, seed=1)
    wide = np.full((batch, m + 2, n + 3), 7, np.float16)
    d = wide[:, 1:-1, 1:-2]
    plan = wt.plan(a, b, out=d, config=named(size, k), **UNALIGNED)
    plan(a, b, out=d)
    assert_close(d, a, b)
    wide[:, 1:-1, 1:-2] = 7
    assert (wide == 7).all()


@pytest.mark.parametrize("columns", [7, 8, 12, 33, 64])
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32])
def test_results_of_any_type_and_alignment(columns, dtype):
    """Rows of D are unaligned, and those of C in another way."""
    a, b, c = lying(2, 37, 50, "row", 1, 1), lying(2, 50, columns, "col", 0, 3, seed=1), drawn(2, 37, columns, seed=2)
    if dtype is not np.float32:
        a, b = a.astype(dtype), b.astype(dtype)
    out = np.full(2 * 37 * columns + 2, 7, dtype)
    d = out[1:-1].reshape(2, 37, columns)
    wt.matmul(a, b, c.astype(dtype), beta=0.5, out=d, config=named(USUAL, 50), **UNALIGNED)
    assert_close(d, a, b, 0.5 * c.astype(dtype).astype(np.float64))
    assert out[0] == out[-1] == 7


@pytest.mark.parametrize("ctas_of_sm", ["few", "many"])
@pytest.mark.parametrize("layout", ["row col", "col row"])
def test_copies_are_prepared_before_the_launch_ahead_ends(layout, ctas_of_sm):
    """Where an SM has few CTAs."""
    a_major, b_major = layout.split()
    device = replace(REFERENCE, multiprocessors=132 if ctas_of_sm == "few" else 1)
    one = Problem.dense(33, 21, 27, HALF, out=HALF, accumulator=FLOAT, a_major=a_major, b_major=b_major)
    problem = replace(
        one, batch=20, a=replace(one.a, batch_stride=33 * 27), b=replace(one.b, batch_stride=27 * 21),
        d=replace(one.d, batch_stride=33 * 21),
    )  # fmt: skip
    plan = make_plan(problem, rung="mma-unaligned", config=named((32, 32, 32, 16, 32, 3, 1, 4), 27), device=device)
    assert dict(plan.kernel.instance.values)["PREPARES"] == (ctas_of_sm == "few")
    a = drawn(20, 33, 27) if a_major == "row" else drawn(20, 27, 33)
    b = drawn(20, 27, 21, seed=1) if b_major == "row" else drawn(20, 21, 27, seed=1)
    d = np.full((20, 33, 21), np.nan, np.float16)
    EmulatorBackend().emulate(plan, compiled_ptx(plan), {"A": a, "B": b, "D": d}, 1.0, 0.0)
    assert_close(d, a if a_major == "row" else a.swapaxes(1, 2), b if b_major == "row" else b.swapaxes(1, 2))


@pytest.mark.parametrize("gap", [0, 1, 8])
@pytest.mark.parametrize("columns", [1, 3, 5, 15, 16, 31, 64])
def test_rows_of_d_of_any_length_and_distance(columns, gap):
    """Lines without a vector of 16 bytes, all rows as one line, and lines whose ends are of every length."""
    a, b = lying(3, 37, 20, "row", 0, 0), lying(3, 20, columns, "col", 0, 0, seed=1)
    wide = np.full((3, 37, columns + gap), 7, np.float16)
    d = wide[..., gap:]
    wt.matmul(a, b, out=d, config=named((32, 64, 32, 16, 32, 3, 1, 4), 20), **UNALIGNED)
    assert_close(d, a, b)
    assert (wide[..., :gap] == 7).all()


@pytest.mark.parametrize("size", [SIZES[0], SIZES[2]], ids=str)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("columns", [3, 7, 13, 16])
def test_pairs_whose_second_element_lies_outside(columns, rows, size):
    """Lines of D, of C and of an operand of the epilogue are aligned, and D's columns are odd in number."""
    a, b = drawn(2, rows, 16), drawn(2, 16, columns, seed=1)
    wide = np.full((2, rows, 24), 7, np.float16)
    d, c = wide[..., :columns], drawn(2, rows, columns, seed=2)
    given = {"config": named(size, 16), **UNALIGNED}
    wt.matmul(a, b, c, beta=0.5, out=d, **given)
    assert_close(d, a, b, 0.5 * c.astype(np.float64))
    assert (wide[..., columns:] == 7).all()
    wt.matmul(a, b, out=d, epilogue=lambda acc, x: acc * x, x=c, **given)
    assert np.abs(d - (a.astype(np.float64) @ b) * c).max() <= 0.02 * max(1, np.abs(d).max())
    assert (wide[..., columns:] == 7).all()


def test_an_epilogue():
    a, b, bias = lying(3, 20, 33, "row", 1, 0), lying(3, 33, 29, "row", 0, 1), drawn(29)
    fused = wt.matmul(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **UNALIGNED)
    whole = a.astype(np.float64) @ b.astype(np.float64) + bias
    assert np.abs(fused - np.maximum(whole, 0)).max() <= 0.02
    assert (fused == 0).any()
    assert (fused > 1).any()


def test_matrices_that_all_share_an_operand():
    a, b = lying(5, 13, 22, "row", 1, 0), drawn(22, 9)
    assert_close(wt.matmul(a, b, **UNALIGNED), a, np.broadcast_to(b, (5, 22, 9)))


def test_no_k_gives_zeros():
    assert (wt.matmul(np.ones((3, 5, 0), np.float16), np.ones((3, 0, 7), np.float16), **UNALIGNED) == 0).all()


def test_infinities_and_nans_stay_in_their_rows():
    a, b = drawn(2, 21, 19), drawn(2, 19, 23, seed=1)
    a[0, 3, 18], a[1, 20, 0] = np.inf, np.nan
    d = wt.matmul(a, b, **UNALIGNED)
    wild = ~np.isfinite(d)
    assert wild[0, 3].all()
    assert wild[1, 20].all()
    assert wild.sum() == 2 * 23


def batched(batch, m, n, k):
    """A batch of contiguous matrices, whose alignment is what the extents make it."""
    found = Problem.dense(m, n, k, HALF, out=HALF, accumulator=FLOAT)
    if batch == 1:
        return found

    def of(operand: Operand, elements: int) -> Operand:
        return replace(operand, batch_stride=elements)

    return replace(found, a=of(found.a, m * k), b=of(found.b, k * n), d=of(found.d, m * n), batch=batch)


@pytest.mark.parametrize(
    ("extents", "rung"),
    [
        ((20000, 9, 9, 9), "mma-unaligned"), ((384, 196, 64, 196), "mma-unaligned"),
        ((12, 50, 64, 50), "mma-unaligned"), ((1, 144, 448, 27), "mma-unaligned"), ((1, 614, 911, 24), "mma-unaligned"),
        ((7000, 8, 16, 8), "mma-unaligned"), ((8, 512, 512, 512), "wgmma-final"),
        ((1, 4096, 4096, 4096), "wgmma-final"), ((1, 4095, 4095, 4095), "wgmma-final"),
    ],
)  # fmt: skip
def test_plans_take_it_for_small_matrices(extents, rung):
    plan = make_plan(batched(*extents))
    assert plan.rung.name == rung
    if rung == "mma-unaligned":
        assert plan.config in MMA_UNALIGNED.candidates(plan.problem)


@pytest.mark.parametrize(
    ("extents", "arch", "why"),
    [
        ((1, 512, 512, 512), "sm_90a", "operands are aligned"),
        ((1, 4095, 4095, 4095), "sm_90a", "an aligned copy pays"),
        ((1, 1900, 1107, 17), "sm_90a", "D has 2103300 elements"),
        ((40, 30, 30, 30), "sm_80", "fitted to Hopper"),
    ],
)
def test_plans_leave_it_out(extents, arch, why):
    plan = make_plan(batched(*extents), arch=arch)
    assert plan.rung.name != "mma-unaligned"
    assert why in MMA_UNALIGNED.unsuitable(plan.problem, plan.device)


def test_ampere_runs_it_where_it_is_named():
    plan = make_plan(batched(3, 20, 29, 33), rung="mma-unaligned", arch="sm_80")
    assert not plan.kernel.overlaps_previous
    a, b, d = drawn(3, 20, 33), drawn(3, 33, 29, seed=1), np.full((3, 20, 29), np.nan, np.float16)
    EmulatorBackend("sm_80").emulate(plan, compiled_ptx(plan), {"A": a, "B": b, "D": d}, 1.0, 0.0)
    assert_close(d, a, b)


@pytest.mark.parametrize("extents", [(300, 13, 20, 9), (100, 80, 32, 80), (1, 700, 301, 77), (64, 577, 64, 577)])
def test_candidates_are_ranked_by_their_predictions(extents):
    problem = batched(*extents)
    default, *others = (MMA_UNALIGNED.default_config(problem), *MMA_UNALIGNED.alternatives(problem))
    times = [MMA_UNALIGNED.estimate_us(problem, config) for config in (default, *others)]
    assert times == sorted(times)
    assert len(times) == len(MMA_UNALIGNED.candidates(problem))
    terms, whole = MMA_UNALIGNED.estimate_terms_us(problem, default)
    assert whole == times[0] == pytest.approx(sum(terms.values()))


def test_candidates_have_less_than_half_of_a_tile_outside():
    for m, n in ((1, 1), (15, 33), (31, 32), (32, 31), (500, 20), (500, 500)):
        found = [(each["BM"], each["BN"]) for each in MMA_UNALIGNED.candidates(batched(9, m, n, 40))]
        assert found
        assert all(bm < 2 * max(m, 16) and bn < 2 * max(n, 16) for bm, bn in found)
    assert len(found) == len(SIZES)
    for k in (15, 16, 17, 32, 33, 64, 65, 1000):
        found = MMA_UNALIGNED.candidates(batched(9, 500, 500, k))
        assert all((each["STAGES"] == 1) == (k <= each["BK"]) for each in found)


def test_no_prediction_is_shorter_than_dram():
    problem = batched(400, 512, 512, 16)
    moved = 400 * 2 * (2 * 512 * 16 + 512 * 512)
    assert MMA_UNALIGNED.estimate_us(problem, MMA_UNALIGNED.default_config(problem)) > moved / 4.3e12 * 1e6


def test_predictions_count_the_bytes_of_d_and_of_c():
    halves = batched(400, 256, 256, 16)
    floats = replace(halves, d=replace(halves.d, dtype=FLOAT))
    with_c = replace(halves, c=halves.d)
    config = MMA_UNALIGNED.default_config(halves)
    of_halves, of_floats, of_both = (
        MMA_UNALIGNED.estimate_terms_us(each, config)[0]["dram"] for each in (halves, floats, with_c)
    )
    of_d = (of_halves / (2 * 16 + 256)) * 256  # each element of D has 2 bytes, as have those of A and B
    assert of_floats == of_both == pytest.approx(of_halves + of_d)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"STAGES": 1}, "K of 200 is more than one tile of 32"),
        ({"TILES": 2}, "TILES is 2; a CTA has several tiles where each is a warp's"),
        ({"WM": 48}, "BM is 64; it must be a multiple of WM"),
        ({"BK": 8}, "BK is 8"),
        ({"FK": 4}, "float16 has m16n8k16"),
        ({"STAGES": 30}, "bytes of shared memory"),
        ({"MIN_BLOCKS": 16}, "a thread needs about"),
    ],
)
def test_configurations_that_it_refuses(change, reason):
    config = {**named(USUAL, 200), **change}
    assert set(config) == set(KEYS)
    assert reason in MMA_UNALIGNED.illegal(batched(4, 100, 100, 200), config)


def test_other_types_are_refused():
    problem = Problem.dense(64, 64, 64, FLOAT, out=FLOAT, accumulator=FLOAT)
    assert "it takes float16, bfloat16" in MMA_UNALIGNED.illegal(problem, named(SIZES[0], 64))


@pytest.mark.parametrize("layout", ["row row", "row col", "col row", "col col"])
@pytest.mark.parametrize("size", few(SIZES, 3), ids=str)
def test_kernels_do_not_spill(size, layout):
    """Unaligned lines take more registers, for addresses and shifts."""
    a_major, b_major = layout.split()
    single = Problem.dense(513, 515, 517, HALF, out=HALF, accumulator=FLOAT, a_major=a_major, b_major=b_major)
    config = named(size, 517)
    assert MMA_UNALIGNED.illegal(single, config, REFERENCE) is None
    compiled = compile_source(translation_unit(MMA_UNALIGNED.resolve(single, config)), "sm_90a")
    assert compiled.resources.spill_bytes == 0
