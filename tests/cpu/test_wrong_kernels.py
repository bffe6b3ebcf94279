"""Kernels with one planted mistake each: caught and named, with the source lines; their corrected twins pass."""

from __future__ import annotations

import re

import numpy as np
import pytest
from covering import covering

from warptile.errors import CompileError, UnwrittenOutput
from warptile.source import Source
from wrong_kernel import FOLDER, Case, WrongProduct, check_product, compiled
from wrong_kernel_cases import CASES, page

OTHERS = ("earliest", "random:7")
DOCUMENT = FOLDER.parents[1] / "docs" / "wrong-kernels.md"


def runs(others: tuple[str, ...]) -> list[tuple[Case, str]]:
    """Every kernel under the schedule in which copies land as late as can be, and under one of the others."""
    return sorted([(case, "latest") for case in CASES] + covering(CASES, others, pairs=()), key=lambda run: run[0].name)


def name(value: Case | str) -> str:
    return value.name if isinstance(value, Case) else value


@pytest.mark.parametrize(("case", "schedule"), runs(OTHERS), ids=name)
def test_the_mistake_is_caught_and_named(case: Case, schedule: str) -> None:
    # A copy that nobody has waited for is still under way in the default schedule. Under others it may have landed, or
    # the kernel runs into the next trouble.
    others = case.otherwise if schedule != "latest" else ()
    with pytest.raises((case.error, *others)) as caught:
        case.run(schedule, correct=False)
    message, instead = str(caught.value), type(caught.value) is not case.error
    assert not instead or type(caught.value) in others
    assert instead or re.search(case.message, message), message
    named = {int(line) for line in re.findall(r"\bkernel\.cu:(\d+)", message)}
    missing = {role: lines for role, lines in case.reported_lines.items() if not named & set(lines)}
    assert not missing or (instead and len(missing) < len(case.reported_lines)), f"{missing} not named in: {message}"


@pytest.mark.parametrize(("case", "schedule"), runs(OTHERS[::-1]), ids=name)
def test_the_corrected_twin_passes(case: Case, schedule: str) -> None:
    case.run(schedule, correct=True)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "ptxas" in case.header["On a GPU"]], ids=lambda case: case.name
)
def test_ptxas_warns_of_some_of_them_too(case: Case) -> None:
    warning = re.search(r"C75\d\d", case.header["On a GPU"])
    assert warning
    assert warning[0] in case.launch(correct=False).kernel.log
    with pytest.raises(CompileError, match=warning[0]):
        compiled(Source(case.text, "product<false>"))
    assert compiled(Source(case.text, "product<true>"))


def test_every_kernel_is_here_and_says_what_is_wrong_with_it() -> None:
    assert sorted(case.name for case in CASES) == sorted(path.stem for path in FOLDER.glob("*.cu"))
    for case in CASES:
        assert set(case.header) == {"Mistake", "On a GPU", "Fix"}, case.name
        assert "MISTAKE" in case.text, case.name
        assert case.reported_lines or case.error in (UnwrittenOutput, WrongProduct), case.name
        assert max(map(len, case.text.splitlines())) <= 120, case.name


def test_the_page_is_what_the_kernels_say() -> None:
    assert DOCUMENT.read_text() == page(), "python tests/wrong_kernel_cases.py > docs/wrong-kernels.md"


def test_a_wrong_product_is_described() -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal((16, 16)), random.standard_normal((16, 24))
    d = a @ b
    check_product(d, a, b, bound=np.full(d.shape, 1e-12))
    d[3, 5] = np.nan
    d[4, 5] += 1e-9
    with pytest.raises(
        WrongProduct, match=r"D\[3, 5\] is nan and should be .*; 2 of 384 elements are wrong; rows 0 to 2, 5 to 15 are"
    ):
        check_product(d, a, b, bound=np.full(d.shape, 1e-12))
