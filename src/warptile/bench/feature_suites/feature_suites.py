"""The suites by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warptile.bench.feature_suites import grouped_rows, invariance_rows, quantized_rows, scale_rows
from warptile.bench.feature_suites.feature_row import FeatureRow
from warptile.bench.protocol.suites import ClassTarget


@dataclass(frozen=True)
class FeatureSuite:
    """Rows and what they are held to.

    Attributes:
        name: of the option and of its records.
        title: what is compared, in words.
        operands: how the operands are stored.
        rows: in the order of the table.
        goals: by class of rows.
    """

    name: str
    title: str
    operands: str
    rows: tuple[FeatureRow, ...]
    goals: Mapping[str, ClassTarget]

    def chosen(self, only: tuple[str, ...] = ()) -> tuple[FeatureRow, ...]:
        """The rows; with ``only``, those whose name has one of its words."""
        return tuple(row for row in self.rows if not only or any(word in row.name for word in only))


FEATURE_SUITES = {
    each.name: each
    for each in (
        FeatureSuite(
            "quantized", "weights of 4 and 8 bits",
            f"M x N x K; bfloat16 activations, symmetric weights stored [N, K] in groups of "
            f"{quantized_rows.GROUP_SIZE} along K, normal with variance 1 / K, or {quantized_rows.LARGE:.0f} times as "
            "large where it says so", tuple(quantized_rows.rows()), quantized_rows.GOALS,
        ),
        FeatureSuite(
            "scales", "float8 with scales in GPU memory",
            "M x N x K; e4m3 operands, B stored [N, K], bfloat16 results; block-wise scales are of 1 x 128 of A and "
            "128 x 128 of B", tuple(scale_rows.rows()), scale_rows.GOALS,
        ),
        FeatureSuite(
            "grouped", "grouped GEMMs", "bfloat16, weights stored [G, N, K], offsets in GPU memory",
            tuple(grouped_rows.rows()), grouped_rows.GOALS,
        ),
        FeatureSuite(
            "invariance", "batch-invariant GEMMs", "M x N x K; bfloat16, weights stored [N, K]",
            tuple(invariance_rows.rows()), invariance_rows.GOALS,
        ),
    )
}  # fmt: skip
