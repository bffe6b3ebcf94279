"""What a rung may ask for beside its grid: clusters, further parameters, workspaces, another view of the problem."""

from dataclasses import replace

import pytest

from warptile.arch import arch
from warptile.dtypes import DTYPES
from warptile.launch import Pointer, Scalar, TensorMap
from warptile.plan import Plan, illegal, make_plan
from warptile.predict import Prediction
from warptile.problem import Problem
from warptile.rungs import rung
from warptile.rungs.copies import Copy, copied, padded_stride
from warptile.rungs.rung import View


def problem(m=193, n=161, k=97, element="float16", **kwargs):
    return Problem.dense(m, n, k, DTYPES[element], out=DTYPES["float16"], accumulator=DTYPES["float32"], **kwargs)


def planned(base, given):
    return Plan(given, base, base.default_config(given), "sm_90a", Prediction(1.0, "dram", 1.0, "H200"))


BASE = rung("simt-naive")


def test_rungs_that_ask_for_nothing_are_launched_as_before():
    plan = make_plan(problem(), rung="simt-naive")
    spec = plan.launch("entry")
    assert plan.view == View(problem())
    assert spec.cluster == (1, 1, 1)
    assert len(spec.arguments) == 13


def test_a_cluster_and_further_parameters_go_into_the_launch():
    further = (TensorMap("A", "f16", (64, 64), (128,), (64, 8)), Pointer("partial sums"), Scalar("u32", 7))
    asking = replace(BASE, cluster=lambda p, c: (2, 1, 1), parameters=lambda p, c: further)
    spec = planned(asking, problem()).launch("entry", 2, 0)
    assert spec.cluster == (2, 1, 1)
    assert spec.arguments[13:] == further
    assert spec.operands == ("A", "B", "D", "partial sums")


def test_a_turned_view_exchanges_operands_and_extents():
    given = problem(5, 161, 97)

    def turned(p, config):
        a = replace(p.b, major="col" if p.b.major == "row" else "row")
        b = replace(p.a, major="col" if p.a.major == "row" else "row")
        return View(replace(p, m=p.n, n=p.m, a=a, b=b), a="B", b="A")

    spec = planned(replace(BASE, view=turned), given).launch("entry")
    pointers = [each.operand for each in spec.arguments[:4]]
    assert pointers == ["B", "A", None, "D"]
    assert [each.value for each in spec.arguments[4:9]] == [161, 5, 97, 161, 97]


@pytest.mark.parametrize(
    ("cluster", "name", "reason"),
    [
        ((2, 1, 1), "sm_90a", None),
        ((2, 1, 1), "sm_80", "clusters of (2, 1, 1) blocks, which begin with sm_90"),
        ((32, 1, 1), "sm_90a", "a cluster has 1 to 16"),
        ((3, 1, 1), "sm_90a", "not a multiple"),
    ],
)
def test_a_cluster_is_checked_as_shared_memory_is(cluster, name, reason):
    asking = replace(BASE, cluster=lambda p, c: cluster, grid=lambda p, c: (64, 1, 1))
    found = illegal(asking, problem(), {"BM": 8, "BN": 32}, arch(name))
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("major", ["row", "col"])
def test_a_copied_operand_is_aligned_and_has_the_major_that_was_asked_for(major, transposed):
    operand = problem(a_major=major).a
    seen, copy = copied("A", operand, 193, 97, transposed=transposed)
    assert seen.major == (major if not transposed else {"row": "col", "col": "row"}[major])
    rows_are_lines = seen.major == "row"
    assert (copy.target_lines, copy.target_units) == ((193, 97) if rows_are_lines else (97, 193))
    assert seen.alignment_bytes == 16
    assert seen.leading_dimension * 2 % 128 == 0
    assert seen.leading_dimension - copy.target_units < 64
    assert (copy.source, copy.target, copy.source_stride) == ("A", "copy of A", operand.leading_dimension)
    assert copy.moved_bytes == 2 * 193 * 97 * 2
    assert copy.target_bytes == copy.target_lines * seen.leading_dimension * 2


@pytest.mark.parametrize(
    ("units", "unit_bytes", "stride"), [(1, 1, 16), (16, 1, 16), (17, 1, 32), (128, 1, 128), (129, 1, 256), (5, 4, 8)]
)
def test_lines_start_on_16_bytes_and_long_ones_on_128(units, unit_bytes, stride):
    assert padded_stride(units, unit_bytes) == stride


def test_a_copy_whose_target_no_tensor_copy_can_read_is_refused():
    with pytest.raises(AssertionError):
        Copy("A", "copy of A", 3, 5, 5, 2, 2, False, 5)
