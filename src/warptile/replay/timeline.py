"""What happened when: spans on tracks, and their form for Perfetto and Chrome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "tensor", "wgmma", "math", "integer", "shared", "global", "copy", "store", "sync", "branch", "wait", "barrier",
    "transfer", "phase",
)  # fmt: skip
"""Kinds of spans: what a warp mostly does, what it waits for, and on other tracks, transfers and phases."""


@dataclass(frozen=True)
class TraceSpan:
    """A stretch of time on a track.

    Attributes:
        track: name of the track.
        start, end: clocks from the first launch's start.
        kind: one of `KINDS`.
        text: what it is, in a few words.
        line: source line of its first instruction, such as ``"wgmma/store.cuh:37"``, or nothing.
        instructions: warp instructions in it.
    """

    track: str
    start: float
    end: float
    kind: str
    text: str
    line: str = ""
    instructions: int = 0

    @property
    def clocks(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass
class Timeline:
    """Spans by track, and what they add up to.

    Attributes:
        tracks: names, in the order in which they are drawn; those of a CTA follow each other.
        spans: of all tracks, in order of their start.
        groups: by track, the CTA or unit that it belongs to.
        clocks: the end of the last one.
        clock_mhz: of the SM.
        busy: clocks that each unit was busy, by name, of the SM that was busiest with it.
        clocks_at: by position in the program, clocks of all warps that were about to execute what stands there.
    """

    tracks: list[str] = field(default_factory=list)
    spans: list[TraceSpan] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    clocks: float = 0.0
    clock_mhz: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    clocks_at: dict[int, float] = field(default_factory=dict)

    def of(self, track: str) -> tuple[TraceSpan, ...]:
        """Spans of one track."""
        return tuple(span for span in self.spans if span.track == track)

    def shares(self, track: str) -> dict[str, float]:
        """Of all clocks, what share a track spent with each kind."""
        found: dict[str, float] = {}
        for span in self.of(track):
            found[span.kind] = found.get(span.kind, 0.0) + span.clocks
        return {kind: clocks / self.clocks for kind, clocks in found.items()} if self.clocks else {}


def trace_events(timeline: Timeline, about: Mapping[str, Any]) -> dict[str, Any]:
    """The timeline in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

    One process for each group of tracks, one thread for each track, times in microseconds. Spans of a track that
    overlap, as copies in flight do, are dealt out to several threads of one name: those of a thread must not.

    Args:
        timeline: what to write.
        about: further facts, kept as ``otherData``.
    """
    groups = list(dict.fromkeys(timeline.groups[track] for track in timeline.tracks))
    events: list[dict[str, Any]] = []
    for pid, group in enumerate(groups, 1):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": group}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}})
    tid = 0
    for track in timeline.tracks:
        pid = groups.index(timeline.groups[track]) + 1
        for spans in apart(timeline.of(track)) or [[]]:
            tid += 1
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": track}})
            events.append({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}})
            events += [_complete_event(span, pid, tid, timeline.clock_mhz) for span in spans]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(about)}


def _complete_event(span: TraceSpan, pid: int, tid: int, clock_mhz: float) -> dict[str, Any]:
    start, end = (round(clocks / clock_mhz, 4) for clocks in (span.start, span.end))
    return {
        "ph": "X", "name": span.text, "cat": span.kind, "pid": pid, "tid": tid, "ts": start,
        "dur": round(end - start, 4),
        "args": {"line": span.line, "clocks": round(span.clocks, 1), "warp instructions": span.instructions},
    }  # fmt: skip


def apart(spans: Sequence[TraceSpan]) -> list[list[TraceSpan]]:
    """Spans, in order of their start, dealt out so that those of one list do not overlap."""
    found: list[list[TraceSpan]] = []
    for span in spans:
        free = next((each for each in found if each[-1].end <= span.start), None)
        if free is None:
            found.append([span])
        else:
            free.append(span)
    return found


def merged(spans: Sequence[TraceSpan]) -> list[TraceSpan]:
    """Spans of a track with neighbours of one kind made one, where nothing lies between them."""
    found: list[TraceSpan] = []
    for span in spans:
        last = found[-1] if found else None
        if last is not None and last.kind == span.kind and last.text == span.text and span.start - last.end < 1:
            found[-1] = TraceSpan(
                last.track, last.start, span.end, last.kind, last.text, last.line, last.instructions + span.instructions
            )
        else:
            found.append(span)
    return found
