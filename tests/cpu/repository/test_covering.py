"""Trimmed parametrisations: every value and every pair that is asked for in few cases, and more on demand."""

from itertools import combinations, product

import pytest

import covering as module
from covering import alternating, covering, few, of_each

AXES = ("abcdefgh", "stuvwx", "1234", "lmn")
ROWS = AXES[0]


@pytest.fixture
def everything(monkeypatch):
    monkeypatch.setattr(module, "ALL", True)


def meet(cases, *axes):
    """Whether all values of these axes stand together in some case."""
    return {tuple(case[axis] for axis in axes) for case in cases} == set(product(*(AXES[axis] for axis in axes)))


def test_every_two_values_meet():
    cases = covering(*AXES)
    assert all(meet(cases, *axes) for axes in combinations(range(4), 2))
    assert 48 == len(cases) == len(set(cases))  # no fewer: eight by six
    assert cases == covering(*AXES)


def test_of_other_axes_every_value_is_taken_equally_often():
    cases = covering(*AXES, pairs=[(1, 2), (1, 3), (2, 3)])
    assert len(cases) == 24
    assert all(meet(cases, *axes) for axes in combinations((1, 2, 3), 2))
    assert [[case[0] for case in cases].count(row) for row in ROWS] == [3] * 8
    assert sorted(covering(ROWS, "ln", pairs=[])) == [(row, "ln"[i % 2]) for i, row in enumerate(ROWS)]


@pytest.mark.usefixtures("everything")
def test_every_three_values_meet_on_demand():
    cases = covering(*AXES, pairs=[(1, 2)])
    assert all(meet(cases, *axes) for axes in combinations(range(4), 3))
    assert len(cases) < 8 * 6 * 4 * 3
    assert covering(*AXES[:2], pairs=[]) == list(product(*AXES[:2]))
    assert covering(*AXES[:3]) == list(product(*AXES[:3]))


def test_every_second_case():
    assert alternating("abcde") == ["a", "c", "e"]


def test_few_cases_from_everywhere():
    assert [few("abcdefg", count) for count in (1, 2, 3, 9)] == [["a"], ["a", "d"], ["a", "c", "e"], list("abcdefg")]


def test_few_cases_with_every_part():
    assert of_each(["ab", "cd", "abc", "d"], set) == ["cd", "abc"]


@pytest.mark.usefixtures("everything")
def test_every_case_on_demand():
    assert alternating("abcde") == few("abcde", 2) == list("abcde")
    assert of_each(["ab", "cd", "abc", "d"], set) == ["ab", "cd", "abc", "d"]
