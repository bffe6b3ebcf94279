"""Timelines that ship with the package, for pages that are made without emulating.

They are in ``data/timelines.json``, which `make docs` makes by replaying some rungs where its key is not current: a
digest of the rungs' kernels, the recording, the replay, and how rows are made of it. A test replays them all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

import warptile
from warptile.bench.profiling.replayed import replayed
from warptile.bench.profiling.timeline_figure import replayed_rows, timeline_title
from warptile.figures.timeline_bars import TimelineBar, TimelineRow
from warptile.ladder import plan_for
from warptile.planning.plan import Plan, config_text
from warptile.planning.tuned_table import source_of
from warptile.rungs import rung
from warptile.runtime.execute import choose_backend, planned

SCHEMA = "warptile.timelines/1"
_PACKAGE = Path(warptile.__file__).resolve().parent
FILE = _PACKAGE / "data" / "timelines.json"
PATH = Path("src") / "warptile" / "data" / FILE.name
"""Of the file, in a checkout."""

_MAKERS = (
    "emulator/recording.py", "emulator/counters.py", "replay", "bench/profiling/replayed.py",
    "bench/profiling/timeline_rows.py", "bench/profiling/timeline_figure.py", "bench/profiling/shipped_timelines.py",
    "figures/timeline_bars.py",
)  # fmt: skip
"""Files and folders of the package that timelines depend on, beside kernels."""


@dataclass(frozen=True)
class Shown:
    """A launch whose timeline ships.

    Attributes:
        rung: its name.
        size: M, N, K.
        view: the rung whose page shows it, its own or one that is compared with it.
        config: tunables other than the rung's default.
        launches: in a row.
    """

    rung: str
    size: tuple[int, int, int]
    view: str
    config: Mapping[str, int] = field(default_factory=dict)
    launches: int = 1

    def plan(self) -> Plan:
        """On the emulator."""
        place = choose_backend("emulator")
        usual = plan_for(rung(self.rung), self.size, place)
        return planned(usual.problem, place, rung=self.rung, config={**usual.config, **self.config})


ONE_SM = {"SMS": 1}
"""A persistent CTA then computes all tiles, one after the other."""

TWO_CTAS = {"BN": 128, "STAGES": 2}
"""A tile so small that CTAs of two launches fit on an SM together."""

SHOWN = (
    Shown("mma-swizzled", (128, 128, 512), "mma-double-buffer"),
    Shown("mma-double-buffer", (128, 128, 512), "mma-double-buffer"),
    Shown("wgmma-tma", (128, 128, 1024), "wgmma-specialized"),
    Shown("wgmma-specialized", (128, 128, 1024), "wgmma-specialized"),
    Shown("wgmma-store", (256, 256, 512), "wgmma-overlap", ONE_SM),
    Shown("wgmma-overlap", (256, 256, 512), "wgmma-overlap", ONE_SM),
    Shown("wgmma-store", (256, 128, 512), "wgmma-dependent-launch", TWO_CTAS, 2),
    Shown("wgmma-dependent-launch", (256, 128, 512), "wgmma-dependent-launch", TWO_CTAS, 2),
)
"""Pairs that differ by one idea."""


class _Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row by columns: of each bar its start, length, kind and text; of some, by place, label, parts and spans."""

    label: str
    group: str
    rows: int
    differs: float
    starts: tuple[float, ...]
    lengths: tuple[float, ...]
    kinds: tuple[int, ...]
    texts: tuple[int, ...]
    labels: dict[int, str]
    joined: dict[int, tuple[int, tuple[tuple[int, float], ...]]]


class ShippedTimeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One launch.

    Attributes:
        rung: what was replayed.
        view: the rung whose page shows it.
        title: rung and problem.
        config: the rung's tunables.
        clocks: the end.
        clock_mhz: of the SM.
        kinds: of bars.
        texts: words and source line of bars.
        packed: the rows.
    """

    rung: str
    view: str
    title: str
    config: str
    clocks: float
    clock_mhz: float
    kinds: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]
    packed: tuple[_Row, ...]

    def rows(self) -> list[TimelineRow]:
        """The rows, for `timeline_figure`."""
        return [
            TimelineRow(
                row.label, row.group, tuple(self._bar(row, place) for place in range(len(row.starts))), row.rows,
                row.differs,
            )
            for row in self.packed
        ]  # fmt: skip

    def _bar(self, row: _Row, place: int) -> TimelineBar:
        text, line = self.texts[row.texts[place]]
        spans, parts = row.joined.get(place, (1, ()))
        start = row.starts[place]
        return TimelineBar(
            start, min(start + row.lengths[place], self.clocks), self.kinds[row.kinds[place]], text, line,
            row.labels.get(place, ""), tuple((self.kinds[kind], clocks) for kind, clocks in parts), spans,
        )  # fmt: skip


class ShippedTimelines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds."""

    schema: str
    key: str
    timelines: tuple[ShippedTimeline, ...]


