"""Batches: as one problem, as one launch on the emulator, and as several where strides or times are against that."""

from dataclasses import replace

import numpy as np
import pytest

import warptile as wt
from covering import alternating, covering, few
from explained import unwrapped
from pretended_gpu import PretendedGpu
from warptile import emulator
from warptile.arrays.array_view import view
from warptile.arrays.batches import batch_stride, batched, launch_indices
from warptile.arrays.operands import arrange
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES, dtype
from warptile.errors import LayoutError, ShapeError, UnwrittenOutput
from warptile.launch.access import Rows
from warptile.launch.params import Scalar
from warptile.launch.tensor_map import TensorMap
from warptile.planning.plan import make_plan
from warptile.planning.tuned_table import ProblemClass
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.legality import blocks
from warptile.runtime.device_product import DeviceProduct
from warptile.runtime.execute import EmulatorBackend, compiled_ptx, output_access
from warptile.runtime.host_operands import host_operands, set_bytes
from warptile.verify.reference import error_ratio, is_correct, random_operand, reference
from wgmma_product import small

FINAL = RUNGS["wgmma-final"]


def drawn(*shape, dtype="float32", seed=0):
    return random_operand(shape, DTYPES[dtype], np.random.default_rng(seed))


def dense(m, n, k, batch, name="float16", out="float32", **options):
    element = dtype(name)
    return Problem.dense(
        m, n, k, element, out=dtype(out), accumulator=dtype(element.accumulators[0]), batch=batch, **options
    )


def planned(problem, **changes):
    return make_plan(problem, rung="wgmma-final", config=small("wgmma-final", **changes), arch="sm_90a")


def members(spec):
    """Members of the struct that the kernel takes, by name."""
    (params,) = spec.arguments
    return dict(params.members)


def switched_on(plan):
    """Names of the flags of ``Config`` that are true."""
    return {name for name, value in plan.kernel.instance.values if value is True}


# --- problems and plans ----------------------------------------------------------------------------------------------


def test_a_dense_batch_is_one_matrix_behind_the_other():
    problem = dense(100, 40, 72, 3, b_major="col", with_c=True)
    assert [each.batch_stride for each in (problem.a, problem.b, problem.c, problem.d)] == [7200, 2880, 4000, 4000]
    assert problem.flops == 3 * 2 * 100 * 40 * 72
    assert problem.single == dense(100, 40, 72, 1, b_major="col", with_c=True)
    # 3 x 24 halves are 144 bytes, of which 16 is a divisor; 3 x 24 bytes are 72.
    assert (dense(3, 8, 24, 2).a.alignment_bytes, dense(3, 8, 24, 2, "int8", "int32").a.alignment_bytes) == (16, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch: got 0"),
        ({"batch": 1}, "a: batch_stride is not 0 and batch is 1"),
        ({"d": replace(dense(8, 8, 8, 2).d, batch_stride=0)}, "each product needs a D of its own"),
        ({"a": replace(dense(8, 8, 8, 2).a, sparse=True)}, "only dense matrices come in batches"),
    ],
)
def test_batches_that_there_are_not(changes, message):
    with pytest.raises(ShapeError, match=message):
        replace(dense(8, 8, 8, 2), **changes)


def test_the_last_rung_of_a_family_takes_batches_and_the_others_say_that_they_do_not():
    problem = dense(128, 128, 128, 2, out="float16")
    took = []
    for rung in RUNGS.values():
        given = problem if not rung.sparse else None
        if given is None:
            continue
        reason = rung.illegal(given, rung.default_config(given.single))
        took += [rung.name] if reason is None else []
        single = rung.illegal(given.single, rung.default_config(given.single))
        assert reason is None or single is not None or "the batch has 2 matrices; it takes one" in reason, rung.name
    assert took == ["simt-warptile", "mma-final", "wgmma-final"]  # and, of float32, wgmma-split


def repacks_of(problem, **changes):
    return {each.source: each for each in planned(problem, **changes).kernel.copies}


