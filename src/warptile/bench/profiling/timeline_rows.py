"""A replayed launch as rows of a timeline chart: producer warp, consumer warps, tensor cores, TMA, mbarriers.

What a warp's role is, and which stage an mbarrier belongs to, is what the replay shows. TMA loads complete phases of
the full barriers. Other mbarriers are the empty ones where there is one for each stage, of which every phase completes
after that of the stage's full one. A warp that multiplies nothing is the producer where it waits for them, or is the
only such warp that still runs when the last load begins. Where nothing shows it, a warp has its number only and an
mbarrier its address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from warptile.figures.timeline_bars import TimelineBar, TimelineRow, folded_rows
from warptile.replay.timeline import Timeline, TraceSpan

TOLERANCE = 0.05
"""Warps are one row where they are of different kinds in no more than this share of their time."""

WARPGROUP_WARPS = 4

_PHASE = re.compile(r"mbarrier (\d+) phase (\d+)")
_TRACK = re.compile(r"(?P<cta>(?:launch \d+, )?CTA \d+) (?P<what>warp|mbarrier) (?P<number>\d+)")
_UNIT = re.compile(r"(?:SM \d+ )?(?P<unit>.+)")
TENSOR_CORE, TMA_LOADS = "tensor core", "TMA loads"

_UNITS = (TENSOR_CORE, TMA_LOADS, "TMA stores")
"""The order of units."""


def timeline_rows(timeline: Timeline, tolerance: float = TOLERANCE) -> list[TimelineRow]:
    """Rows for `warptile.figures.timeline_chart`.

    Args:
        timeline: of a replay.
        tolerance: warps of one role are one row where they are of different kinds in no more than this share of their
            time; negative to draw every warp.
    """
    tracks = [_Track.of(timeline, name) for name in timeline.tracks]
    warps = [track for track in tracks if track.what == "warp"]
    barriers = [track for track in tracks if track.what == "mbarrier"]
    units = [track for track in tracks if track.what == "unit"]
    stages = _stages(barriers, units)
    roles = {track.name: _role(track, warps, units, stages) for track in warps}
    if "producer" not in roles.values():
        roles = dict.fromkeys(roles, "")
    drawn: list[TimelineRow] = []
    for cta in dict.fromkeys(track.cta for track in warps):
        own = [track for track in warps if track.cta == cta]
        drawn += _folded(own, roles, stages, tolerance)
    for group in dict.fromkeys(track.group for track in units):
        own = [track for track in units if track.group == group]
        drawn += _folded(sorted(own, key=_unit_order), {}, stages, tolerance)
    for cta in dict.fromkeys(track.cta for track in barriers):
        own = [track for track in barriers if track.cta == cta]
        own.sort(key=lambda track: _stage_order(stages.get(track.number, ""), track.number))
        drawn += [_row(track, stages.get(track.number, track.label), stages) for track in own]
    return drawn


@dataclass(frozen=True)
class _Track:
    """A track of the timeline: a warp or mbarrier with its CTA and number, or a unit.

    Attributes:
        name: of the track.
        label: of its row; its CTA or SM stands in the group.
        what: ``"warp"``, ``"mbarrier"`` or ``"unit"``.
        cta: with the launch; empty for units.
        number: of the warp in its CTA, or address of the mbarrier.
        group: of the track.
        spans: in order of their start.
    """

    name: str
    label: str
    what: str
    cta: str
    number: int
    group: str
    spans: tuple[TraceSpan, ...]

    @staticmethod
    def of(timeline: Timeline, name: str) -> _Track:
        found = _TRACK.fullmatch(name)
        spans = tuple(sorted(timeline.of(name), key=lambda span: (span.start, span.end)))
        group = timeline.groups[name]
        if found is None:
            unit = _UNIT.fullmatch(name)
            return _Track(name, unit["unit"] if unit else name, "unit", "", 0, group, spans)
        number = int(found["number"])
        return _Track(name, f"{found['what']} {number}", found["what"], found["cta"], number, group, spans)

    def waited_for(self) -> set[int]:
        """The mbarriers that its spans name."""
        return {int(found[1]) for span in self.spans if (found := _PHASE.search(span.text))}


def _multiplies(track: _Track) -> bool:
    return any(span.kind in ("tensor", "wgmma") for span in track.spans)


def _stages(barriers: Sequence[_Track], units: Sequence[_Track]) -> dict[int, str]:
    """By address, mbarriers with a known part in the ring: ``full 0``, ``empty 0``."""
    every = sorted({track.number for track in barriers})
    full = sorted(_union(track.waited_for() for track in units) & set(every))
    others = [number for number in every if number not in full]
    empty = others[: len(full)]
    found = {number: f"full {stage}" for stage, number in enumerate(full)}
    if len(others) >= len(full) and all(map(_follow, *(_phase_ends(barriers, each) for each in (full, empty)))):
        found |= {number: f"empty {stage}" for stage, number in enumerate(empty)}
    return found


def _phase_ends(barriers: Sequence[_Track], numbers: Sequence[int]) -> list[list[float]]:
    """When the phases of some mbarriers were complete, of all CTAs and launches."""
    return [
        [span.end for track in barriers if track.number == number for span in track.spans] for number in numbers
    ]  # fmt: skip


def _follow(full: Sequence[float], empty: Sequence[float]) -> bool:
    """Whether a stage was freed each time after it was filled."""
    return len(empty) <= len(full) and all(one < other for one, other in zip(full, empty, strict=False))


def _union(sets: Iterable[set[int]]) -> set[int]:
    return {each for one in sets for each in one}


def _role(track: _Track, warps: Sequence[_Track], units: Sequence[_Track], stages: Mapping[int, str]) -> str:
    if _multiplies(track):
        return "consumer"
    if any(stages.get(number, "").startswith("empty") for number in track.waited_for()):
        return "producer"
    own = [each for each in warps if each.cta == track.cta]
    loads = [span.start for unit in units if unit.label == TMA_LOADS for span in unit.spans]
    last = max((start for start in loads if start <= max(map(_end, own))), default=None)
    running = [each for each in own if last is not None and not _multiplies(each) and _end(each) >= last]
    return "producer" if [each.name for each in running] == [track.name] else ""


def _end(track: _Track) -> float:
    return max((span.end for span in track.spans), default=0.0)


def _folded(
    tracks: Sequence[_Track], roles: Mapping[str, str], stages: Mapping[int, str], tolerance: float
) -> list[TimelineRow]:
    """Rows of a CTA's warps or of units; those of a role, a warpgroup or a kind of unit that do the same are one."""
    rows = [_row(track, track.label, stages) for track in tracks]
    alike = {
        row.label: f"{roles.get(track.name, '')} {track.number // WARPGROUP_WARPS}"
        if track.what == "warp" else row.label.rsplit(" ", 1)[0]
        for row, track in zip(rows, tracks, strict=True)
        if row.label[-1].isdigit()
    }  # fmt: skip
    made = folded_rows(rows, alike, tolerance) if tolerance >= 0 else rows
    role_of = {row.label: roles.get(track.name, "") for row, track in zip(rows, tracks, strict=True)}
    found, place = [], 0
    for row in made:
        role = role_of[rows[place].label]
        found.append(replace(row, label=f"{row.label}, {role}") if role else row)
        place += row.rows
    return found


def _unit_order(track: _Track) -> tuple[int, str]:
    return next((place for place, unit in enumerate(_UNITS) if track.label.startswith(unit)), len(_UNITS)), track.label


def _stage_order(stage: str, number: int) -> tuple[int, int]:
    """Full ones first, then empty ones, then those that are not known."""
    return ("full", "empty").index(stage.split()[0]) if stage else 2, number


def _row(track: _Track, label: str, stages: Mapping[int, str]) -> TimelineRow:
    return TimelineRow(
        label, track.group, tuple(_bar(span, stages, track.what) for span in track.spans if span.clocks > 0)
    )


def _bar(span: TraceSpan, stages: Mapping[int, str], what: str) -> TimelineBar:
    """A span with the name of an mbarrier's stage instead of its address."""
    kind = "wgmma wait" if span.kind == "wgmma" and span.text.startswith("waits") else span.kind
    text = _PHASE.sub(lambda found: f"{stages.get(int(found[1]), f'mbarrier {found[1]}')}, phase {found[2]}", span.text)
    return TimelineBar(span.start, span.end, kind, text, span.line, span.text.split()[-1] if what == "mbarrier" else "")
