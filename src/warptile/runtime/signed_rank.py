"""The Wilcoxon signed-rank test: whether paired differences lie above zero, whatever their distribution.

If two configurations take the same time and a coin decides which of them goes first, each difference is as likely
positive as negative. The sum of the ranks of the positive ones, by absolute value, then has a known distribution, and
a few large outliers count no more than their ranks (F. Wilcoxon, "Individual Comparisons by Ranking Methods",
Biometrics Bulletin 1 (6), 1945).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np


def chance_above_zero(differences: Sequence[float]) -> float:
    """The chance that differences symmetric about zero have a rank sum as high as these or higher (one-sided p).

    Zeros are left out, and equal absolute values share the mean of their ranks.
    """
    ordered = sorted((each for each in differences if each), key=abs)
    doubled: list[int] = []  # ranks times two, which are whole numbers
    positive = 0
    for _, group in groupby(ordered, key=abs):
        alike = list(group)
        rank = 2 * len(doubled) + len(alike) + 1
        doubled += [rank] * len(alike)
        positive += rank * sum(each > 0 for each in alike)
    return _chances(tuple(doubled))[positive]


@lru_cache(maxsize=64)
def _chances(ranks: tuple[int, ...]) -> tuple[float, ...]:
    """Of each sum of positive ranks, and of all higher ones."""
    exactly = np.ones(1)
    for rank in ranks:  # each is in the sum or not, with equal chances
        exactly = (np.pad(exactly, (0, rank)) + np.pad(exactly, (rank, 0))) / 2
    return tuple(exactly[::-1].cumsum()[::-1].tolist())
