"""What a rung may ask for beside its grid: clusters, further parameters, workspaces, another view of the problem."""

from dataclasses import replace

import numpy as np
import pytest

from explained import unwrapped
from toy_rung import TOY, Asking, ToyRung, toy_problem, toy_source, toy_view
from warptile.arch import H200
from warptile.device import usual
from warptile.dtypes import DTYPES
from warptile.errors import DirtyWorkspace, UninitializedRead
from warptile.launch.params import Params, Pointer, Scalar
from warptile.launch.tensor_map import TensorMap
from warptile.launch.workspace import Workspace
from warptile.planning.cost_bounds import predict
from warptile.planning.plan import Plan, illegal, make_plan
from warptile.problem import Problem, padded_stride
from warptile.rungs import rung
from warptile.rungs.kernel_spec import View, gemm_members
from warptile.rungs.repack import PASS_LAUNCH_S, Repack, repacked
from warptile.runtime import execute
from warptile.runtime.execute import EmulatorBackend


def problem(m=193, n=161, k=97, element="float16", **kwargs):
    return Problem.dense(m, n, k, DTYPES[element], out=DTYPES["float16"], accumulator=DTYPES["float32"], **kwargs)


def planned(base, given):
    return Plan(given, base, base.default_config(given))


BASE = rung("simt-naive")


def test_rungs_that_ask_for_nothing_are_launched_as_before():
    plan = make_plan(problem(), rung="simt-naive")
    spec = plan.launch("entry")
    assert plan.kernel.view == View(problem())
    assert spec.cluster == (1, 1, 1)
    (params,) = spec.arguments
    assert len(params.members) == 13


def test_a_cluster_and_further_parameters_go_into_the_launch():
    further = (
        ("map", TensorMap("A", "f16", (64, 64), (128,), (64, 8))),
        ("partial_accumulators", Pointer("partial accumulators")),
        ("count", Scalar("u32", 7)),
    )
    asking = Asking(cluster=(2, 1, 1), params=lambda p: Params((*gemm_members(View(p)), *further)))
    spec = planned(asking, problem()).launch("entry", 2, 0)
    assert spec.cluster == (2, 1, 1)
    (params,) = spec.arguments
    assert params.members[13:] == further
    assert spec.operands == ("A", "B", "D", "partial accumulators")


def test_swapped_operands_exchange_pointers_and_extents():
    members = dict(gemm_members(View(problem(5, 161, 97).swapped, a="B", b="A")))
    assert [members[name].operand for name in "abcd"] == ["B", "A", None, "D"]
    assert [members[name].value for name in ("m", "n", "k", "lda", "ldb")] == [161, 5, 97, 161, 97]


@pytest.mark.parametrize(
    ("cluster", "name", "reason"),
    [
        ((2, 1, 1), "sm_90a", None),
        ((2, 1, 1), "sm_80", "clusters of (2, 1, 1) CTAs, which begin with sm_90"),
        ((32, 1, 1), "sm_90a", "a cluster has 1 to 16"),
        ((3, 1, 1), "sm_90a", "not a multiple"),
    ],
)
def test_a_cluster_is_checked_as_shared_memory_is(cluster, name, reason):
    asking = Asking(cluster=cluster, grid=(64, 1, 1))
    found = illegal(asking, problem(), {"BM": 8, "BN": 32}, usual(name))
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("major", ["row", "col"])
def test_a_repacked_operand_is_aligned_and_has_the_requested_layout(major, transposed):
    operand = problem(a_major=major).a
    seen, copy = repacked("A", operand, 193, 97, transposed=transposed)
    assert seen.major == (major if not transposed else {"row": "col", "col": "row"}[major])
    rows_are_lines = seen.major == "row"
    assert (copy.target_lines, copy.target_units) == ((193, 97) if rows_are_lines else (97, 193))
    assert seen.alignment_bytes == 16
    assert seen.leading_dimension * 2 % 128 == 0
    assert seen.leading_dimension - copy.target_units < 64
    assert (copy.source, copy.target, copy.source_stride) == ("A", "repacked A", operand.leading_dimension)
    assert copy.moved_bytes == 2 * 193 * 97 * 2
    assert copy.target_bytes == copy.target_lines * seen.leading_dimension * 2


@pytest.mark.parametrize(
    ("units", "unit_bytes", "stride"), [(1, 1, 16), (16, 1, 16), (17, 1, 32), (128, 1, 128), (129, 1, 256), (5, 4, 8)]
)
def test_lines_start_on_16_bytes_and_long_ones_on_128(units, unit_bytes, stride):
    assert padded_stride(units, unit_bytes) == stride


def test_a_target_that_tma_cannot_load_is_refused():
    with pytest.raises(AssertionError):
        Repack("A", "repacked A", 3, 5, 5, 2, 2, False, 5)


