"""Tables of docs/claims.md: measured figures by rung, facts by topic, verdicts, and the listings with their reports."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable

from warptile.bench.report.claims import (
    fragment_facts,
    instruction_facts,
    listings,
    memory_facts,
    numeric_facts,
    rate_facts,
    resource_facts,
)
from warptile.bench.report.claims.fact import MEANS, Fact, Verdict
from warptile.bench.report.claims.listings import (
    COMMIT_WITH_TILE,
    HALF_OF_BLOCK,
    MENDED,
    PRINTED,
    TWO_BIT_SWIZZLE,
    WITHOUT,
    Line,
    Listing,
)
from warptile.bench.report.claims.recorded_facts import recorded_facts
from warptile.bench.report.claims.rung_claims import (
    CLAIMS,
    INDEX,
    OF_CUBLAS,
    OF_LIMIT,
    REASONS,
    REGISTERS,
    SHARE,
    SHARE_F32,
    SPEED,
    STEP,
    TFLOPS,
    Claim,
)
from warptile.bench.report.markdown import TableRow, markdown, percent
from warptile.bench.report.record_lookup import RecordLookup

TOPICS: dict[str, tuple[Fact, ...]] = {
    "instructions": instruction_facts.FACTS,
    "fragments": fragment_facts.FACTS,
    "rates": rate_facts.FACTS,
    "resources": resource_facts.FACTS,
    "memory": memory_facts.FACTS,
    "numerics": numeric_facts.FACTS,
}
"""Facts that need no record, by topic."""

RECORDED = "measured"
"""The topic of the facts that records answer."""

TOPIC_NAMES = (*TOPICS, RECORDED)
_MISSING = "–"


def facts_of(topic: str, lookup: RecordLookup) -> tuple[Fact, ...]:
    """The facts of a topic."""
    return recorded_facts(lookup) if topic == RECORDED else TOPICS[topic]


# --- figures ---


def in_unit(value: float | None, unit: str) -> str:
    """A figure in a unit of a claim, or a dash."""
    if value is None:
        return _MISSING
    if unit in (OF_CUBLAS, OF_LIMIT, INDEX):
        return percent(value)
    if unit == STEP:
        return f"{value:.2f} x"
    if unit == REGISTERS:
        return f"{value:.0f} registers"
    return f"{value:.1f} TFLOP/s" if unit == TFLOPS else f"{value:.2f} {unit}"


def measured(claim: Claim, lookup: RecordLookup) -> float | None:
    """What records have for a claim."""
    if claim.in_type_table:
        return lookup.type_table_value(claim.rung, claim.unit, claim.group, claim.previous)
    return lookup.value(claim.rung, claim.unit, claim.group, claim.size, claim.previous)


def difference(claim: Claim, found: float, lookup: RecordLookup) -> str:
    """What a row says beyond its reason: the claim's own note, or the numbers behind the two figures."""
    if claim.note:
        return claim.note
    if claim.reason is SPEED:
        there, here = claim.peaks
        return f"{percent(claim.published / there)} of the peak there, {percent(found / here)} here"
    if claim.reason is SHARE_F32:
        return f"{100 * (found - claim.published):+.1f} points"
    if claim.reason is SHARE:
        of_limit = lookup.value(claim.rung, OF_LIMIT, claim.group, claim.size)
        return f"{found / claim.published:.2f} of the published share; {percent(of_limit)} of what `mma.sync` can issue"
    return _counters(claim, lookup)


def _counters(claim: Claim, lookup: RecordLookup) -> str:
    """What changed in the profile from the rung before a step to the rung behind it."""
    assert claim.previous is not None, claim
    before, behind = lookup.profile(claim.previous), lookup.profile(claim.rung)
    if before is None or behind is None:
        return ""
    ways = [each.counters.get("shared_load_conflict_ratio", 1.0) for each in (before, behind)]
    changes = [f"loads {ways[0]:.2f}-way to {ways[1]:.2f}-way"] if ways[0] != ways[1] else []
    changes += [f"{before.registers} to {behind.registers} registers"] if before.registers != behind.registers else []
    same_stall = before.top_stall == behind.top_stall
    changes.append(f"top stall {before.top_stall or _MISSING}" + ("" if same_stall else f" to {behind.top_stall}"))
    return f"{claim.previous} to {claim.rung}: {'; '.join(changes)}"


