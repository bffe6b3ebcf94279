"""Tables in documents, generated from records between markers.

A document has ``<!-- table:NAME -->`` ... ``<!-- /table -->`` or ``<!-- measured:RUNG -->`` ... ``<!-- /measured -->``;
the text between them is replaced. A document that is not what the records give fails `check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from warptile import measured
from warptile.bench.protocol import suites
from warptile.bench.protocol.measurements import Tuning
from warptile.bench.protocol.records import AnyRecord, CorrectnessRecord, LadderRecord, ProfileRecord
from warptile.bench.protocol.workloads import F16_F16, F16_F32, F32, PROFILE_SIZE, SIZES, TypeGroup, to_problem
from warptile.bench.report import (
    call_tables,
    cluster_tables,
    emulator_tables,
    epilogue_tables,
    expected_tables,
    feature_tables,
    isa_tables,
    limits,
    measured_summary,
    mma_tables,
    model_tables,
    outside_tables,
    overlap_prediction,
    planning_tables,
    recipe_tables,
    roofline_tables,
    suite_tables,
    survey_tables,
    tensor_parallel_tables,
    wgmma_tables,
)
from warptile.bench.report.claims import claim_tables
from warptile.bench.report.claims.ladder_targets import LADDER_TARGETS, LadderTarget
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.ladder_cells import SHOWN_SIZE, group_of_rung, shown_cell, sized_cells, speedup_over
from warptile.bench.report.markdown import TableRow, count, markdown, number, percent
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup
from warptile.errors import UnsupportedError
from warptile.measured import MeasuredSummary
from warptile.planning.plan import config_text
from warptile.rungs import RUNGS, rung
from warptile.rungs.wmma import nine

LIMITS = "limits-"
"""Before the name of a class of rows: the table of those that miss their bound."""

FACTS, LISTING = "facts-", "listing-"
"""Before a topic of factual claims, and before the name of a published listing."""

MAIN_STEPS = (
    "simt-naive", "simt-warptile", "wmma-naive", "wmma-shared", "wmma-padded", "wmma-multistage", "wmma-final",
    "mma-swizzled", "mma-final", "wgmma-tma", "wgmma-specialized", "wgmma-cooperative", "wgmma-store", "wgmma-final",
    "wgmma-sparse",
)  # fmt: skip
"""Rungs of the short ladder: those whose idea a newcomer should know first. At most 15."""

_SPEEDS = ("TFLOP/s", "speedup over previous", "of cuBLASLt")
LADDER_CONDITIONS = (
    f"\nM = N = K = {SHOWN_SIZE}, sustained at the power limit, normally distributed data. `simt`: f32; `simt-half2`: "
    "f16 throughout; `wmma` and `mma`: f16 with f32 accumulators; `wgmma`: bf16. B is [K, N], for `wgmma` [N, K]. The "
    "library is cuBLASLt's fastest algorithm for the same types and layout.\n\n"
)

FP8_CONDITION = "`wgmma-two-level`: e4m3 with f32 accumulators, bf16 results.\n\n"

_BLOCK = re.compile(r"(<!-- (table|measured):([\w-]+) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)

_BASELINE_ROWS = (("cuBLASLt, best", "best_ms"), ("cuBLASLt, first", "first_ms"), ("torch.matmul", "torch_ms"))


class DocumentTables:
    """Tables from some records; by default the committed ones."""

    def __init__(self, records: Sequence[AnyRecord] | None = None) -> None:
        self._lookup = RecordLookup(records)

    # --- tables ---

    def table_ladder(self) -> str:
        """Every rung at one size: bank conflicts, the prediction, the speed, and the speedup over the rung before."""
        if not self._lookup.has(LadderRecord, "sustained"):
            return NO_RECORD + "\n"
        rows = []
        for name, each in RUNGS.items():
            cell, profile = shown_cell(self._lookup, name), self._lookup.profile(name)
            predicted = expected_of(cell) if cell else None
            said = f"{predicted.tflops:.1f} ({predicted.bound})" if predicted else "–"
            conflicts = profile.counters.get("shared_load_conflict_ratio") if profile else None
            rows.append(
                (f"`{name}`", each.idea, number(conflicts, 2), said, *self._speeds(name, each.previous))
            )  # fmt: skip
        header = ("rung", "idea", "bank conflicts (n-way)", "predicted TFLOP/s (limited by)", *_SPEEDS)
        return markdown(header, rows, right=2) + LADDER_CONDITIONS + FP8_CONDITION + self._lookup.origins()

    def table_tensor_parallel(self) -> str:
        """Tensor-parallel GEMMs as measured on several GPUs."""
        return tensor_parallel_tables.table(self._lookup)

    def table_overlap_gather(self) -> str:
        """What overlapping an all-gather with its GEMM gives, by arithmetic."""
        return overlap_prediction.table(self._lookup, scatters=False)

    def table_overlap_scatter(self) -> str:
        """What overlapping a reduce-scatter with its GEMM gives, by arithmetic."""
        return overlap_prediction.table(self._lookup, scatters=True)

    def table_ladder_summary(self) -> str:
        """The main steps of the ladder, each with its speedup over the row above, where both are of the same family."""
        if not self._lookup.has(LadderRecord, "sustained"):
            return NO_RECORD + "\n"
        rows = []
        for above, name in zip((None, *MAIN_STEPS), MAIN_STEPS, strict=False):
            before = above if above is not None and rung(above).family == rung(name).family else None
            page = f"[`{name}`](docs/rungs/{name}.md)"
            rows.append((page, RUNGS[name].idea, *self._speeds(name, before)))
        header = ("rung", "idea", "TFLOP/s", "speedup over the row above", "of cuBLASLt")
        return markdown(header, rows, right=2) + LADDER_CONDITIONS + self._lookup.origins()

    def _speeds(self, name: str, before: str | None) -> TableRow:
        """TFLOP/s, the speedup over another rung that is shown in the same types, and the share of cuBLASLt."""
        cell = shown_cell(self._lookup, name)
        share = percent(cell.ratio.median if cell and cell.ratio else None)
        return number(cell.tflops if cell else None), number(speedup_over(self._lookup, name, before), 2), share

    def _sizes(self, groups: Callable[[str], TypeGroup], names: Iterable[str], baseline: TypeGroup | None) -> str:
        if not self._lookup.has(LadderRecord, "sustained"):
            return NO_RECORD + "\n"
        rows: list[TableRow] = []
        for name in names:
            cells = [self._lookup.cell(name, groups(name), size) for size in SIZES]
            if not any(cells):
                continue
            figures = []
            for cell in cells:
                share = cell.ratio.median if cell and cell.ratio else None
                figures.append("–" if cell is None else f"{number(cell.tflops)} ({percent(share)})")
            rows.append((f"`{name}`", *figures))
        if baseline is not None:
            found = [self._lookup.baseline(baseline, size) for size in SIZES]
            for label, field in _BASELINE_ROWS:
                times: list[float | None] = [getattr(each, field) if each else None for each in found]
                if any(times):
                    speeds = [e.problem.tflops(t) if e and t else None for e, t in zip(found, times, strict=True)]
                    rows.append((label, *(number(speed) for speed in speeds)))
        return markdown(("rung", *(str(size) for size in SIZES)), rows) + "\n" + self._lookup.origins()

    def table_sizes(self) -> str:
        """TFLOP/s and share of cuBLASLt over the sizes of T3's table, f32 accumulators."""
        return self._sizes(lambda name: F16_F32, [n for n in RUNGS if n.startswith("wmma")], F16_F32)

    def table_sizes_f16(self) -> str:
        """The same with f16 accumulators, as T3 had it."""
        return self._sizes(lambda name: F16_F16, [n for n in RUNGS if n.startswith(("wmma", "simt-half2"))], F16_F16)

    def table_sizes_f32(self) -> str:
        """The CUDA-core rungs in float32."""
        return self._sizes(lambda name: F32, [n for n in RUNGS if n.startswith("simt")], F32)

    def table_autotune(self) -> str:
        """The nine configurations of wmma-final that are always tried, and the best found."""
        tuning = self._lookup.tuning("wmma-final", F16_F32, SHOWN_SIZE)
        if tuning is None:
            return NO_RECORD + "\n"
        return self._tuned_table(tuning) + "\n" + self._lookup.origins()

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
        if not self._lookup.has(ProfileRecord):
            return NO_RECORD + "\n"
        rows = []
        for name in RUNGS:
            profile = self._lookup.profile(name)
            if profile is None:
                rows.append((f"`{name}`", *["–"] * 6))
                continue
            counted = profile.counters.get
            conflicts = (
                number(counted(f"shared_{kind}_conflict_ratio"), 2) for kind in ("load", "store", "async_copy")
            )
            occupancy = "–" if profile.occupancy is None else f"{profile.occupancy:.0f} %"
            rows.append(
                (
                    f"`{name}`", count(counted("shared_load_wavefronts")), ", ".join(conflicts),
                    count(counted("global_load_sectors")), count(counted("warp_instructions")),
                    f"{profile.registers}, {occupancy}", profile.top_stall or "–",
                )
            )  # fmt: skip
        header = ("rung", "shared load wavefronts", "n-way conflicts of loads, stores, cp.async", "global load sectors",
                  "warp instructions", "registers, occupancy", "top stall")  # fmt: skip
        return (
            markdown(header, rows)
            + f"\nM = N = K = {PROFILE_SIZE}, one launch of each rung.\n\n"
            + self._lookup.origins()
        )

    def table_correctness(self) -> str:
        """Every rung against float64 and under compute-sanitizer."""
        if not self._lookup.has(CorrectnessRecord):
            return NO_RECORD + "\n"
        rows = []
        for name in RUNGS:
            mine = self._lookup.checks(name)
            wrong = [check for check in mine if not check.correct]
            worst = max((check.error_ratio for check in mine if check.error_ratio is not None), default=None)
            clean = [f"{run.tool}: {'?' if run.errors is None else run.errors}" for run in self._lookup.sanitized(name)]
            rows.append(
                (f"`{name}`", f"{len(mine) - len(wrong)} of {len(mine)}", number(worst, 3), ", ".join(clean) or "–")
            )
        header = ("rung", "checks passed", "largest error / bound", "compute-sanitizer errors")
        return markdown(header, rows) + "\n" + self._lookup.origins()

    def table_claims(self) -> str:
        """Every figure of the source texts with what was measured, the verdict, and why they differ."""
        if not self._lookup.has(LadderRecord, "sustained"):
            return NO_RECORD + "\n"
        return claim_tables.rungs_table(self._lookup)

    def table_claim_verdicts(self) -> str:
        """How many claims got which verdict."""
        return claim_tables.verdicts_table(self._lookup)

    def table_claim_means(self) -> str:
        """How factual claims are checked."""
        return claim_tables.means_list()

    def table_cool(self) -> str:
        """The ladder in short bursts on a cool chip, and sustained at the power limit."""
        if not self._lookup.has(LadderRecord, "cool"):
            return NO_RECORD + "\n"
        rows: list[TableRow] = []
        sizes = self._lookup.sizes("cool")
        for name in RUNGS:
            group = group_of_rung(name)
            figures: list[str] = []
            for size in sizes:
                for cell in (self._lookup.cell(name, group, size, cool=True), self._lookup.cell(name, group, size)):
                    share = percent(cell.ratio.median) if cell and cell.ratio else "–"
                    figures.append(f"{number(cell.tflops)} ({share})" if cell else "–")
            rows.append((f"`{name}`", *figures))
        header = ("rung", *(f"{size}, {regime}" for size in sizes for regime in ("cool", "sustained")))
        return markdown(header, rows) + "\n" + self._lookup.origins()

    def table_isa(self) -> str:
        """What every tensor-core instruction becomes on every architecture."""
        return isa_tables.isa_table()

    def table_isa_forms(self) -> str:
        """Copies and synchronisation: what each becomes (docs/isa.md)."""
        return isa_tables.forms_table()

    def table_isa_claims(self) -> str:
        """Lists of shapes, T1's among them, with what assembled code shows."""
        return isa_tables.claims_table()

    def table_targets(self) -> str:
        """What the ladder is held to, and whether it gets there."""
        if not self._lookup.has(LadderRecord, "sustained"):
            return NO_RECORD + "\n"
        rows = [self._target_row(target) for target in LADDER_TARGETS]
        return markdown(("rung", "target", "measured", "met"), rows, right=2) + "\n" + self._lookup.origins()

    def _target_row(self, target: LadderTarget) -> TableRow:
        asked = (target.rung, target.unit, target.group)
        if target.in_type_table:
            found = self._lookup.type_table_value(*asked, target.previous, cool=target.cool)
        else:
            found = self._lookup.value(*asked, target.size, target.previous, cool=target.cool)
        met = "–" if found is None else ("yes" if found >= target.at_least else "no")
        wanted = f"{claim_tables.in_unit(target.at_least, target.unit)} ({target.said})"
        return (f"`{target.rung}`", wanted, claim_tables.in_unit(found, target.unit), met)

    def table_mma(self) -> str:
        """Registers, shared memory, occupancy and bank conflicts of the mma family."""
        return mma_tables.resources_table(self._lookup)

    def table_mma_sizes(self) -> str:
        """The mma family in float16 and bfloat16, sustained and cool."""
        return mma_tables.sizes_table(self._lookup)

    def table_precision(self) -> str:
        """The table of types: every type with its speed, its error, its range and when to use it."""
        return mma_tables.types_table(self._lookup)

    def table_layouts(self) -> str:
        """Every type in the four combinations of layouts."""
        return mma_tables.layouts_table(self._lookup)

    def table_wgmma(self) -> str:
        """The wgmma family's gains from rung to rung, sustained and cool."""
        return wgmma_tables.ladder_table(self._lookup)

    def table_wgmma_types(self) -> str:
        """wgmma-final in every type."""
        return wgmma_tables.types_table(self._lookup)

    def table_wgmma_layouts(self) -> str:
        """wgmma-final in the four combinations of layouts."""
        return wgmma_tables.layouts_table(self._lookup)

    def table_unaligned(self) -> str:
        """wgmma-final on misaligned problems."""
        return wgmma_tables.unaligned_table(self._lookup)

    def table_suite_targets(self) -> str:
        """Every class of rows in the suites, with its target."""
        return suite_tables.targets_table(self._lookup)

    def table_suite_squares(self) -> str:
        """Square GEMMs against cuBLASLt and torch."""
        return suite_tables.suite_table(self._lookup, "squares")

    def table_suite_llm(self) -> str:
        """GEMMs of language models."""
        return suite_tables.suite_table(self._lookup, "llm")

    def table_suite_ragged(self) -> str:
        """Misaligned GEMMs."""
        return suite_tables.suite_table(self._lookup, "ragged")

    def table_suite_small(self) -> str:
        """Small M, long K, a batch."""
        return suite_tables.suite_table(self._lookup, "small")

    def table_suite_float32(self) -> str:
        """float32 beside CUDA cores' multiply-adds, every row."""
        return suite_tables.suite_table(self._lookup, "float32")

    def table_suite_float64(self) -> str:
        """float64, every row."""
        return suite_tables.suite_table(self._lookup, "float64")

    def table_suite_batches(self) -> str:
        """Batches of matrices of any size, every row."""
        return suite_tables.suite_table(self._lookup, "batches")

    def table_suite_types(self) -> str:
        """Other types, and what goes with them."""
        return suite_tables.suite_table(self._lookup, "types")

    def table_calls(self) -> str:
        """What a call of matmul costs the host, beside the frameworks; nothing without a record."""
        return call_tables.short_table(self._lookup)

    def table_calls_all(self) -> str:
        """Every participant of the suite calls."""
        return call_tables.long_table(self._lookup)

    def table_epilogues(self) -> str:
        """What epilogues cost a GEMM, beside torch and cuBLASLt."""
        return epilogue_tables.table(self._lookup)

    def table_outside(self) -> str:
        """What the emulator says of kernels that others wrote."""
        return outside_tables.table(self._lookup)

    def table_emulator(self) -> str:
        """How fast the emulator is, interpreted and compiled."""
        return emulator_tables.table(self._lookup)

    def table_planning(self) -> str:
        """How long plans take on the host."""
        return planning_tables.table(self._lookup)

    def table_models(self) -> str:
        """Steps of whole models by torch and by warptile."""
        return model_tables.table(self._lookup)

    def table_recipes(self) -> str:
        """What README's recipes gain."""
        return recipe_tables.table(self._lookup)

    def table_untuned(self) -> str:
        """What plans reach on problems that nobody tuned."""
        return survey_tables.table(self._lookup)

    def table_clusters(self) -> str:
        """What clusters that share loads bring where rows lie in two lines of L2."""
        return cluster_tables.table(self._lookup)

    def pictures(self) -> dict[str, str]:
        """Pictures of the suites and the rooflines by their paths relative to a document."""
        return suite_tables.pictures(self._lookup) | roofline_tables.pictures(self._summary)

    def measured(self, name: str) -> str:
        """The block of a rung's own page: its speed over the sizes, its step, its counters and the prediction."""
        rung(name)
        if not self._lookup.has(LadderRecord, "sustained"):
            return NO_RECORD + "\n"
        rows = []
        for each in sized_cells(self._lookup, name):
            cell, said = each.cell, expected_of(each.cell)
            rows.append(
                (
                    each.types.name, cell.problem.shape, number(said.tflops if said else None),
                    said.bound if said else "–", number(cell.tflops),
                    percent(cell.ratio.median if cell.ratio else None), number(each.over_previous, 2),
                    cell.failed or cell.note or "",
                )
            )  # fmt: skip
        header = ("types", "size", "predicted TFLOP/s", "limited by", "measured TFLOP/s", "of cuBLAS",
                  "times previous rung", "")  # fmt: skip
        text = markdown(header, rows) + "\n" + self._lookup.origins() if rows else NO_RECORD + "\n"
        profile = self._lookup.profile(name)
        if profile is not None:
            counters = [(f"`{key}`", count(value)) for key, value in sorted(profile.counters.items())]
            counters.append(("registers a thread", str(profile.registers)))
            if profile.occupancy is not None:
                counters.append(("achieved occupancy", f"{profile.occupancy:.0f} %"))
            if profile.top_stall:
                counters.append(("top stall", f"{profile.top_stall}, {percent(profile.stalls[profile.top_stall])}"))
            text += f"\nNsight Compute at {profile.problem.shape}:\n\n" + markdown(("counter", "count"), counters)
            text += "\n" + self._lookup.origins()
        return text

    # --- documents ---

    def block(self, kind: str, name: str) -> str:
        """The text between one pair of markers.

        Raises:
            UnsupportedError: there is no such table or rung.
        """
        if kind == "measured":
            return self.measured(name)
        if name.startswith(LIMITS) and name.removeprefix(LIMITS) in suites.CLASS_TARGETS:
            return limits.table(self._lookup, name.removeprefix(LIMITS))
        if name.startswith(FACTS) and name.removeprefix(FACTS) in claim_tables.TOPIC_NAMES:
            return claim_tables.facts_table(name.removeprefix(FACTS), self._lookup)
        if name.startswith(LISTING) and name.removeprefix(LISTING) in claim_tables.LISTING_NAMES:
            return claim_tables.listing(name.removeprefix(LISTING).replace("-", "_"))
        if name in feature_tables.TABLES:
            return feature_tables.TABLES[name](self._lookup)
        if name in expected_tables.TABLES:
            return expected_tables.TABLES[name](self._lookup)
        if name in roofline_tables.TABLES:
            return roofline_tables.TABLES[name](self._lookup, self._summary)
        made: Callable[[], str] | None = getattr(self, f"table_{name.replace('-', '_')}", None)
        if made is None:
            raise UnsupportedError(
                f"table: got {name!r}; there are {', '.join(tables())}, such as <!-- table:ladder -->"
            )
        return made()

    def measured_summary(self) -> str:
        """The results that ship with the package: `warptile.measured`'s file."""
        return measured.encode(self._summary)

    @cached_property
    def _summary(self) -> MeasuredSummary:
        return measured_summary.summary_of(self._lookup.records)

    def render(self, text: str) -> str:
        """A document with every marked block as the records give it."""

        def replace(found: re.Match[str]) -> str:
            return found.group(1) + self.block(found.group(2), found.group(3)) + found.group(5)

        return _BLOCK.sub(replace, text)


