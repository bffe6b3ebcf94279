"""Kernels with one planted bug each are reported with their source lines; their corrected twins pass."""

from __future__ import annotations

import re

import numpy as np
import pytest

from covering import covering, few
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError, UnwrittenOutput
from wrong_kernel import FOLDER, Case, WrongResult, check_result, compiled
from wrong_kernel_cases import CASES, page

OTHERS = ("earliest", "random:7")
DOCUMENT = FOLDER.parents[1] / "docs" / "planted-bugs.md"


def runs() -> list[tuple[Case, str]]:
    """Every kernel under the schedule that completes copies as late as possible, and a few under one of the others,
    or all of them with WARPTILE_TESTS=all."""
    others = covering(few(CASES, 4), OTHERS, pairs=())
    return sorted([(case, "latest") for case in CASES] + others, key=lambda run: run[0].name)


def runs_of_twins() -> list[tuple[Case, str]]:
    """Every third kernel under one schedule, or all of them under each with WARPTILE_TESTS=all."""
    return covering(few(CASES, -(-len(CASES) // 3)), ("latest", *OTHERS), pairs=())


def name(value: Case | str) -> str:
    return value.name if isinstance(value, Case) else value


@pytest.mark.parametrize(("case", "schedule"), runs(), ids=name)
def test_the_bug_is_caught_and_named(case: Case, schedule: str) -> None:
    # A copy without a wait is still in flight under the default schedule. Under others it may have completed, or the
    # kernel fails later for another reason.
    others = case.otherwise if schedule != "latest" else ()
    with pytest.raises((case.error, *others)) as caught:
        case.run(schedule, correct=False)
    message, instead = str(caught.value), type(caught.value) is not case.error
    assert not instead or type(caught.value) in others
    assert instead or re.search(case.message, message), message
    named = {int(line) for line in re.findall(r"\bkernel\.cu:(\d+)", message)}
    missing = {role: lines for role, lines in case.reported_lines.items() if not named & set(lines)}
    assert not missing or (instead and len(missing) < len(case.reported_lines)), f"{missing} not named in: {message}"


@pytest.mark.parametrize(("case", "schedule"), runs_of_twins(), ids=name)
def test_the_corrected_twin_passes(case: Case, schedule: str) -> None:
    case.run(schedule, correct=True)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "ptxas" in case.header["On a GPU"]], ids=lambda case: case.name
)
def test_ptxas_warns_of_some_bugs_too(case: Case) -> None:
    warning = re.search(r"C75\d\d", case.header["On a GPU"])
    assert warning
    assert warning[0] in compiled(case.source(correct=False)).log
    with pytest.raises(CompileError, match=warning[0]):
        compiled(Source(case.text, "gemm<false>"))
    assert compiled(Source(case.text, "gemm<true>"))


def test_every_kernel_has_a_case_and_describes_its_bug() -> None:
    assert sorted(case.name for case in CASES) == sorted(path.stem for path in FOLDER.glob("*.cu"))
    for case in CASES:
        assert set(case.header) == {"Bug", "On a GPU", "Fix"}, case.name
        assert "// BUG" in case.text, case.name
        assert case.reported_lines or case.error in (UnwrittenOutput, WrongResult), case.name
        assert max(map(len, case.text.splitlines())) <= 120, case.name


def test_the_page_is_written_from_the_kernels() -> None:
    assert DOCUMENT.read_text() == page(), "python tests/support/wrong_kernel_cases.py > docs/planted-bugs.md"


def test_a_wrong_result_is_described() -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal((16, 16)), random.standard_normal((16, 24))
    d = a @ b
    check_result(d, a, b, bound=np.full(d.shape, 1e-12))
    d[3, 5] = np.nan
    d[4, 5] += 1e-9
    with pytest.raises(
        WrongResult, match=r"D\[3, 5\] is nan and should be .*; 2 of 384 elements are wrong; rows 0 to 2, 5 to 15 are"
    ):
        check_result(d, a, b, bound=np.full(d.shape, 1e-12))