def _asked(claim: Claim) -> str:
    ours = f"here {claim.group.name}, {claim.size}^3"
    return f"{claim.conditions}; {ours}" if claim.conditions else ours


def rungs_table(lookup: RecordLookup) -> str:
    """The reasons, and every published figure with what was measured, the verdict, and what differs."""
    rows: list[TableRow] = []
    for claim in CLAIMS:
        found = measured(claim, lookup)
        said = _MISSING if found is None else str(claim.verdict(found))
        differs = "" if found is None else difference(claim, found, lookup)
        rows.append((claim.source, f"`{claim.rung}`", in_unit(claim.published, claim.unit), _asked(claim),
                     in_unit(found, claim.unit), said, f"{claim.reason.letter}: {differs}"))  # fmt: skip
    header = ("source", "rung", "claimed", "conditions", "measured here", "verdict", "reason, and what differs")
    marks = ("---", "---", "---:", "---", "---:", "---", "---")
    lines = "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))
    return f"{reasons_list()}\n{lines}\n\n{lookup.origins()}"


def reasons_list() -> str:
    """The reasons, one item each."""
    return "".join(f"- **{reason.letter}.** {reason.text}\n" for reason in REASONS)


# --- facts ---


def facts_table(topic: str, lookup: RecordLookup) -> str:
    """The facts of a topic: the claim, how it was checked, what was found, the verdict and why."""
    rows: list[TableRow] = []
    for fact in facts_of(topic, lookup):
        answer = fact.check()
        found, said = (_MISSING, _MISSING) if answer is None else (answer.value, str(answer.verdict))
        rows.append((fact.source, fact.claimed, fact.conditions or "any", fact.means.name, found, said, fact.why))
    header = ("source", "claim", "conditions", "checked by", "found", "verdict", "why")
    table = markdown(header, rows, right=len(header))
    return table if topic != RECORDED else f"{table}\n{lookup.origins()}"


def means_list() -> str:
    """What the words in the column "checked by" mean."""
    return "".join(f"- *{means.name}*: {means.does}\n" for means in MEANS)


def verdicts_table(lookup: RecordLookup) -> str:
    """How many claims of each part got which verdict."""
    figures = [claim.verdict(found) for claim in CLAIMS if (found := measured(claim, lookup)) is not None]
    parts = {"figures of the rungs": figures}
    for topic in TOPIC_NAMES:
        answers = [fact.check() for fact in facts_of(topic, lookup)]
        parts[topic] = [answer.verdict for answer in answers if answer is not None]
    lookup.origins()  # the tables themselves name the records
    parts["all"] = [verdict for verdicts in parts.values() for verdict in verdicts]
    rows = [(name, str(len(verdicts)), *_counts(verdicts)) for name, verdicts in parts.items()]
    return markdown(("part", "claims", *(str(verdict) for verdict in Verdict)), rows)


def _counts(verdicts: Iterable[Verdict]) -> list[str]:
    counted = Counter(verdicts)
    return [str(counted[verdict]) for verdict in Verdict]


# --- listings ---


def listing(name: str) -> str:
    """A listing as printed, what the emulator reports, and the mended lines with what it then reports."""
    return {HALF_OF_BLOCK.name: _half_of_block, COMMIT_WITH_TILE.name: _commit_with_tile,
            TWO_BIT_SWIZZLE.name: _two_bit_swizzle}[name]()  # fmt: skip


LISTING_NAMES = tuple(each.name.replace("_", "-") for each in listings.LISTINGS)


