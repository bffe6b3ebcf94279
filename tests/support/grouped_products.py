"""Grouped GEMMs in float64, and the error that is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np

UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
"""Unit roundoff of results."""

SMALLEST = 2.0**-25
"""Half a step of float16's subnormals."""


def ranges(offsets: Any) -> list[slice]:
    """Where each group is."""
    return [slice(begin, end) for begin, end in zip([0, *offsets[:-1]], offsets, strict=True)]


def expected(a: Any, b: Any, offsets: Any) -> tuple[Any, Any]:
    """The exact result and the sums of absolute products; NaN in rows that no group has."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    by_rows = b.ndim == 3
    shape = (len(a), b.shape[2]) if by_rows else (len(offsets), len(a), b.shape[1])
    exact, magnitude = np.full(shape, np.nan), np.full(shape, np.nan)
    for group, part in enumerate(ranges(offsets)):
        at = part if by_rows else group
        left, right = (a[part], b[group]) if by_rows else (a[:, part], b[part])
        exact[at], magnitude[at] = left @ right, abs(left) @ abs(right)
    return exact, magnitude


def wrong_elements(found: Any, a: Any, b: Any, offsets: Any) -> int:
    """Elements of groups that are further off than float32 sums that truncate, and the result's rounding, allow."""
    exact, magnitude = expected(a, b, offsets)
    inside = ~np.isnan(exact)
    exact, magnitude, given = exact[inside], magnitude[inside], np.asarray(found[inside], np.float64)
    unit, terms = UNITS[np.dtype(found.dtype).name], np.shape(a)[1]
    bound = unit * abs(exact) + (terms + 2) * 2.0**-23 * magnitude * (1 + unit) + SMALLEST
    return int(np.sum(~(abs(given - exact) <= bound)))