def tables() -> tuple[str, ...]:
    """Names of all tables."""
    made = (each.removeprefix("table_").replace("_", "-") for each in dir(DocumentTables) if each.startswith("table_"))
    limited = (f"{LIMITS}{name}" for name in suites.CLASS_TARGETS)
    facts = (f"{FACTS}{topic}" for topic in claim_tables.TOPIC_NAMES)
    return (
        *sorted(made),
        *expected_tables.TABLES,
        *feature_tables.TABLES,
        *roofline_tables.TABLES,
        *limited,
        *facts,
        *(f"{LISTING}{name}" for name in claim_tables.LISTING_NAMES),
    )


def documents(root: Path) -> list[Path]:
    """The documents of a checkout that may have markers."""
    found = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if _BLOCK.search(path.read_text("utf-8"))]


def rendered(root: Path, report: DocumentTables) -> dict[Path, str]:
    """Every document as the records give it, the pictures that it shows, and the summary that ships."""
    found = {path: report.render(path.read_text("utf-8")) for path in documents(root)}
    shown = [
        (path.parent / name, picture)
        for name, picture in report.pictures().items()
        for path, text in found.items()
        if f"]({name})" in text
    ]
    summary = root / measured_summary.PATH
    shipped = {summary: report.measured_summary()} if summary.parent.is_dir() else {}
    return found | dict(shown) | shipped


def update(root: Path, report: DocumentTables | None = None) -> list[Path]:
    """Rewrite every document and picture that is not what the records give; those that changed."""
    report = report or DocumentTables()
    wanted, stale = rendered(root, report), check(root, report)
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], "utf-8")
    return stale


def check(root: Path, report: DocumentTables | None = None) -> list[Path]:
    """The documents and pictures that are not what the records give."""
    wanted = rendered(root, report or DocumentTables())
    return [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