def test_operands_that_need_a_copy_are_copied_in_one_launch_for_a_batch():
    problem = dense(100, 40, 36, 3)  # lines of A of 72 bytes
    (of_a,) = repacks_of(problem).values()
    # One behind the other they are one matrix of 300 lines, of 80 bytes then.
    assert (of_a.matrices, of_a.lines, of_a.target_stride, of_a.target_bytes) == (1, 300, 40, 300 * 80)
    assert planned(problem).kernel.view.problem.a.batch_stride == 100 * 40

    apart = replace(problem, a=replace(problem.a, batch_stride=5000))
    (of_a,) = repacks_of(apart).values()
    assert (of_a.matrices, of_a.lines, of_a.source_matrix_stride, of_a.target_bytes) == (3, 100, 5000, 300 * 80)
    assert of_a.moved_bytes == 2 * 3 * 100 * 72
    assert of_a.tiles == 3 * of_a.matrix_tiles

    shared = replace(problem, a=replace(problem.a, batch_stride=0))
    (of_a,) = repacks_of(shared).values()
    assert (of_a.matrices, of_a.lines) == (1, 100)
    assert planned(shared).kernel.view.problem.a.batch_stride == 0


def test_transposed_copies_are_matrices_one_behind_the_other():
    across = dense(100, 48, 64, 3, "int8", "int32")
    plan = make_plan(across, rung="wgmma-final", config=small("wgmma-final", "int8"), arch="sm_90a")
    (of_b,) = plan.kernel.copies
    assert (of_b.matrices, of_b.transposed, of_b.target_matrix_stride) == (3, True, 48 * 64)
    assert plan.kernel.view.problem.b.batch_stride == 48 * 64


def test_the_launch_has_tiles_of_every_matrix():
    # Tiles of 128 x 64: two each. Rows of 144 bytes.
    plan = planned(dense(100, 96, 72, 3, with_c=True), SMS=132)
    spec = plan.launch("entry", 1, 1)
    assert spec.grid == (6, 1, 1)
    given = members(spec)
    maps = [given[name] for name in ("map_a", "map_b", "map_d")]
    assert [each.dims for each in maps] == [(72, 100, 3), (96, 72, 3), (96, 100, 3)]
    assert [each.strides_bytes for each in maps] == [(144, 14400), (192, 13824), (384, 38400)]
    assert [each.box for each in maps] == [(64, 128, 1), (64, 64, 1), (32, 64, 1)]
    assert given["batch"] == Scalar("s32", 3)
    assert given["batch_stride_c"] == given["batch_stride_d"] == Scalar("s64", 9600)
    assert switched_on(plan) == {"BATCHED", "READS_C", "STORE_BY_TMA"}


def test_a_single_matrix_has_tensor_maps_of_two_dimensions_and_no_batch_strides():
    plan = planned(dense(100, 96, 72, 1))
    given = members(plan.launch("entry"))
    assert (given["batch"], given["batch_stride_d"]) == (Scalar("s32", 1), Scalar("s64", 0))
    maps = [each for each in given.values() if isinstance(each, TensorMap)]
    assert [len(each.dims) for each in maps] == [2] * 5  # A and B have one more, of what is inside at their ends
    assert "BATCHED" not in switched_on(plan)


@pytest.mark.parametrize(("swap", "broadcast"), [(0, "BROADCAST_B"), (1, "BROADCAST_A")])
def test_a_shared_operand_is_one_matrix_on_the_side_where_the_kernel_sees_it(swap, broadcast):
    problem = dense(100, 96, 72, 3)
    problem = replace(problem, b=replace(problem.b, batch_stride=0))
    plan = planned(problem, SWAP=swap)
    maps = [each for each in members(plan.launch("entry")).values() if isinstance(each, TensorMap)]
    shared = next(each for each in maps if each.operand == "B")
    assert (shared.dims, shared.strides_bytes) == ((96, 72, 1), (192, 192))
    assert {name for name in switched_on(plan) if name.startswith("BROADCAST")} == {broadcast}