def current_key() -> str:
    """The key of timelines that would be made now."""
    digest = hashlib.sha256(repr(SHOWN).encode())
    for name in _MAKERS:
        path = _PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(_PACKAGE)}\0".encode() + file.read_bytes())
    for name in dict.fromkeys(shown.rung for shown in SHOWN):
        digest.update(source_of(rung(name)).encode())
    return digest.hexdigest()[:16]


def made() -> ShippedTimelines:
    """All of them, replayed now."""
    return ShippedTimelines(SCHEMA, current_key(), tuple(made_of(shown) for shown in SHOWN))


def made_of(shown: Shown) -> ShippedTimeline:
    """One of them, replayed now."""
    plan = shown.plan()
    replay = replayed(plan, choose_backend("emulator"), shown.launches)
    timeline = replay.timeline
    about = ShippedTimeline(
        shown.rung, shown.view, timeline_title(plan, shown.launches), config_text(plan.config),
        _tenths(math.ceil(10 * timeline.clocks) / 10), timeline.clock_mhz, (), (), (),
    )  # fmt: skip
    return packed(about, replayed_rows(replay))


def packed(about: ShippedTimeline, rows: Sequence[TimelineRow]) -> ShippedTimeline:
    """A timeline with rows as they are written: times to a tenth of a clock, each text once."""
    kinds: dict[str, int] = {}
    texts: dict[tuple[str, str], int] = {}

    def kind_of(name: str) -> int:
        return kinds.setdefault(name, len(kinds))

    found = tuple(
        _Row(
            row.label, row.group, row.rows, round(row.differs, 4), tuple(_tenths(bar.start) for bar in row.bars),
            tuple(_tenths(bar.end - bar.start) for bar in row.bars), tuple(kind_of(bar.kind) for bar in row.bars),
            tuple(texts.setdefault((bar.text, bar.line), len(texts)) for bar in row.bars),
            {place: bar.label for place, bar in enumerate(row.bars) if bar.label},
            {
                place: (bar.spans, tuple((kind_of(kind), _tenths(clocks)) for kind, clocks in bar.parts))
                for place, bar in enumerate(row.bars) if bar.parts
            },
        )
        for row in rows
    )  # fmt: skip
    return msgspec.structs.replace(about, kinds=tuple(kinds), texts=tuple(texts), packed=found)


def _tenths(clocks: float) -> float | int:
    """To a tenth, without a fraction where there is none: half the digits."""
    rounded = round(clocks, 1)
    return int(rounded) if rounded == int(rounded) else rounded


def encode(timelines: ShippedTimelines) -> str:
    """The text of the file: a line for each row, so that a diff shows which one changed."""
    lines = [f'{{"schema":"{timelines.schema}","key":"{timelines.key}","timelines":[']
    for place, timeline in enumerate(timelines.timelines):
        head = msgspec.json.encode(msgspec.structs.replace(timeline, packed=())).decode().removesuffix("]}")
        rows = ",\n".join(msgspec.json.encode(row).decode() for row in timeline.packed)
        lines.append(f"{head}\n{rows}\n]}}{',' if place + 1 < len(timelines.timelines) else ''}")
    return "\n".join([*lines, "]}\n"])


@cache
def timelines() -> ShippedTimelines:
    """Those that ship with the package."""
    return msgspec.json.decode(FILE.read_bytes(), type=ShippedTimelines)


def is_current(root: Path) -> bool:
    """Whether the file of a checkout is what would be made now, by its key; so is a folder without the package."""
    if not (root / PATH).parent.is_dir():
        return True
    try:
        return msgspec.json.decode((root / PATH).read_bytes(), type=ShippedTimelines).key == current_key()
    except (FileNotFoundError, msgspec.DecodeError):
        return False


def update(root: Path) -> list[Path]:
    """Make the file of a checkout anew where it is not current; the files that were written."""
    if is_current(root):
        return []
    (root / PATH).write_text(encode(made()), "utf-8")
    return [root / PATH]
