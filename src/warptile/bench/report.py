"""Tables in documents, generated from records between markers.

A document has ``<!-- table:NAME -->`` ... ``<!-- /table -->`` or ``<!-- measured:RUNG -->`` ... ``<!-- /measured -->``;
what stands between is replaced. A document that is not what the records give fails `check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from warptile.bench import hopper, isa_tables, limits, menu, suite_tables, suites
from warptile.bench.claims import CLAIMS, INDEX, OF_CUBLAS, OF_LIMIT, REGISTERS, STEP, TARGETS, TFLOPS, Claim, Target
from warptile.bench.found import NOTHING, Found
from warptile.bench.markdown import Row, count, markdown, number, percent
from warptile.bench.measurements import Tuning
from warptile.bench.readings import READINGS
from warptile.bench.records import AnyRecord, CorrectnessRecord, LadderRecord, ProfileRecord
from warptile.bench.workloads import BF16, F16_F16, F16_F32, F32, PROFILE_SIZE, SIZES, Group, to_problem
from warptile.errors import UnsupportedError
from warptile.plan import config_text
from warptile.rungs import RUNGS, rung
from warptile.rungs.wmma import nine

SHOWN_SIZE = 4096
"""Extent of the ladder's main table."""

LIMITS = "limits-"
"""Before the name of a class of rows: the table of those that miss their bound."""