def _code(lines: Iterable[Line], notes: dict[int, str] | None = None) -> str:
    """Lines with their numbers; ``>`` marks those of this form alone, and notes stand behind theirs."""
    shown = []
    for line in lines:
        note = (notes or {}).get(line.number, "")
        text = f"{'>' if line.own else ' '} {line.number:>2}  {line.text}"
        shown.append(f"{text}  // <- {note}" if note else text.rstrip())
    return "```cpp\n" + "\n".join(shown) + "\n```\n"


def _own(each: Listing, form: str) -> list[Line]:
    return [line for line in each.lines(form) if line.own]


def _quoted(run: listings.Run) -> str:
    """What the emulator reports, up to what differs from compiler to compiler, as an indented block."""
    said = f"{run.error}: {run.said.partition(': it was')[0]}"
    return textwrap.fill(said, 116, initial_indent="    ", subsequent_indent="    ") + "\n"


def _mended(each: Listing, arguments: Iterable[int] = (0,)) -> str:
    """The mended lines, of a form that runs without a report and whose result is right."""
    for argument in arguments:
        run = listings.run(each, MENDED, argument)
        assert run.right, f"{each.name}: {run.error} {run.said}"
    said = "The emulator then reports nothing, and D equals A B exactly.\n"
    return f"Mended:\n\n{_code(_own(each, MENDED))}\n{said}"


def _half_of_block() -> str:
    each, run = HALF_OF_BLOCK, listings.run(HALF_OF_BLOCK, PRINTED)
    report = f"The emulator runs it on {_size(each)} and reports, at the end of the launch:\n\n{_quoted(run)}\n"
    return f"{_code(each.lines(PRINTED))}\n{report}{_mended(each)}"


def _commit_with_tile() -> str:
    each = COMMIT_WITH_TILE
    runs = {stages: listings.run(each, PRINTED, stages) for stages in (3, 2)}
    notes = {line: "reads it too early" for run in runs.values() if (line := run.at) is not None}
    notes |= {line: "the copy" for run in runs.values() if (line := run.since) is not None}
    reports = "".join(
        f"With {stages} stages the emulator reports, at line {run.at} and of the copy at line {run.since}:\n\n"
        f"{_quoted(run)}\n"
        for stages, run in runs.items()
    )
    tiles = each.size[2] // 16
    rows = []
    forms = (listings.group_steps(tiles, 3, empty_groups=empty) for empty in (False, True))
    for both in zip(*forms, strict=True):
        cells = (f"{step.complete} of {step.committed}, {'yes' if step.covered else '**no**'}" for step in both)
        rows.append((str(both[0].tile), *cells))
    steps = markdown(("tile", "as printed", "mended"), rows, right=3)
    traced = (
        f"With 3 stages and the {tiles} tiles of {_size(each)}: groups that the wait leaves complete, of those "
        f"committed, and whether the tile's is among them:\n\n{steps}\n"
    )
    return f"{_code(each.lines(PRINTED), notes)}\n{reports}{traced}{_mended(each, (3, 2))}"


def _two_bit_swizzle() -> str:
    each = TWO_BIT_SWIZZLE
    counted = {form: listings.shared_wavefronts(listings.run(each, form)) for form in (WITHOUT, PRINTED, MENDED)}
    notes = {line: f"{wavefronts / ideal:.0f}-way" for line, (_, wavefronts, ideal) in counted[PRINTED].items()}
    rows = []
    for form, lines in counted.items():
        (own,) = _own(each, form)
        for line, (kind, wavefronts, ideal) in lines.items():
            rows.append((f"`{own.text.strip()}`", f"{line}, {kind}", f"{wavefronts:.0f}", f"{ideal:.0f}",
                         f"{wavefronts / ideal:.0f}"))  # fmt: skip
    table = markdown(("line " + str(own.number), "access at line", "wavefronts", "ideal", "n-way"), rows, right=2)
    right = all(listings.run(each, form).right for form in counted)
    assert right, "a permutation that store and load share changes no result"
    said = f"Every form gives the right D on {_size(each)}, without a report: the counters alone show the flaw.\n"
    return f"{_code(each.lines(PRINTED), notes)}\n{said}\n{table}"


def _size(each: Listing) -> str:
    return " x ".join(map(str, each.size))
