"""Tables of whole models by torch and by warptile, from records of `warptile.bench.campaign.models`."""

from __future__ import annotations

from warptile.bench.protocol.model_times import ModelTimes
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import RecordLookup

NO_TIMES = "*No record yet; `python -m warptile.bench.campaign.models` on a GPU writes one.*\n"

COMPARED = (("torch", "warptile"), ("compile", "warptile-compile"))
"""Backends that differ by `warptile.torch.convert` alone: eager, and compiled by torch."""


def table(lookup: RecordLookup) -> str:
    """Every model and batch: eager and compiled, without and with warptile."""
    groups = lookup.model_times()
    if not groups:
        return NO_TIMES
    rows = [_row(group) for group in groups]
    header = ("model", "batch", "torch, ms", "warptile, ms", "ratio", "torch.compile, ms", "with warptile, ms", "ratio")
    return (
        f"{markdown(header, rows)}\nMilliseconds of a step: medians of interleaved turns; ratios are medians of the "
        f"turns' ratios. Below 1 is faster. Decoding steps are CUDA graphs.\n\n{lookup.origins()}"
    )


def _row(group: ModelTimes) -> TableRow:
    cells: list[str] = []
    for theirs, ours in COMPARED:
        for name in (theirs, ours):
            found = group.backend(name)
            cells.append(number(None if found is None else found.median_ms, 2))
        cells.append(number(group.ratio(ours, theirs), 3))
    return group.model, str(group.batch), *cells