def test_split_k_counts_tiles_of_every_matrix():
    problem = dense(128, 64, 256, 3)
    assert planned(problem, SPLITS=2, SMS=6).launch("entry").grid == (6, 1, 1)
    reason = FINAL.illegal(problem, small("wgmma-final", SPLITS=2, SMS=5), REFERENCE.occupying(5))
    assert "its 6 CTAs wait for each other; NVIDIA H200 certainly runs 5 at a time" in reason
    streamed = planned(problem, STREAM=1, SMS=2)
    # Three tiles for two CTAs: stream-K divides all of them.
    assert members(streamed.launch("entry"))["stream_k_tiles"] == Scalar("s32", 3)


def test_the_default_fills_the_chip_with_the_batch():
    one, many = dense(256, 256, 32768, 1, out="float16"), dense(256, 256, 32768, 64, out="float16")
    assert FINAL.default_config(one)["SPLITS"] > 1
    plan = make_plan(many, rung="wgmma-final", arch="sm_90a")
    assert plan.config["SPLITS"] == 1
    assert plan.prediction.time_ms > make_plan(one, rung="wgmma-final", arch="sm_90a").prediction.time_ms
    shared = replace(many, b=replace(many.b, batch_stride=0))
    cost = make_plan(shared, rung="wgmma-final", config=plan.config, arch="sm_90a").prediction.terms
    assert cost["dram"] < plan.prediction.terms["dram"]
    assert ", 64 times" in unwrapped(plan.explain())


def test_tuned_problems_differ_in_their_batch():
    classes = {batch: ProblemClass.of(dense(256, 256, 256, batch)) for batch in (1, 4, 5)}
    assert {batch: each.batch for batch, each in classes.items()} == {1: 1, 4: 4, 5: 5}
    assert len({each.alike for each in classes.values()}) == 3


# --- from arrays to a problem ----------------------------------------------------------------------------------------


def test_leading_axes_at_one_distance():
    a = np.zeros((2, 3, 4, 5, 6), np.float32)
    matrix = 30

    def stride(array, batch):
        return batch_stride(view(array, "a"), batch)

    assert stride(a, (2, 3, 4)) == matrix
    assert stride(a[:, :, ::2], (2, 3, 2)) == 2 * matrix
    assert stride(a[:, :, :3], (2, 3, 3)) is None
    assert stride(a[:, :, :1], (2, 3, 1)) == 4 * matrix
    assert stride(a[:, ::-1, :1], (2, 3, 1)) is None
    assert stride(a[::-1, :1, :1], (2, 1, 1)) is None
    assert stride(a.transpose(0, 2, 1, 3, 4), (2, 4, 3)) is None
    assert stride(np.broadcast_to(a[0, 0, 0], (7, 5, 6)), (7,)) == 0
    assert stride(np.broadcast_to(a[0, :, :1], (2, 3, 1, 5, 6)), (2, 3, 1)) is None
    assert stride(a[0, 0, :1], (1,)) == 0


def whole(a, b, c=None, out=None, **options):
    """The problem of one launch for all, or why there is none."""
    problem, apart = batched(arrange(a, b, c, out, **options))
    return problem if apart is None else apart


def test_a_batch_of_arrays_is_one_problem():
    a, b = np.zeros((2, 3, 8, 16), np.float16), np.zeros((3, 16, 24), np.float16)
    assert whole(a, b[0]).b.batch_stride == 0
    found = whole(a, np.broadcast_to(b[0], (2, 3, 16, 24)), np.zeros(24, np.float16), beta=1)
    assert (found.batch, found.a.batch_stride, found.c.batch_stride, found.d.batch_stride) == (6, 128, 0, 192)
    # b has three matrices for two batches of three: two launches.
    found, said = batched(arrange(a, b))
    assert (found.batch, found.b.batch_stride) == (3, 384)
    assert said == "the matrices of b have no single batch stride"
    assert launch_indices(arrange(a, b), found) == [(0,), (1,)]
    assert whole(a[0], b).d.batch_stride == 192
    out = np.zeros((8, 3, 24), np.float16)
    found = whole(a[0], b, out=out.swapaxes(0, 1))
    assert (found.d.leading_dimension, found.d.batch_stride) == (72, 24)
    assert "out" in whole(a[0], b, out=np.zeros((3, 2, 8, 24), np.float16)[::-1, 0])
    assert "one product" in whole(a[0, 0], b[0])
    assert "no products" in whole(a[0, :0], b[:0])


