"""Kernels with one planted mistake each: caught and named, with the source lines; their corrected twins pass."""

from __future__ import annotations

import re

import numpy as np
import pytest

from warptile.errors import DataRace, UnwrittenOutput
from wrong_kernel import FOLDER, Case, WrongProduct, check_product
from wrong_kernel_cases import CASES, IN_FLIGHT, page

SCHEDULES = ("latest", "earliest", "random:7")
DOCUMENT = FOLDER.parents[1] / "docs" / "wrong-kernels.md"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_mistake_is_caught_and_named(case: Case, schedule: str) -> None:
    # A copy that nobody has waited for is still under way in the default schedule. It may as well have landed: then the
    # read is a race.
    landed = schedule != "latest" and case.message is IN_FLIGHT
    with pytest.raises((case.error, DataRace) if landed else case.error) as caught:
        case.run(schedule, correct=False)
    message = str(caught.value)
    if not landed:
        assert type(caught.value) is case.error
        assert re.search(case.message, message), message
    named = {int(line) for line in re.findall(r"\bkernel\.cu:(\d+)", message)}
    for role, lines in case.reported_lines.items():
        assert named & set(lines), f"{role}: none of the lines {lines} of {case.name}.cu is named in: {message}"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_corrected_twin_passes_under_every_schedule(case: Case, schedule: str) -> None:
    case.run(schedule, correct=True)


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
        WrongProduct, match=r"D\[3, 5\] is nan and should be .*; 2 of 384 elements are wrong; rows 0, 1,"
    ):
        check_product(d, a, b, bound=np.full(d.shape, 1e-12))
