"""The signed-rank test beside all arrangements of signs."""

import math
from itertools import product

import pytest

from warptile.runtime.signed_rank import chance_above_zero


def by_enumeration(differences):
    """The share of all sign changes whose sum of positive ranks is as high, with equal values' mean ranks."""
    values = sorted(abs(each) for each in differences if each)
    ranks = {value: (2 * values.index(value) + values.count(value) + 1) / 2 for value in values}
    reached = sum(ranks[each] for each in differences if each > 0)
    sums = [
        sum(ranks[value] for value, positive in zip(values, signs, strict=True) if positive)
        for signs in product((False, True), repeat=len(values))
    ]
    return sum(each >= reached for each in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [
        [1.0], [-1.0], [3, -1, 2], [0.5, 0.1, -0.3, 0.7, 0.2, -0.9, 1.1], [0, 0, 1, -2, 3], [5, 4, 3, 2, 1, -0.5],
        [-1, -2, -3, -4], [1, 1, 1, -1], [2, -2, 2, 1, 1, -1, 3], [1, 1, 2, 2, -1, -2],
    ],
)  # fmt: skip
def test_chances_are_those_of_all_signs(differences):
    assert chance_above_zero(differences) == pytest.approx(by_enumeration(differences), rel=1e-12)


def test_extremes():
    assert chance_above_zero([]) == chance_above_zero([0.0, 0.0]) == 1
    for count in (6, 12, 80):
        assert chance_above_zero([1.0] * count) == pytest.approx(0.5**count)
        assert chance_above_zero([-1.0] * count) == pytest.approx(1)
    # W. J. Conover, Practical Nonparametric Statistics: of 20 pairs, the upper 5 % begin at a rank sum of 150.
    ranks = [rank if rank > 10 or rank <= -5 else -rank for rank in range(1, 21)]
    assert sum(rank for rank in ranks if rank > 0) == 155
    assert 0.02 < chance_above_zero(ranks) < 0.05


def test_one_outlier_counts_as_its_rank():
    assert math.isclose(chance_above_zero([-1, 2, 3, 4, 5]), chance_above_zero([-1, 2, 3, 4, 1e9]))
