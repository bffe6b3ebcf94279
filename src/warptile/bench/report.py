"""Tables in documents, generated from records between markers.

A document has ``<!-- table:NAME -->`` ... ``<!-- /table -->`` or ``<!-- measured:RUNG -->`` ... ``<!-- /measured -->``;
what stands between is replaced. A document that is not what the records give fails `check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from warptile.bench.claims import CLAIMS, CONFLICTS, INTENSITY, OF_CUBLAS, STEP, TARGETS, TFLOPS, Claim, Target
from warptile.bench.records import (
    AnyRecord,
    BaselineTime,
    Cell,
    CorrectnessRecord,
    LadderRecord,
    Profile,
    ProfileRecord,
    Record,
    SanitizerRecord,
    Tuning,
    TuningRecord,
    committed,
    newest,
    newest_ladder,
)
from warptile.bench.workloads import F16_F16, F16_F32, F32, PROFILE_SIZE, SIZES, Group
from warptile.errors import UnsupportedError
from warptile.plan import config_text
from warptile.rungs import RUNGS, rung
from warptile.rungs.wmma import nine

NOTHING = "*No record yet; `python -m warptile.bench.campaign` on a GPU writes one.*"

SHOWN_SIZE = 4096
"""Extent of the ladder's main table."""

_BLOCK = re.compile(r"(<!-- (table|measured):([\w-]+) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)

_BASELINE_ROWS = (("cuBLASLt, best", "best_ms"), ("cuBLASLt, first", "first_ms"), ("torch.matmul", "torch_ms"))

Row = Sequence[str]


def markdown(header: Row, rows: Iterable[Row], right: int = 1) -> str:
    """A table whose first ``right`` columns are aligned left and the others right."""
    marks = ["---" if column < right else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows)) + "\n"


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed count of digits, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "–" if value is None else f"{100 * value:.1f} %"


def origin(record: Record) -> str:
    """One line on where a table's figures come from."""
    about = record.environment
    parts = [about.gpu, f"driver {about.driver}", f"CUDA {about.cuda}", f"NVRTC {about.nvrtc}"]
    if about.baseline_library:
        parts.append(about.baseline_library)
    if about.samples is not None:
        clock, power = about.samples.sm_clock_mhz, about.samples.power_w
        parts.append(f"SM clock {clock.median:.0f} MHz and {power.median:.0f} W at the median")
    parts.append(f"commit {record.git_hash}")
    return f"*{record.date[:10]}, {', '.join(parts)}; record `{record.id}`.*\n"


def group_of_rung(name: str) -> Group:
    """The types in which the ladder's main table shows a rung."""
    if rung(name).family != "simt":
        return F16_F32
    return F16_F16 if name == "simt-half2" else F32


SECTOR_BYTES = 32
"""What L1 moves at once."""