_BLOCK = re.compile(r"(<!-- (table|measured):([\w-]+) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)

_BASELINE_ROWS = (("cuBLASLt, best", "best_ms"), ("cuBLASLt, first", "first_ms"), ("torch.matmul", "torch_ms"))


def group_of_rung(name: str) -> Group:
    """The types in which the ladder's main table shows a rung."""
    family = rung(name).family
    if family != "simt":
        return BF16 if family == "wgmma" else F16_F32
    return F16_F16 if name == "simt-half2" else F32


class Report:
    """Tables from some records; by default the committed ones."""

    def __init__(self, records: Sequence[AnyRecord] | None = None) -> None:
        self._found = Found(records)

    # --- tables ---

    def table_ladder(self) -> str:
        """Every rung at one size, beside cuBLAS and the prediction."""
        if not self._found.has(LadderRecord, "sustained"):
            return NOTHING + "\n"
        rows = []
        for name, each in RUNGS.items():
            cell, profile = self._found.cell(name, group_of_rung(name), SHOWN_SIZE), self._found.profile(name)
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
            "`wmma` and `mma`, bfloat16 for `wgmma`, float16 throughout for `simt-half2`; B as [K, N], for `wgmma` as "
            "[N, K]; each beside cuBLASLt's best algorithm for the same types and the same B.\n\n"
        )
        return markdown(header, rows, right=2) + text + self._found.origins()

    def _sizes(self, groups: Callable[[str], Group], names: Iterable[str], baseline: Group | None) -> str:
        if not self._found.has(LadderRecord, "sustained"):
            return NOTHING + "\n"
        rows: list[Row] = []
        for name in names:
            cells = [self._found.cell(name, groups(name), size) for size in SIZES]
            if not any(cells):
                continue
            figures = []
            for cell in cells:
                share = cell.ratio.median if cell and cell.ratio else None
                figures.append("–" if cell is None else f"{number(cell.tflops)} ({percent(share)})")
            rows.append((f"`{name}`", *figures))
        if baseline is not None:
            found = [self._found.baseline(baseline, size) for size in SIZES]
            for label, field in _BASELINE_ROWS:
                times: list[float | None] = [getattr(each, field) if each else None for each in found]
                if any(times):
                    speeds = [e.problem.tflops(t) if e and t else None for e, t in zip(found, times, strict=True)]
                    rows.append((label, *(number(speed) for speed in speeds)))
        return markdown(("rung", *(str(size) for size in SIZES)), rows) + "\n" + self._found.origins()

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
        tuning = self._found.tuning("wmma-final", F16_F32, SHOWN_SIZE)
        if tuning is None:
            return NOTHING + "\n"
        return self._tuned_table(tuning) + "\n" + self._found.origins()

    @staticmethod
    def _tuned_table(tuning: Tuning) -> str:
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
        if not self._found.has(ProfileRecord):
            return NOTHING + "\n"
        rows = []
        for name in RUNGS:
            profile = self._found.profile(name)
            if profile is None:
                rows.append((f"`{name}`", *["–"] * 8))
                continue
            counted = profile.counters.get
            conflicts = number(counted("shared_load_conflict_ratio"), 2)
            rows.append(
                (
                    f"`{name}`", count(counted("shared_load_wavefronts")), conflicts,
                    number(counted("shared_store_conflict_ratio"), 2), count(counted("global_load_sectors")),
                    count(counted("warp_instructions")), str(profile.registers),
                    "–" if profile.occupancy is None else f"{profile.occupancy:.0f} %", profile.top_stall or "–",
                )
            )  # fmt: skip
        header = ("rung", "shared load wavefronts", "load conflicts", "store conflicts", "global load sectors",
                  "warp instructions", "registers", "occupancy", "top stall")  # fmt: skip
        return markdown(header, rows) + f"\n{PROFILE_SIZE}^3, one launch each.\n\n" + self._found.origins()

    def table_correctness(self) -> str:
        """Every rung against float64 and under compute-sanitizer."""
        if not self._found.has(CorrectnessRecord):
            return NOTHING + "\n"
        rows = []
        for name in RUNGS:
            mine = self._found.checks(name)
            wrong = [check for check in mine if not check.correct]
            worst = max((check.error_ratio for check in mine if check.error_ratio is not None), default=None)
            clean = [f"{run.tool}: {'?' if run.errors is None else run.errors}" for run in self._found.sanitized(name)]
            rows.append(
                (f"`{name}`", f"{len(mine) - len(wrong)} of {len(mine)}", number(worst, 3), ", ".join(clean) or "–")
            )
        header = ("rung", "checks passed", "largest error / bound", "compute-sanitizer errors")
        return markdown(header, rows) + "\n" + self._found.origins()

    def table_claims(self) -> str:
        """Every claim of the source texts with what was measured, and why they differ."""
        if not self._found.has(LadderRecord, "sustained"):
            return NOTHING + "\n"
        rows = [
            (claim.source, f"`{claim.rung}`", _in_unit(claim.published, claim.unit), _asked(claim),
             _in_unit(self._answer(claim), claim.unit), claim.why)
            for claim in CLAIMS
        ]  # fmt: skip
        header = ("source", "rung", "claimed", "conditions", "measured here", "why they differ")
        marks = ("---", "---", "---:", "---", "---:", "---")
        lines = [header, marks, *rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n\n" + self._found.origins()

    def _answer(self, claim: Claim) -> float | None:
        if claim.menu:
            return self._found.of_menu(claim.rung, claim.unit, claim.group, claim.previous)
        return self._found.value(claim.rung, claim.unit, claim.group, claim.size, claim.previous)

    def table_cool(self) -> str:
        """The ladder in short bursts on a cool chip, beside what it sustains."""
        if not self._found.has(LadderRecord, "cool"):
            return NOTHING + "\n"
        rows: list[Row] = []
        sizes = self._found.sizes("cool")
        for name in RUNGS:
            group = group_of_rung(name)
            figures: list[str] = []
            for size in sizes:
                for cell in (self._found.cell(name, group, size, cool=True), self._found.cell(name, group, size)):
                    share = percent(cell.ratio.median) if cell and cell.ratio else "–"
                    figures.append(f"{number(cell.tflops)} ({share})" if cell else "–")
            rows.append((f"`{name}`", *figures))
        header = ("rung", *(f"{size}, {regime}" for size in sizes for regime in ("cool", "sustained")))
        return markdown(header, rows) + "\n" + self._found.origins()

    def table_isa(self) -> str:
        """What every tensor-core instruction becomes on every architecture."""
        return isa_tables.isa_table()

    def table_isa_forms(self) -> str:
        """Copies and synchronisation: what each becomes (docs/isa.md)."""
        return isa_tables.forms_table()

    def table_isa_claims(self) -> str:
        """T1's precision table with what assembled code shows."""
        return isa_tables.claims_table()

    def table_targets(self) -> str:
        """What the ladder is held to, and whether it gets there."""
        if not self._found.has(LadderRecord, "sustained"):
            return NOTHING + "\n"
        rows = [self._target_row(target) for target in TARGETS]
        return markdown(("rung", "target", "measured", "met"), rows, right=2) + "\n" + self._found.origins()

    def _target_row(self, target: Target) -> Row:
        asked = (target.rung, target.unit, target.group)
        if target.menu:
            found = self._found.of_menu(*asked, target.previous, cool=target.cool)
        else:
            found = self._found.value(*asked, target.size, target.previous, cool=target.cool)
        met = "–" if found is None else ("yes" if found >= target.at_least else "no")
        wanted = f"{_in_unit(target.at_least, target.unit)} ({target.said})"
        return (f"`{target.rung}`", wanted, _in_unit(found, target.unit), met)

    def table_readings(self) -> str:
        """What reading the source texts shows, with the file that shows it again."""
        rows = [(each.source, each.said, each.shown, f"`{each.evidence}`") for each in READINGS]
        return markdown(("source", "what it says", "what follows", "shown by"), rows, right=4)

    def table_mma(self) -> str:
        """What the mma family takes of a multiprocessor, and its bank conflicts before and after the swizzle."""
        return menu.resources_table(self._found)

    def table_mma_sizes(self) -> str:
        """The mma family in float16 and bfloat16, sustained and cool."""
        return menu.sizes_table(self._found)

    def table_precision(self) -> str:
        """The precision menu: every type with its speed, its error, its range and when to use it."""
        return menu.types_table(self._found)

    def table_layouts(self) -> str:
        """Every type in the four combinations of majors."""
        return menu.layouts_table(self._found)

    def table_wgmma(self) -> str:
        """The wgmma family's gains from rung to rung, sustained and cool."""
        return hopper.ladder_table(self._found)

    def table_wgmma_types(self) -> str:
        """wgmma-final in every type."""
        return hopper.types_table(self._found)

    def table_wgmma_layouts(self) -> str:
        """wgmma-final in the four combinations of majors."""
        return hopper.layouts_table(self._found)

    def table_unaligned(self) -> str:
        """wgmma-final on problems that lie badly."""
        return hopper.unaligned_table(self._found)

    def table_suite_targets(self) -> str:
        """Every class of the suites' rows beside its target."""
        return suite_tables.targets_table(self._found)

    def table_suite_squares(self) -> str:
        """Square products beside cuBLASLt and torch."""
        return suite_tables.suite_table(self._found, "squares")

    def table_suite_llm(self) -> str:
        """Products of language models."""
        return suite_tables.suite_table(self._found, "llm")

    def table_suite_ragged(self) -> str:
        """Products that lie badly."""
        return suite_tables.suite_table(self._found, "ragged")

    def table_suite_small(self) -> str:
        """Few tokens, long sums, a batch."""
        return suite_tables.suite_table(self._found, "small")

    def table_suite_types(self) -> str:
        """Other types, and what goes with them."""
        return suite_tables.suite_table(self._found, "types")

    def pictures(self) -> dict[str, str]:
        """Pictures of the suites by their paths beside a document."""
        return suite_tables.pictures(self._found)

    def measured(self, name: str) -> str:
        """The block of a rung's own page: its speed over the sizes, its step, its counters and the prediction."""
        each = rung(name)
        if not self._found.has(LadderRecord, "sustained"):
            return NOTHING + "\n"
        rows = []
        for group in (F32, F16_F32, F16_F16, BF16):
            for size in SIZES:
                cell = self._found.cell(name, group, size)
                if cell is None:
                    continue
                before = self._found.cell(each.previous, group, size) if each.previous else None
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
        text = markdown(header, rows) + "\n" + self._found.origins() if rows else NOTHING + "\n"
        profile = self._found.profile(name)
        if profile is not None:
            counters = [(f"`{key}`", count(value)) for key, value in sorted(profile.counters.items())]
            counters.append(("registers a thread", str(profile.registers)))
            if profile.occupancy is not None:
                counters.append(("achieved occupancy", f"{profile.occupancy:.0f} %"))
            if profile.top_stall:
                counters.append(("top stall", f"{profile.top_stall}, {percent(profile.stalls[profile.top_stall])}"))
            text += f"\nNsight Compute at {profile.problem.shape}:\n\n" + markdown(("counter", "count"), counters)
            text += "\n" + self._found.origins()
        return text

    # --- documents ---

    def block(self, kind: str, name: str) -> str:
        """What stands between one pair of markers.

        Raises:
            UnsupportedError: there is no such table or rung.
        """
        if kind == "measured":
            return self.measured(name)
        if name.startswith(LIMITS) and name.removeprefix(LIMITS) in suites.TARGETS:
            return limits.table(self._found, name.removeprefix(LIMITS))
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


def _in_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit in (OF_CUBLAS, OF_LIMIT, INDEX):
        return percent(value)
    if unit == STEP:
        return f"{value:.2f} x"
    if unit == REGISTERS:
        return f"{value:.0f} registers"
    return f"{value:.1f} TFLOP/s" if unit == TFLOPS else f"{value:.2f} {unit}"


def _asked(claim: Claim) -> str:
    ours = f"here {claim.group.name}, {claim.size}^3"
    return f"{claim.conditions}; {ours}" if claim.conditions else ours


def documents(root: Path) -> list[Path]:
    """The documents of a checkout that may have markers."""
    found = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if _BLOCK.search(path.read_text())]


def rendered(root: Path, report: Report) -> dict[Path, str]:
    """Every document as the records give it, and the pictures that it shows."""
    found = {path: report.render(path.read_text()) for path in documents(root)}
    shown = [
        (path.parent / name, picture)
        for name, picture in report.pictures().items()
        for path, text in found.items()
        if f"]({name})" in text
    ]
    return found | dict(shown)


def update(root: Path, report: Report | None = None) -> list[Path]:
    """Rewrite every document and picture that is not what the records give; those that changed."""
    report = report or Report()
    wanted, stale = rendered(root, report), check(root, report)
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path])
    return stale


def check(root: Path, report: Report | None = None) -> list[Path]:
    """The documents and pictures that are not what the records give."""
    wanted = rendered(root, report or Report())
    return [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