TYPES = {"float32": ("float32", "float32"), "float64": ("float64", "float64"), "bfloat16": ("bfloat16", "bfloat16")}
BATCHED = (
    ("simt-split-k", "float32"),
    ("simt-warptile", "float64"),
    ("mma-final", "bfloat16"),
    ("mma-final", "float64"),
    ("simt-gemv", "bfloat16"),
    ("mma-split-k", "float64"),
    ("mma-specialized", "float64"),
    ("mma-unaligned", "bfloat16"),
    ("wgmma-bf16x6", "float32"),
)


@pytest.mark.parametrize(("rung", "name"), BATCHED)
@pytest.mark.parametrize("swap", [False, True])
def test_kernels_beside_the_ladder_take_batches(rung, name, swap):
    extents = (200, 3, 256) if swap else (3, 200, 256)
    problem = dense(*extents, 5, name, TYPES[name][1], b_major="col")
    all_of_it = make_plan(problem, rung=rung, arch="sm_90a")
    one = make_plan(problem.single, rung=rung, config=all_of_it.config, arch="sm_90a")
    seen = all_of_it.kernel.view.problem
    strides = [members(all_of_it.launch("entry"))[f"strides.{each}"].value for each in "abcd"]
    assert strides == [seen.a.batch_stride, seen.b.batch_stride, 0, 600]
    assert min(strides[:2]) > 0
    tiles_of_cta = all_of_it.config.get("TILES", 1)
    if all_of_it.rung.persistent:
        assert all_of_it.kernel.grid == (min(5 * one.kernel.grid[0], one.device.sms), 1, 1)
    elif tiles_of_cta == 1:
        assert all_of_it.kernel.grid == (5 * one.kernel.grid[0], 1, 1)
    else:
        assert all_of_it.kernel.grid == (-(-5 * blocks(problem.single, one.config) // tiles_of_cta), 1, 1)
    values, of_one = dict(all_of_it.kernel.instance.values), dict(one.kernel.instance.values)
    # Addresses of a single GEMM stay constants.
    assert {name for name in values if values[name] != of_one[name]} == {"BATCHED"}
    assert all_of_it.predicted_us < 5 * one.predicted_us


def takes(arch, name, options):
    """Whether GPUs of a generation multiply the types."""
    fewest = {"float8_e4m3": 89, "bfloat16": 80, "int8": 80}.get(name, 80 if "tf32" in options.values() else 0)
    return int(arch[3:5]) >= fewest


@pytest.mark.parametrize(
    ("arch", "name", "options", "extents"),
    [
        (arch, *given, extents)
        for arch, given, extents in covering(
            ("sm_75", "sm_80", "sm_89", "sm_90a"),
            (
                ("float32", {}), ("float32", {"precision": "ieee"}), ("float32", {"precision": "tf32"}),
                ("float64", {}), ("float64", {"batch_invariant": True}), ("float32", {"batch_invariant": True}),
                ("bfloat16", {}), ("int8", {}), ("float8_e4m3", {}),
            ),
            ((64, 64, 64), (1030, 333, 2001), (1, 4096, 4096), (700, 2, 96)),
        )
        if takes(arch, *given)
    ],
    ids=str,
)  # fmt: skip
def test_plans_take_a_batch_in_one_launch_on_every_gpu(monkeypatch, arch, name, options, extents):
    monkeypatch.setenv("WARPTILE_ARCH", arch)
    m, n, k = extents
    a, b = np.empty((8, m, k), DTYPES[name].numpy), np.empty((8, k, n), DTYPES[name].numpy)
    found = wt.plan(a, b, backend="emulator", **options)
    assert (found.plan.problem.batch, found.apart) == (8, None), found.plan


def test_tensor_cores_before_ampere_multiply_large_matrices_one_by_one(monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_75")
    small_ones, large = ((np.empty((8, size, size), np.float16),) * 2 for size in (64, 2048))
    found = wt.plan(*small_ones, backend="emulator")
    assert (found.plan.rung.name, found.plan.problem.batch, found.apart) == ("simt-warptile", 8, None)
    found = wt.plan(*large, backend="emulator")
    assert (found.plan.rung.family, found.plan.problem.batch) == ("wmma", 1)
    assert "takes one matrix at a time, and is predicted to be faster" in unwrapped(found.explain())


# --- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rung", "name", "case"),
    alternating([(*each, case) for each in BATCHED for case in ("few rows", "few columns", "shared")]),
)
def test_products_of_kernels_beside_the_ladder(monkeypatch, rung, name, case):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_90a")
    m, n, k = (5, 70, 136) if case != "few columns" else (70, 3, 130)
    a, b = drawn(3, m, k, dtype=name), drawn(3, n, k, dtype=name, seed=1).swapaxes(1, 2)
    bias = drawn(3, 1, n, dtype=name, seed=2)
    if case == "shared":
        a, bias = a[0], drawn(1, n, dtype=name, seed=2)
    found = wt.plan(a, b, backend="emulator", rung=rung)
    d = wt.matmul(a, b, backend="emulator", rung=rung)
    assert found.plan.problem.batch == 3
    expected = reference(arrange(a, b).problem, a, b)
    for index in range(3):
        one = replace(expected, d=expected.d[index], bound=expected.bound[index])
        assert is_correct(error_ratio(d[index], one)), index
    # Operands of an epilogue are those of the matrix.
    moved = wt.matmul(a, b, epilogue=lambda acc, of: acc + of, of=bias, backend="emulator", rung=rung)
    wanted = expected.d.astype(np.float64) + bias.astype(np.float64)
    assert np.abs(moved.astype(np.float64) - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.fixture
def launches(monkeypatch):
    """Entries of the kernels that the emulator runs."""
    seen, emulate = [], emulator.emulate

    def counting(module, spec, *arguments, **options):
        seen.append(spec)
        return emulate(module, spec, *arguments, **options)

    monkeypatch.setattr(emulator, "emulate", counting)
    monkeypatch.setenv("WARPTILE_ARCH", "sm_90a")
    return seen


def assert_batch(launches, a, b, c=None, *, expected_launches=1, beta=0, out=None, dtype="float16", **changes):
    """One launch (or so many), and every matrix as it should be."""
    options = {"out_dtype": "float32"} if dtype == "float16" else {}
    config = small("wgmma-final", dtype, **changes)
    if out is not None:
        options = {"out": out}
    d = wt.matmul(a, b, c, beta=beta, rung="wgmma-final", config=config, backend="emulator", **options)
    assert len(launches) == expected_launches
    assert out is None or d is out
    what = arrange(a, b, c, beta=beta, **options).problem
    # Tensor cores add many products before they round; one is the widest bound.
    expected = reference(what, a, b, c, beta=beta)
    assert d.shape == expected.d.shape
    for index in np.ndindex(d.shape[:-2]):
        one = replace(expected, d=expected.d[index], bound=expected.bound[index])
        assert is_correct(error_ratio(d[index], one)), index
    return d


def test_a_batch_is_one_launch(launches):
    # Two tiles of rows, one and a half of columns, two K tiles, the last of each in part.
    assert_batch(launches, drawn(3, 136, 72, dtype="float16"), drawn(3, 72, 72, dtype="float16", seed=1))


def test_every_matrix_has_its_own_c(launches):
    a, b = drawn(3, 40, 64, dtype="float16"), drawn(3, 64, 40, dtype="float16", seed=1)
    assert_batch(launches, a, b, drawn(3, 40, 40, seed=2), beta=-0.5)


@pytest.mark.parametrize(("shared", "swap"), alternating([("a", 0), ("ab", 0), ("c", 0), ("b", 0), ("b", 1)]))
def test_shared_operands(launches, shared, swap):
    a, b, c = drawn(3, 40, 64, dtype="float16"), drawn(3, 64, 24, dtype="float16", seed=1), drawn(3, 40, 24, seed=2)
    a = a[0] if "a" in shared else a
    b = np.broadcast_to(b[0], b.shape) if "b" in shared else b
    c = np.broadcast_to(c[0], c.shape) if "c" in shared else c
    changes = {"SWAP": 1, "BM": 64, "BN": 40, "CONSUMERS": 1} if swap else {}
    assert_batch(launches, a, b, c, beta=1, **changes)


@pytest.mark.parametrize("which", few(["a", "b"], 1))
def test_transposed_matrices(launches, which):
    a, b = drawn(3, 40, 64, dtype="float16"), drawn(3, 64, 24, dtype="float16", seed=1)
    if which == "a":
        a = np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)
    else:
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    assert_batch(launches, a, b)


def test_matrices_that_lie_between_each_other(launches):
    # As heads of attention do: the batch axis is inside the rows of A and of D.
    a = drawn(40, 3, 64, dtype="float16").swapaxes(0, 1)
    b = drawn(3, 64, 24, dtype="float16", seed=1)
    memory = np.full((40, 3, 24), 7, np.float32)
    d = assert_batch(launches, a, b, out=memory.swapaxes(0, 1))
    assert np.shares_memory(d, memory)
    assert launches[0].grid == (3, 1, 1)


def test_gaps_between_matrices_stay_as_they_are(launches):
    a, b = drawn(5, 40, 64, dtype="float16")[::2], drawn(3, 64, 24, dtype="float16", seed=1)
    memory = np.full((6, 40, 24), 7, np.float32)
    assert_batch(launches, a, b, out=memory[1::2])
    assert np.all(memory[::2] == 7)


def test_matrices_whose_tiles_epilogue_warps_store(launches):
    # The leading dimension of D is odd: epilogue store warps write a tile while the next is multiplied, of any matrix.
    a, b = drawn(3, 72, 128, dtype="float16"), drawn(3, 128, 72, dtype="float16", seed=1)
    memory = np.full((3, 72, 75), 7, np.float16)
    assert_batch(launches, a, b, out=memory[:, :, :72], OVERLAP=1, SMS=1)
    assert (memory[:, :, 72:] == 7).all()


def test_two_leading_axes(launches):
    a, b = drawn(2, 2, 40, 64, dtype="float16"), drawn(64, 24, dtype="float16", seed=1)
    assert_batch(launches, a, b)


def test_batches_that_are_launched_one_at_a_time(launches):
    a, b = drawn(3, 16, 64, dtype="float16"), drawn(3, 64, 24, dtype="float16", seed=1)
    assert_batch(launches, a[::-1], b, expected_launches=3)


def test_a_launch_takes_the_last_axes_that_have_one_stride(launches):
    a, b = drawn(2, 3, 4, 16, 64, dtype="float16")[:, :2], drawn(2, 2, 4, 64, 24, dtype="float16", seed=1)
    assert_batch(launches, a, b, expected_launches=2)
    assert members(launches[0])["batch"] == Scalar("s32", 8)
    found = wt.plan(a, b, backend="emulator")
    assert found.plan.problem.batch == 8
    said = "(2, 2, 4): one launch for every 8 matrices: the matrices of a have no single batch stride"
    assert said in unwrapped(found.explain())


def test_heads_of_attention_are_one_launch_for_each_sequence(launches):
    q, k = (drawn(2, 24, 3, 16, dtype="float16", seed=seed).swapaxes(1, 2) for seed in (0, 1))
    assert_batch(launches, q, k.swapaxes(2, 3), expected_launches=2)


@pytest.mark.parametrize("axis", [-1, -2, (-2, -1), None])
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_what_an_epilogue_reduces_of_a_batch_of_several_launches(name, axis):
    whole_numbers = np.random.default_rng(0).integers(-3, 4, (2, 2, 9, 3, 8)).astype(name)
    q, k = (each.swapaxes(1, 2) for each in whole_numbers)
    d, largest = wt.matmul(q, k.swapaxes(2, 3), epilogue=lambda acc: (acc, acc.max(axis=axis)), backend="emulator")
    expected = q.astype(np.float64) @ k.swapaxes(2, 3).astype(np.float64)
    assert (d == expected).all()
    assert (largest == expected.max(axis=axis)).all()


@pytest.mark.parametrize("case", alternating(["behind", "apart", "between", "transposed"]))
def test_misaligned_batches_are_repacked_in_one_launch(launches, case):
    a, b = drawn(3, 40, 33, dtype="float16"), drawn(33, 24, dtype="float16", seed=1)
    if case == "apart":
        a = drawn(6, 40, 33, dtype="float16")[::2]
    elif case == "between":
        a = drawn(40, 3, 33, dtype="float16").swapaxes(0, 1)
    elif case == "transposed":
        a = drawn(3, 33, 41, dtype="float16").swapaxes(1, 2)
    assert_batch(launches, a, b, expected_launches=2)
    assert "repack" in launches[0].entry


@pytest.mark.parametrize("b_major", ["row", "col"])
def test_bytes_of_a_batch_are_transposed_in_one_launch(launches, b_major):
    b = drawn(3, 70, 24, dtype="int8", seed=1) if b_major == "row" else drawn(3, 24, 70, dtype="int8").swapaxes(1, 2)
    assert_batch(launches, drawn(3, 40, 70, dtype="int8"), b, dtype="int8", expected_launches=2)


@pytest.mark.parametrize(
    "changes",
    alternating(
        [
            {"CM": 2, "SMS": 2}, {"SPLITS": 2, "SMS": 6}, {"OVERLAP": 1, "BN": 64, "SMS": 2}, {"CN": 2, "SMS": 2},
            {"STREAM": 1, "SMS": 4}, {"PINGPONG": 1, "BM": 64},
        ]
    ),
    ids=lambda changes: " ".join(changes),
)  # fmt: skip
def test_every_schedule(launches, changes):
    wide = "OVERLAP" in changes
    a, b = drawn(3, 72, 136, dtype="float16"), drawn(3, 136, 40, dtype="float16", seed=1)
    out = np.zeros((3, 72, 40), np.float16) if wide else None
    assert_batch(launches, a, b, out=out, **changes)


def test_one_line_may_end_anywhere(launches):
    # A single line of 194 bytes has no next one that would have to begin at a multiple of 16 bytes.
    a, b = drawn(97, dtype="float16"), drawn(97, 16, dtype="float16", seed=1)
    options = {"rung": "wgmma-final", "config": small("wgmma-final"), "backend": "emulator", "out_dtype": "float32"}
    d = wt.matmul(a, b, **options)
    np.testing.assert_allclose(d, a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)


def test_integers(launches):
    a, b = drawn(2, 40, 64, dtype="int8"), drawn(2, 24, 64, dtype="int8", seed=1).swapaxes(1, 2)
    assert_batch(launches, a, b, dtype="int8")


def test_columns_that_tma_does_not_store(launches):
    # Rows of D have 5 floats: stored without TMA, each matrix from its own beginning.
    a, b = drawn(3, 24, 64, dtype="float16"), drawn(3, 5, 64, dtype="float16", seed=1).swapaxes(1, 2)
    assert_batch(launches, a, b, drawn(3, 24, 5, seed=2), beta=2)


def test_no_depth_gives_beta_c(launches):
    c = drawn(3, 8, 16, seed=2)
    a, b = np.zeros((3, 8, 0), np.float16), np.zeros((3, 0, 16), np.float16)
    d = assert_batch(launches, a, b, c, beta=3)
    np.testing.assert_array_equal(d, 3 * c)


def test_torch(launches):
    torch = pytest.importorskip("torch")
    a, b = torch.randn(3, 16, 64, dtype=torch.bfloat16), torch.randn(64, 24, dtype=torch.bfloat16)
    config = small("wgmma-final", "bfloat16")
    d = wt.matmul(a, b, rung="wgmma-final", config=config, backend="emulator", out_dtype="float32")
    assert len(launches) == 1
    torch.testing.assert_close(d, a.float() @ b.float(), rtol=1e-4, atol=1e-4)


def test_a_plan_says_how_and_takes_arrays_like_its_own(launches):
    a, b = drawn(3, 16, 64, dtype="float16"), drawn(3, 64, 24, dtype="float16", seed=1)
    options = {"rung": "wgmma-final", "config": small("wgmma-final"), "backend": "emulator", "out_dtype": "float32"}
    plan = wt.plan(a, b, **options)
    assert "batch      (3,): one launch for all" in unwrapped(plan.explain())
    np.testing.assert_allclose(plan(a, b), a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)
    assert len(launches) == 1
    with pytest.raises(ShapeError, match="a batch of 3 and the arrays are one of 2"):
        plan(a[:2], b[:2])
    with pytest.raises(LayoutError, match=r"one launch, and the matrices of a have no single batch stride"):
        plan(a[::-1], b)
    with pytest.raises(LayoutError, match="b: this plan is for"):
        plan(a, b[0])
    apart = wt.plan(a[::-1], b, **options)
    said = "(3,): one launch for each matrix: the matrices of a have no single batch stride"
    assert said in unwrapped(apart.explain())
    other = wt.plan(a, b, rung="mma-multistage", backend="emulator")
    assert "(3,): one launch for each matrix: the batch has 3 matrices; it takes one" in unwrapped(other.explain())


# --- how it is checked and measured ----------------------------------------------------------------------------------


def test_every_matrix_must_be_written():
    plan = planned(dense(24, 24, 64, 2))
    rows = output_access(plan).complete
    assert rows == Rows(24, 24, 4, 96, matrices=2, matrix_stride_bytes=2304)
    assert rows.element(2304 + 96 * 5 + 4 * 7) == (1, 5, 7)
    between = Rows(24, 8, 4, 64, matrices=2, matrix_stride_bytes=32)
    assert between.element(64 * 5 + 32 + 4 * 7) == (1, 5, 7)
    kernel, operands = compiled_ptx(plan), host_operands(plan.problem)

    class OnlyTheFirst(type(FINAL)):
        """Tells the kernel of one matrix."""

        def resolve(self, problem, config, device=REFERENCE):
            spec = super().resolve(problem, config, device)
            return replace(spec, params=spec.params.with_values({"batch": 1}))

    with pytest.raises(UnwrittenOutput, match=r"D\[1, 0, 0\] was never written: 576 of 1152"):
        EmulatorBackend("sm_90a").emulate(replace(plan, rung=OnlyTheFirst()), kernel, operands, 1, 0)


@pytest.mark.parametrize("shared", [False, True])
def test_a_batch_on_a_device(monkeypatch, shared):
    gpu = PretendedGpu().install(monkeypatch)
    problem = dense(40, 24, 72, 3, out="float16", a_major="col", b_major="col", with_c=True)
    if shared:
        problem = replace(problem, b=replace(problem.b, batch_stride=0))
    b_matrices = 1 if shared else 3
    assert set_bytes(problem) == 2 * (3 * 40 * 72 + b_matrices * 72 * 24 + 3 * 40 * 24)
    product = DeviceProduct(problem, sets=1, alpha=0.5, beta=2)
    assert (product.a.shape, product.b.shape, product.c.shape) == ((3, 40, 72), (3, 72, 24), (3, 40, 24))
    assert np.array_equal(product.b[0], product.b[1]) == shared
    plan = planned(problem)
    assert product.check(plan, product.reference()).wrong is None
    rows = np.array([3, 39])
    found = product.check(plan, product.reference(rows), rows)
    assert (found.wrong, found.rows) == (None, 6)
    assert product.exact_before_rounding(rows).shape == (3, 2, 24)
    gpu.lazy.add("wgmma-final")
    assert product.check(plan, product.reference()).unwritten == 3 * 24