# --- a rung that asks for everything ----------------------------------------------------------------------------------


@pytest.fixture
def toy(monkeypatch):
    """Plans and emulates the toy rung: returns (plan, buffers, report)."""
    monkeypatch.setattr(execute, "translation_unit", toy_source)

    def run(bug=0, given=None, schedule="latest", alpha=1.0, rung=TOY):
        given = given or toy_problem()
        config = {**TOY.default_config(given), "BUG": bug}
        plan = Plan(given, rung, config)
        draw = np.random.default_rng(5).integers
        buffers = {
            "A": draw(-4, 5, (given.m, given.k)).astype(np.float16),
            "B": draw(-4, 5, (given.k, given.n)).astype(np.float16),
            "D": np.full((given.m, given.n), np.nan, np.float32),
        }
        kept = {name: each.copy() for name, each in buffers.items()}
        report = EmulatorBackend(schedule=schedule).emulate(plan, execute.compiled_ptx(plan), buffers, alpha, 0)
        assert all(np.array_equal(buffers[name], kept[name]) for name in "AB")
        return plan, buffers, report

    return run


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:1"])
def test_repacking_a_tensor_map_a_cluster_and_workspaces_make_a_gemm(toy, schedule):
    _, buffers, _ = toy(schedule=schedule, alpha=2.0)
    assert np.array_equal(buffers["D"], 2 * (buffers["A"].astype(np.float32) @ buffers["B"].astype(np.float32)))


def test_the_report_is_of_the_gemm_alone(toy):
    plan, _, report = toy()
    # Each of 256 threads stores one sum, 7 x 13 of them one element of D, and each block counts itself once.
    assert report.counters["global_store_bytes"] == 4 * (256 + 7 * 13 + 2)
    assert [copy.target for copy in plan.kernel.copies] == ["repacked A", "repacked B"]


def test_a_counter_that_is_not_left_zero_is_named(toy):
    with pytest.raises(DirtyWorkspace, match="workspace arrivals: byte 0 of 4 is 2 after the launch"):
        toy(bug=1)


def test_what_a_workspace_held_before_is_undefined(toy):
    with pytest.raises(UninitializedRead, match="sums"):
        toy(bug=2)


def test_padding_of_a_repacked_operand_is_undefined(toy):
    with pytest.raises(UninitializedRead, match="repacked B"):
        toy(bug=3, given=toy_problem(k=17))


def test_a_tensor_map_that_includes_padding_is_caught(toy):
    with pytest.raises(UninitializedRead, match=r"cp.async.bulk.tensor.*repacked A"):
        toy(given=toy_problem(k=20), rung=ToyRung(map_columns=1))


def test_repacking_and_workspaces_are_in_the_plans_text(toy):
    plan, _, _ = toy()
    text = unwrapped(plan.explain())
    assert "launch     repacked A: 2 x 406 bytes; repacked B: 2 x 754 bytes, transposed, predicted" in text
    assert "2 CTAs of 128 threads in clusters of 2 x 1" in text
    assert "workspace  repacked A: 448 bytes\n" in text
    assert "workspace  arrivals: 4 bytes, left zero" in text


def test_repacking_is_part_of_the_predicted_time():
    given = problem(4096, 4096, 4096)

    def repacking(p):
        seen, copy = repacked("B", p.b, p.k, p.n, transposed=True)
        return View(replace(p, b=seen), b=copy.target, repacks=(copy,))

    config = BASE.default_config(given)
    without, with_copy = predict(BASE, given, config), predict(Asking(view=repacking), given, config)
    copy_ms = (2 * 2 * 4096**2 / H200.dram_bytes_per_s + PASS_LAUNCH_S) * 1e3
    assert with_copy.terms["repacking"] == pytest.approx(copy_ms)
    assert with_copy.time_ms == pytest.approx(without.time_ms + copy_ms)
    assert "repacking" not in without.terms


def test_an_empty_operand_is_not_repacked():
    plan = planned(Asking(view=toy_view), toy_problem(k=0))
    assert plan.kernel.copies == ()
    assert [(each.name, each.bytes) for each in plan.kernel.workspaces] == [("repacked A", 112), ("repacked B", 208)]


@pytest.mark.parametrize("wrong", [("D", 4), ("sums", 0)])
def test_a_workspace_without_size_or_with_an_operands_name_is_refused(wrong):
    with pytest.raises(AssertionError):
        Workspace(*wrong)


def test_half_of_a_sparse_operand_is_repacked():
    operand = problem(32, 16, 70, sparse=True).a
    seen, copy = repacked("A", operand, 32, 70)
    assert (copy.lines, copy.units, copy.source_stride) == (32, 35, 35)
    assert seen.sparse
