"""The tables and pictures of the suites: every row, and every class of rows beside its target, from records."""

from __future__ import annotations

from warptile.bench import chart
from warptile.bench.contest import Contest
from warptile.bench.found import NOTHING, Found
from warptile.bench.markdown import markdown
from warptile.bench.standing import CLASS_HEADER, HEADER, Measured, class_line, line, standings
from warptile.bench.suites import SUITES

PICTURES = "suites"
"""Folder of the pictures, beside the document that shows them."""


def targets_table(found: Found) -> str:
    """Every class of rows: geometric mean and least figure, beside what is aimed at."""
    measured = [Measured(row, found.contest(suite, row)) for suite, rows in SUITES.items() for row in rows]
    contests = [each.contest for each in measured if each.contest is not None]
    if not contests:
        return NOTHING + "\n"
    text = markdown(CLASS_HEADER, [class_line(each) for each in standings(measured)], right=2)
    return f"{text}\n{_protocol(contests)}\n\n{found.origins()}"


def suite_table(found: Found, suite: str) -> str:
    """Every row of a suite that was measured, with a picture."""
    contests = _contests(found, suite)
    if not contests:
        return NOTHING + "\n"
    text = markdown(HEADER, [line(each) for each in contests])
    picture = f"![{suite}]({PICTURES}/{suite}.svg)"
    return f"{text}\n{picture}\n\n{_protocol(contests)}\n\n{found.origins()}"


def pictures(found: Found) -> dict[str, str]:
    """SVG text of each suite that was measured, by its path beside the document."""
    made = {suite: _contests(found, suite) for suite in SUITES}
    found.origins()  # a picture does not say where its figures come from: the table beside it does
    return {
        f"{PICTURES}/{suite}.svg": chart.svg(f"{suite}: speed over cuBLASLt's best, or over the row beside", contests)
        for suite, contests in made.items()
        if contests
    }


def _contests(found: Found, suite: str) -> list[Contest]:
    return [contest for row in SUITES[suite] if (contest := found.contest(suite, row)) is not None]


def _protocol(contests: list[Contest]) -> str:
    """How long everybody ran."""
    rounds = sorted({len(turns.rounds_ms) for contest in contests for turns in contest.turns})
    turns = sorted({contest.turn_ms for contest in contests if contest.turns})
    if not turns:
        return "Nothing was timed."
    counts, lengths = " or ".join(map(str, rounds)), " or ".join(f"{turn:.0f}" for turn in turns)
    regimes = " or ".join(sorted({contest.regime for contest in contests}))
    return f"Rounds: {counts}, of {lengths} ms for each (torch a quarter), {regimes}."