class Report:
    """Tables from some records; by default the committed ones."""

    def __init__(self, records: Sequence[AnyRecord] | None = None) -> None:
        self._records = committed() if records is None else tuple(records)

    # --- looking things up ---

    @cached_property
    def _ladder(self) -> LadderRecord | None:
        return newest_ladder("sustained", self._records)

    @cached_property
    def _cool_ladder(self) -> LadderRecord | None:
        return newest_ladder("cool", self._records)

    @cached_property
    def _profiles(self) -> ProfileRecord | None:
        return newest(ProfileRecord, self._records)

    def cell(self, name: str, group: Group, size: int, *, cool: bool = False) -> Cell | None:
        """The recorded cell of a rung, or None."""
        record = self._cool_ladder if cool else self._ladder
        if record is None:
            return None
        key = group.key(size, size, size)
        return next((cell for cell in record.cells if cell.rung == name and cell.problem == key), None)

    def baseline(self, group: Group, size: int) -> BaselineTime | None:
        """The recorded baseline of a problem, or None."""
        if self._ladder is None:
            return None
        key = group.key(size, size, size)
        return next((found for found in self._ladder.baselines if found.problem == key), None)

    def profile(self, name: str, size: int = PROFILE_SIZE) -> Profile | None:
        """The recorded counters of a rung at a square size, or None."""
        if self._profiles is None:
            return None
        mine = [each for each in self._profiles.profiles if each.rung == name and not each.failed]
        return next((each for each in mine if each.problem.m == each.problem.n == each.problem.k == size), None)

    def value(self, name: str, unit: str, group: Group, size: int, previous: str | None = None) -> float | None:
        """A measured figure in the unit of a claim, or None when it is not recorded."""
        if unit in (INTENSITY, CONFLICTS):
            profile = self.profile(name, size)
            if profile is None:
                return None
            if unit == CONFLICTS:
                return profile.counters.get("shared_load_conflict_ratio")
            sectors = profile.counters.get("global_load_sectors")
            return profile.problem.flops / (SECTOR_BYTES * sectors) if sectors else None
        cell = self.cell(name, group, size)
        if cell is None or cell.tflops is None:
            return None
        if unit == TFLOPS:
            return cell.tflops
        if unit == OF_CUBLAS:
            return cell.ratio.median if cell.ratio else None
        assert unit == STEP
        before = self.cell(previous, group, size) if previous else None
        return cell.tflops / before.tflops if before is not None and before.tflops else None

    # --- tables ---

    def table_ladder(self) -> str:
        """Every rung at one size, beside cuBLAS and the prediction."""
        if self._ladder is None:
            return NOTHING + "\n"
        rows = []
        for name, each in RUNGS.items():
            cell, profile = self.cell(name, group_of_rung(name), SHOWN_SIZE), self.profile(name)
            predicted = cell.predicted if cell else None
            said = f"{predicted.tflops:.1f} ({predicted.bound})" if predicted else "–"
            conflicts = profile.counters.get("shared_load_conflict_ratio") if profile else None
            rows.append(
                (f"`{name}`", each.idea, number(conflicts, 2), said, number(cell.tflops if cell else None),
                 percent(cell.ratio.median if cell and cell.ratio else None))
            )  # fmt: skip
        header = ("rung", "idea", "conflict ratio", "predicted TFLOP/s (bound)", "TFLOP/s", "of cuBLAS")
        text = (
            f"\n{SHOWN_SIZE}^3, sustained, normal data; float32 for `simt`, float16 with float32 accumulation for "
            "`wmma`, float16 throughout for `simt-half2`; each beside cuBLASLt's best algorithm for the same types.\n\n"
        )
        return markdown(header, rows, right=2) + text + origin(self._ladder)

    def _sizes(self, groups: Callable[[str], Group], names: Iterable[str], baseline: Group | None) -> str:
        if self._ladder is None:
            return NOTHING + "\n"
        rows: list[Row] = []
        for name in names:
            cells = [self.cell(name, groups(name), size) for size in SIZES]
            if not any(cells):
                continue
            figures = []
            for cell in cells:
                share = cell.ratio.median if cell and cell.ratio else None
                figures.append("–" if cell is None else f"{number(cell.tflops)} ({percent(share)})")
            rows.append((f"`{name}`", *figures))
        if baseline is not None:
            found = [self.baseline(baseline, size) for size in SIZES]
            for label, field in _BASELINE_ROWS:
                times: list[float | None] = [getattr(each, field) if each else None for each in found]
                if any(times):
                    speeds = [e.problem.tflops(t) if e and t else None for e, t in zip(found, times, strict=True)]
                    rows.append((label, *(number(speed) for speed in speeds)))
        return markdown(("rung", *(str(size) for size in SIZES)), rows) + "\n" + origin(self._ladder)

    def table_sizes(self) -> str:
        """TFLOP/s and share of cuBLAS over the sizes of T3's table, float32 accumulation."""
        return self._sizes(lambda name: F16_F32, [n for n in RUNGS if n.startswith("wmma")], F16_F32)

    def table_sizes_f16(self) -> str:
        """The same with float16 accumulation, as T3 had it."""
        return self._sizes(lambda name: F16_F16, [n for n in RUNGS if n.startswith(("wmma", "simt-half2"))], F16_F16)

    def table_sizes_f32(self) -> str:
        """The CUDA-core rungs in float32."""
        return self._sizes(lambda name: F32, [n for n in RUNGS if n.startswith("simt")], F32)

    def table_autotune(self) -> str:
        """The nine configurations of wmma-final that are always tried, and the best found."""
        record = newest(TuningRecord, self._records)
        tuning = None if record is None else self._tuning(record, "wmma-final", F16_F32, SHOWN_SIZE)
        if record is None or tuning is None:
            return NOTHING + "\n"
        return self._tuned_table(tuning) + "\n" + origin(record)

    @staticmethod
    def _tuning(record: TuningRecord, name: str, group: Group, size: int) -> Tuning | None:
        key = group.key(size, size, size)
        return next((each for each in record.tunings if each.rung == name and each.problem == key), None)

    @staticmethod
    def _tuned_table(tuning: Tuning) -> str:
        from warptile.bench.workloads import to_problem

        best = tuning.tried[0]
        always = {config_text(config) for config in nine(to_problem(tuning.problem))}
        shown = [tried for tried in tuning.tried if tried is best or config_text(tried.config) in always]
        rows = []
        for tried in shown:
            time_ms = tried.time_ms
            speed = tuning.problem.tflops(time_ms) if time_ms else None
            mark = "**best**" if tried is best else (tried.failed or "")
            rows.append((f"`{config_text(tried.config)}`", number(time_ms, 4), number(speed), mark))
        measured = sum(1 for tried in tuning.tried if tried.time_ms is not None)
        failed = len(tuning.tried) - measured
        text = f"\n{measured} configurations measured, {failed} failed, of {tuning.candidates} in the space.\n"
        return markdown(("configuration", "ms", "TFLOP/s", ""), rows) + text

    def table_counters(self) -> str:
        """What Nsight Compute counted in each rung at one size."""
        record = self._profiles
        if record is None:
            return NOTHING + "\n"
        rows = []
        for name in RUNGS:
            profile = self.profile(name)
            if profile is None:
                rows.append((f"`{name}`", *["–"] * 8))
                continue
            count = profile.counters.get
            conflicts = number(count("shared_load_conflict_ratio"), 2)
            rows.append(
                (
                    f"`{name}`", _count(count("shared_load_wavefronts")), conflicts,
                    number(count("shared_store_conflict_ratio"), 2), _count(count("global_load_sectors")),
                    _count(count("warp_instructions")), str(profile.registers),
                    "–" if profile.occupancy is None else f"{profile.occupancy:.0f} %", profile.top_stall or "–",
                )
            )  # fmt: skip
        header = ("rung", "shared load wavefronts", "load conflicts", "store conflicts", "global load sectors",
                  "warp instructions", "registers", "occupancy", "top stall")  # fmt: skip
        return markdown(header, rows) + f"\n{PROFILE_SIZE}^3, one launch each. " + origin(record)

    def table_correctness(self) -> str:
        """Every rung against float64 and under compute-sanitizer."""
        checks, sanitized = newest(CorrectnessRecord, self._records), newest(SanitizerRecord, self._records)
        if checks is None:
            return NOTHING + "\n"
        rows = []
        for name in RUNGS:
            mine = [check for check in checks.checks if check.rung == name]
            wrong = [check for check in mine if not check.correct]
            worst = max((check.error_ratio for check in mine if check.error_ratio is not None), default=None)
            runs = [run for run in sanitized.runs if run.rung == name] if sanitized else []
            clean = [f"{run.tool}: {'?' if run.errors is None else run.errors}" for run in runs]
            rows.append(
                (f"`{name}`", f"{len(mine) - len(wrong)} of {len(mine)}", number(worst, 3), ", ".join(clean) or "–")
            )
        header = ("rung", "checks passed", "largest error / bound", "compute-sanitizer errors")
        return markdown(header, rows) + "\n" + origin(checks)

    def table_claims(self) -> str:
        """Every claim of the source texts with what was measured, and why they differ."""
        if self._ladder is None:
            return NOTHING + "\n"
        rows = [
            (claim.source, f"`{claim.rung}`", _in_unit(claim.published, claim.unit), _asked(claim),
             _in_unit(self._answer(claim), claim.unit), claim.why)
            for claim in CLAIMS
        ]  # fmt: skip
        header = ("source", "rung", "claimed", "conditions", "measured here", "why they differ")
        marks = ("---", "---", "---:", "---", "---:", "---")
        lines = [header, marks, *rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n\n" + origin(self._ladder)

    def _answer(self, claim: Claim) -> float | None:
        return self.value(claim.rung, claim.unit, claim.group, claim.size, claim.previous)

    def table_cool(self) -> str:
        """The ladder in short bursts on a cool chip, beside what it sustains."""
        if self._cool_ladder is None:
            return NOTHING + "\n"
        rows: list[Row] = []
        sizes = sorted({cell.problem.m for cell in self._cool_ladder.cells})
        for name in RUNGS:
            group = group_of_rung(name)
            figures: list[str] = []
            for size in sizes:
                for cell in (self.cell(name, group, size, cool=True), self.cell(name, group, size)):
                    share = percent(cell.ratio.median) if cell and cell.ratio else "–"
                    figures.append(f"{number(cell.tflops)} ({share})" if cell else "–")
            rows.append((f"`{name}`", *figures))
        header = ("rung", *(f"{size}, {regime}" for size in sizes for regime in ("cool", "sustained")))
        return markdown(header, rows) + "\n" + origin(self._cool_ladder)

    def table_targets(self) -> str:
        """What the ladder is held to, and whether it gets there."""
        if self._ladder is None:
            return NOTHING + "\n"
        rows = [self._target_row(target) for target in TARGETS]
        origins = [origin(record) for record in (self._ladder, self._cool_ladder) if record is not None]
        return markdown(("rung", "target", "measured", "met"), rows, right=2) + "\n" + "\n".join(origins)

    def _target_row(self, target: Target) -> Row:
        if target.cool:
            cell = self.cell(target.rung, target.group, target.size, cool=True)
            found = cell.tflops if cell is not None else None
        else:
            found = self.value(target.rung, target.unit, target.group, target.size)
        met = "–" if found is None else ("yes" if found >= target.at_least else "no")
        wanted = f"{_in_unit(target.at_least, target.unit)} ({target.said})"
        return (f"`{target.rung}`", wanted, _in_unit(found, target.unit), met)

    def measured(self, name: str) -> str:
        """The block of a rung's own page: its speed over the sizes, its step, its counters and the prediction."""
        each = rung(name)
        if self._ladder is None:
            return NOTHING + "\n"
        groups = [g for g in (F32, F16_F32, F16_F16) if any(self.cell(name, g, size) for size in SIZES)]
        rows = []
        for group in groups:
            for size in SIZES:
                cell = self.cell(name, group, size)
                if cell is None:
                    continue
                before = self.cell(each.previous, group, size) if each.previous else None
                step = cell.tflops / before.tflops if cell.tflops and before and before.tflops else None
                said = cell.predicted
                rows.append(
                    (
                        group.name, cell.problem.shape, number(said.tflops if said else None),
                        said.bound if said else "–", number(cell.tflops),
                        percent(cell.ratio.median if cell.ratio else None), number(step, 2),
                        cell.failed or cell.note or "",
                    )
                )  # fmt: skip
        header = ("types", "size", "predicted TFLOP/s", "bound", "measured TFLOP/s", "of cuBLAS",
                  "times previous rung", "")  # fmt: skip
        text = markdown(header, rows) + "\n" + origin(self._ladder)
        profile = self.profile(name)
        if profile is not None and self._profiles is not None:
            counters = [(f"`{key}`", _count(value)) for key, value in sorted(profile.counters.items())]
            counters.append(("registers a thread", str(profile.registers)))
            if profile.occupancy is not None:
                counters.append(("achieved occupancy", f"{profile.occupancy:.0f} %"))
            if profile.top_stall:
                counters.append(("top stall", f"{profile.top_stall}, {percent(profile.stalls[profile.top_stall])}"))
            text += f"\nNsight Compute at {profile.problem.shape}:\n\n" + markdown(("counter", "count"), counters)
            text += "\n" + origin(self._profiles)
        return text

    # --- documents ---

    def block(self, kind: str, name: str) -> str:
        """What stands between one pair of markers.

        Raises:
            UnsupportedError: there is no such table or rung.
        """
        if kind == "measured":
            return self.measured(name)
        made: Callable[[], str] | None = getattr(self, f"table_{name.replace('-', '_')}", None)
        if made is None:
            tables = [each.removeprefix("table_").replace("_", "-") for each in dir(self) if each.startswith("table_")]
            known = ", ".join(sorted(tables))
            raise UnsupportedError(f"table: got {name!r}; there are {known}, such as <!-- table:ladder -->")
        return made()

    def render(self, text: str) -> str:
        """A document with every marked block as the records give it."""

        def replace(found: re.Match[str]) -> str:
            return found.group(1) + self.block(found.group(2), found.group(3)) + found.group(5)

        return _BLOCK.sub(replace, text)


def _count(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3f}"


def _in_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == OF_CUBLAS:
        return percent(value)
    if unit == STEP:
        return f"{value:.2f} x"
    return f"{value:.1f} TFLOP/s" if unit == TFLOPS else f"{value:.2f} {unit}"


def _asked(claim: Claim) -> str:
    ours = f"here {claim.group.name}, {claim.size}^3"
    return f"{claim.conditions}; {ours}" if claim.conditions else ours


def documents(root: Path) -> list[Path]:
    """The documents of a checkout that may have markers."""
    found = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if _BLOCK.search(path.read_text())]


def update(root: Path, report: Report | None = None) -> list[Path]:
    """Rewrite every document that is not what the records give; those that changed."""
    report = report or Report()
    changed = []
    for path in documents(root):
        old = path.read_text()
        new = report.render(old)
        if new != old:
            path.write_text(new)
            changed.append(path)
    return changed


def check(root: Path, report: Report | None = None) -> list[Path]:
    """The documents that are not what the records give."""
    report = report or Report()
    return [path for path in documents(root) if report.render(path.read_text()) != path.read_text()]
