"""Documents hold what the records give, and nothing that was typed."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from recorded import all_records, calls_record, cell, ladder_record, profile_record
from warptile.bench.campaign import precision
from warptile.bench.protocol.workloads import (
    BF16,
    E4M3,
    F16_F32,
    F64,
    S4,
    S8,
    SIZES,
    TYPE_GROUPS,
    groups_of,
    type_table_key,
)
from warptile.bench.report.call_tables import NO_CALLS
from warptile.bench.report.claims.ladder_targets import LADDER_TARGETS
from warptile.bench.report.claims.rung_claims import CLAIMS, STEP, TFLOPS, Claim
from warptile.bench.report.documents import MAIN_STEPS, DocumentTables, check, update
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.record_lookup import NO_RECORD, environment_line
from warptile.bench.report.update_documents import main as update_documents
from warptile.errors import UnsupportedError
from warptile.rungs import RUNGS

ROOT = Path(__file__).parents[3]
TABLES = ("ladder", "ladder-summary", "sizes", "sizes-f16", "sizes-f32", "autotune", "counters", "correctness",
          "claims", "targets", "suite-targets", "suite-squares")  # fmt: skip
MENU_TABLES = ("mma", "mma-sizes", "precision", "layouts", "wgmma", "wgmma-types", "wgmma-layouts", "unaligned")
POSITION = {name: i for i, name in enumerate(RUNGS)}


@pytest.fixture(scope="module")
def report():
    return DocumentTables(all_records())


def rows(text):
    """Cells of a table's rows by their first cell, the header left out."""
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {line[0]: line[1:] for line in lines[2:]}


def speed(time_ms, size=4096):
    return f"{2 * size**3 / time_ms / 1e9:.1f}"


def test_suites_stand_row_by_row_and_their_targets_beside_them(report):
    found = rows(report.table_suite_squares())
    assert found["1024^3 bf16 TN"][0] == "it wrote outside D"
    ours = speed(0.25)
    assert found["4096^3 bf16 TN"] == [ours, "1.050", "1.040–1.060", "2.000", "", ""]
    assert list(rows(report.table_suite_small())) == ["1x6144x4096 bf16 TN"]
    assert report.table_suite_llm() == NO_RECORD + "\n"
    targets = rows(report.table_suite_targets())
    large = targets["large aligned bf16 and f16, all layouts"]
    assert large[:3] == ["cuBLASLt", "7 of 19", "1.050 (1.02)"]
    assert large[3].startswith("1.050 (0.98): ")
    assert large[4:] == ["7, 0, 0", "–"]
    unaligned = targets["misaligned, relative to the aligned neighbour"]
    assert (unaligned[1], unaligned[-1]) == ("10", "yes")
    assert (
        "7 rounds of 400 ms for each participant (torch: a quarter of that), sustained." in report.table_suite_targets()
    )


def test_the_pictures_that_a_document_shows_are_written_beside_it(report, tmp_path):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("<!-- table:suite-squares -->\n<!-- /table -->\n<!-- table:suite-llm -->\n<!-- /table -->\n")
    picture = page.parent / "suites" / "squares.svg"
    assert update(tmp_path, report) == [page, picture]
    assert check(tmp_path, report) == []
    picture.write_text("old")
    assert check(tmp_path, report) == [picture]


def test_this_repositorys_documents_are_what_its_records_give():
    assert check(ROOT) == [], "run: make docs"


def test_calls_are_shown_beside_the_frameworks_own():
    report = DocumentTables([calls_record()])
    short = report.table_calls()
    calls, chains = short.split("A chain of")
    found = [line[2:-2].split(" | ") for line in calls.splitlines() if line.startswith("| ")][2:]
    assert found == [
        ["torch", "`matmul(a, b)`", "12.0", "9.0", "0.75"],
        ["torch", "held plan, `plan(a, b, out=d)`", "10.0", "5.0", "0.50"],
        ["CuPy", "`matmul(a, b)`", "16.0", "8.0", "0.50"],
        ["NumPy", "`matmul(a, b)`, copied to the GPU and back", "–", "40.0", "–"],
    ]
    assert "64 x 64 x 64" in calls
    assert rows(chains)["1024"] == ["270.0", "216.0", "0.80", "100.0", "50.0", "0.50"]
    assert "- `calls-h200-20261120T120000`: 2026-11-20, commit 0123456789ab" in short
    every = report.table_calls_all()
    assert every.count("\n| 64 x 64 x 64 | ") == 7
    assert "| 12 layers, width 1024 | torch | warptile.matmul | torch | 216.0 | 108.0–432.0 | 0.80 |" in every


def test_without_a_record_the_short_table_of_calls_is_empty():
    report = DocumentTables([ladder_record()])
    assert report.render("<!-- table:calls -->\nold\n<!-- /table -->\n") == "<!-- table:calls -->\n<!-- /table -->\n"
    assert report.table_calls_all() == NO_CALLS + "\n"


def test_the_ladder_has_a_row_for_every_rung(report):
    found = rows(report.table_ladder())
    assert list(found) == [f"`{name}`" for name in RUNGS]
    last = POSITION["wmma-final"]
    idea, conflicts, predicted, tflops, speedup, share = found["`wmma-final`"]
    assert (idea, conflicts) == (RUNGS["wmma-final"].idea, "–")
    said = expected_of(cell())
    assert (predicted, tflops) == (f"{said.tflops:.1f} ({said.bound})", speed(64.0 / 2**last))
    assert 300 < said.tflops < 500
    assert share == f"{100 * 0.25 / (64.0 / 2**last):.1f} %"
    assert found["`wmma-padded`"][1] == "1.50"
    before = POSITION[RUNGS["wmma-final"].previous]
    assert speedup == f"{2.0 ** (last - before):.2f}"  # the made-up record doubles from rung to rung
    assert found["`wmma-naive`"][4] == "–"  # the rung before it computes in other types


def test_the_short_ladder_fits_a_screen_and_compares_within_a_family(report):
    found = rows(report.table_ladder_summary())
    assert list(found) == [f"[`{name}`](docs/rungs/{name}.md)" for name in MAIN_STEPS]
    assert len(found) <= 15
    steps = {name: row[2] for name, row in zip(MAIN_STEPS, found.values(), strict=True)}
    between = POSITION["wmma-final"] - POSITION["wmma-multistage"]
    assert steps["wmma-final"] == f"{2.0**between:.2f}"
    assert steps["mma-swizzled"] == steps["wgmma-tma"] == "–"
    assert [POSITION[name] for name in MAIN_STEPS] == sorted(POSITION[name] for name in MAIN_STEPS)


def test_every_table_says_where_it_comes_from(report):
    for name in (*TABLES, *MENU_TABLES):
        text = report.block("table", name)
        assert (
            len(re.findall(r"^\*NVIDIA H200, driver 580\.1, CUDA 13\.0, .*measured 2026-11-20\.\*$", text, re.M)) == 1
        )
        folded = re.search(r"\n\n<details><summary>\d+ records?</summary>\n\n(.*)\n\n</details>\n$", text, re.S)
        assert folded, name
        for line in folded[1].splitlines():
            assert re.fullmatch(r"- `\w+-h200-\w+`: 2026-11-20, median SM clock 1700 MHz, 690 W, commit \w+", line)


def test_the_environment_line_names_every_value_where_records_differ():
    first = ladder_record("2026-11-20T12:00:00Z")
    other = msgspec.structs.replace(first.environment, driver="590.1")
    second = msgspec.structs.replace(ladder_record("2026-11-22T12:00:00Z"), environment=other)
    line = environment_line([first, second])
    assert "driver 580.1 and 590.1, CUDA 13.0, " in line
    assert line.endswith("; measured 2026-11-20 to 2026-11-22.*")


def test_sizes_show_what_was_measured_and_a_dash_for_the_rest(report):
    found = rows(report.table_sizes())
    assert found["`wmma-final`"][0] == f"{speed(0.02, 1024)} (50.0 %)"
    assert found["`wmma-final`"][SIZES.index(8192)] == "–"
    assert found["cuBLASLt, best"] == [speed(0.01, 1024), "–", speed(0.25), "–", "–"]
    assert found["torch.matmul"][0] == speed(0.02, 1024)
    assert "`simt-naive`" not in found
    assert rows(report.table_sizes_f32())["`simt-naive`"][SIZES.index(16384)] == "– (–)"


def test_the_autotune_table_has_the_nine_and_the_best_marked(report):
    found = rows(report.table_autotune())
    assert len(found) == 10
    best = next(iter(found.values()))
    assert (best[0], best[2]) == ("0.2500", "**best**")
    assert sum("**best**" in row[2] for row in found.values()) == 1
    assert any(row == ["–", "–", "CompileError: it spills"] for row in found.values())
    assert "10 configurations measured, 1 failed, of 700 in the space." in report.table_autotune()


def test_counters_come_from_the_profiled_size(report):
    found = rows(report.table_counters())
    assert found["`wmma-padded`"] == [
        "3,000",
        "1.50, 1.00, 3.00",
        "134,217,728",
        "123,456",
        "122, 25 %",
        "long_scoreboard",
    ]
    assert found["`wmma-final`"] == ["–"] * 6


def test_correctness_counts_what_passed(report):
    found = rows(report.table_correctness())
    assert found["`wmma-final`"] == ["2 of 2", "0.500", "memcheck: 0, racecheck: ?"]
    assert found["`wmma-naive`"][0] == "0 of 1"


def test_a_claim_stands_beside_what_was_measured(report):
    text = report.table_claims()
    assert text.count("\n| ") == len(CLAIMS) + 2
    padded = next(line for line in text.splitlines() if "| `wmma-padded` |" in line and "154.5" in line)
    assert f"| {speed(64.0 / 2 ** POSITION['wmma-padded'])} TFLOP/s |" in padded
    step = next(line for line in text.splitlines() if "| `wmma-padded` |" in line and " x |" in line)
    assert step.split(" | ")[4] == "2.00 x"  # the made-up record doubles from rung to rung
    naive = next(line for line in text.splitlines() if "| `wmma-naive` |" in line and "FLOP/byte" in line)
    assert "| 4.00 FLOP/byte | here f16, f32 accumulate, 2048^3 | 4.00 FLOP/byte | holds | E: " in naive


def test_targets_are_met_or_not(report):
    found = rows(report.table_targets())
    targets = [line for line in report.table_targets().splitlines() if line.startswith("| `wmma-final` | 420.0")]
    reached = float(speed(64.0 / 2 ** POSITION["wmma-final"]))
    assert targets[1].split(" | ")[3].removesuffix(" |") == ("yes" if reached >= 420 else "no")
    assert found["`wmma-naive`"][2] == "no"


def test_the_menu_shows_speed_of_limit_and_library_and_error(report):
    speeds, numerics = report.table_precision().split("\n\n")[:2]
    found, errors = rows(speeds), rows(numerics)
    assert list(found) == list(errors) == [group.name for group in TYPE_GROUPS]
    cool, sustained = 2 * 8192**3 / 1.8 / 1e9, 2 * 8192**3 / 2.0 / 1e9
    half = found[F16_F32.name]
    assert half == ["`mma-final`", f"{cool:.1f}", f"{sustained:.1f}", "647", f"{100 * cool / 647:.1f} %", "75.0 %"]
    assert errors[F16_F32.name][1:5] == ["2.5e-04", "5.0e-04", "65504", "6.1e-05"]
    assert (found[S4.name][5], *errors[S4.name][1:3]) == ("–", "exact", "–")
    assert found[E4M3.name][1] == "–"


def test_layouts_stand_side_by_side_and_a_failure_is_said(report):
    found = rows(report.table_layouts())
    speed_of = f"{2 * 4096**3 / 0.25 / 1e9:.1f}"
    assert found[F16_F32.name] == [f"{speed_of} (80.0 %)"] * 3 + ["it wrote outside D"]
    assert found[S4.name] == ["–"] * 4
    assert found[F64.name] == ["–"] * 4


def test_the_mma_family_has_both_types_and_regimes(report):
    lines = [line for line in report.table_mma_sizes().splitlines() if line.startswith("| `mma-final`")]
    mine = speed(64.0 / 2 ** POSITION["mma-final"])
    assert [line.split(" | ")[1] for line in lines] == [F16_F32.name, BF16.name]
    assert all(line.split(" | ")[2].startswith(mine) for line in lines)
    assert rows(report.table_mma())["`mma-swizzled`"] == [
        "122",
        "64",
        "25 %",
        "1.00",
        "1.00",
        "1.00",
        "long_scoreboard",
    ]


def test_the_wgmma_family_shows_its_gains(report):
    lines = [line.split(" | ") for line in report.table_wgmma().splitlines() if line.startswith("| `wgmma-store`")]
    assert [line[1] for line in lines] == [BF16.name, F16_F32.name] * 2  # at either size
    assert lines[0][2].startswith(speed(64.0 / 2 ** POSITION["wgmma-store"]))
    between = POSITION["wgmma-store"] - POSITION[RUNGS["wgmma-store"].previous]
    assert lines[0][3] == f"{2.0**between:.2f}"  # the made-up record doubles from rung to rung
    said = expected_of(cell("wgmma-store", BF16))
    assert lines[0][4:] == ["–", f"{said.tflops:.0f} |"]


def test_the_last_rungs_types_stand_at_both_sizes(report):
    found = rows(report.table_wgmma_types())
    assert F64.name not in found
    assert S4.name not in found
    speeds = [2 * size**3 / time_ms / 1e9 for size, time_ms in ((4096, 2.0), (8192, 2.0), (8192, 1.8))]
    small, large, cool = (f"{each:.1f}" for each in speeds)
    share = f"{100 * speeds[2] / 928:.1f} %"
    assert found[BF16.name] == [f"{small} (75.0 %)", f"{large} (75.0 %)", f"{cool} (66.7 %)", "928", share]


def test_layouts_say_what_repacking_costs(report):
    found = rows(report.table_wgmma_layouts())
    assert found[S8.name][0] == f"{2 * 4096**3 / 0.25 / 1e9:.1f} (80.0 %), repacking 20.0 %"
    assert found[BF16.name] == ["–"] * 4


def test_misaligned_problems_stand_beside_their_neighbours(report):
    found = rows(report.table_unaligned())
    moved = found["4096^3, pointers offset by 1 element"]
    assert moved[1:] == ["75.0 %", "125.0 %", "25.0 % of the time", "yes"]
    assert moved[0] == speed(0.4)
    assert found["4096x4096x4092"][2:] == ["83.3 %", "none", "no"]
    assert found["4095x4096x4096"][0] == "it wrote outside D"
    assert found["4095^3"] == ["–"] * 5


def test_what_a_newer_record_lacks_comes_from_the_older(report):
    newer = ladder_record("2026-11-21T12:00:00Z", names=("mma-final",))
    both = DocumentTables([*all_records(), newer])
    text = both.table_ladder()
    assert rows(text) == rows(report.table_ladder())
    assert "- `ladder-h200-20261120T120000`: 2026-11-20, " in text
    assert "- `ladder-h200-20261121T120000`: 2026-11-21, " in text


def test_a_claim_about_indices_counts_integer_instructions(report):
    line = next(line for line in report.table_claims().splitlines() if "indices were hoisted" in line)
    assert line.split(" | ")[4] == "25.0 %"  # 30 of 120 in the made-up record


def test_a_rungs_page_has_its_speed_its_step_and_its_counters(report):
    text = report.measured("wmma-padded")
    lines = [line for line in text.splitlines() if line.startswith("| f16, f32 accumulate | 4096^3 ")]
    assert lines == [lines[0]]
    assert lines[0].split(" | ")[6] == "2.00"  # times previous rung
    assert "| top stall | long_scoreboard, 60.0 % |" in text
    failed = report.measured("wmma-block")
    assert "it wrote outside D" in failed


def test_without_records_a_block_says_so():
    empty = DocumentTables([])
    for name in TABLES:
        assert empty.block("table", name) == NO_RECORD + "\n"
    assert empty.measured("simt-naive") == NO_RECORD + "\n"
    for name in MENU_TABLES:
        assert "Not measured yet" in empty.block("table", name)
    for table in empty.table_precision().split("\n\n")[:2]:
        assert rows(table).keys() == {group.name for group in TYPE_GROUPS}


def test_a_counter_record_alone_fills_its_own_tables_only():
    some = DocumentTables([profile_record()])
    assert some.table_ladder() == NO_RECORD + "\n"
    assert "3,000" in some.table_counters()


def test_unknown_tables_and_rungs_are_errors(report):
    with pytest.raises(UnsupportedError, match=r"table: got 'nope'; there are .*ladder.*sizes"):
        report.block("table", "nope")
    with pytest.raises(UnsupportedError, match="got 'nope'"):
        report.block("measured", "nope")


def test_documents_are_rewritten_between_their_markers_only(tmp_path, report):
    readme, page = tmp_path / "README.md", tmp_path / "docs" / "rungs" / "wmma-final.md"
    page.parent.mkdir(parents=True)
    readme.write_text(
        "before\n<!-- table:ladder -->\nold\n<!-- /table -->\nbetween\n<!-- table:sizes -->\n<!-- /table -->\n"
    )
    page.write_text("<!-- measured:wmma-final -->\n<!-- /measured -->\nafter")
    (tmp_path / "docs" / "plain.md").write_text("no markers")
    assert check(tmp_path, report) == [readme, page]
    assert update(tmp_path, report) == [readme, page]
    text = readme.read_text()
    assert text.startswith("before\n<!-- table:ladder -->\n| rung |")
    assert "old" not in text
    assert "\nbetween\n" in text
    assert page.read_text().endswith("<!-- /measured -->\nafter")
    assert (check(tmp_path, report), update(tmp_path, report)) == ([], [])
    said = f"{expected_of(cell()).tflops:.1f}"
    assert said in text
    readme.write_text(text.replace(said, "999.9"))
    assert check(tmp_path, report) == [readme]


def test_a_newer_record_makes_a_document_stale(tmp_path):
    (tmp_path / "README.md").write_text("<!-- table:ladder -->\n<!-- /table -->\n")
    old = ladder_record("2026-11-20T12:00:00Z")
    update(tmp_path, DocumentTables([old]))
    assert check(tmp_path, DocumentTables([old])) == []
    assert check(tmp_path, DocumentTables([old, ladder_record("2026-11-21T12:00:00Z")])) == [tmp_path / "README.md"]


def test_the_command_checks_and_writes(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- table:claims -->\ntyped by hand\n<!-- /table -->\n")
    there = ["--root", str(tmp_path)]
    stale = CliRunner().invoke(update_documents, [*there, "--check"])
    assert stale.exit_code == 1
    assert f"{readme}: not what the records give; run: make docs" in stale.stderr
    assert CliRunner().invoke(update_documents, there).exit_code == 0
    assert CliRunner().invoke(update_documents, [*there, "--check"]).exit_code == 0
    assert "typed by hand" not in readme.read_text()


def test_the_command_prints_one_table():
    printed = CliRunner().invoke(update_documents, ["--table", "ladder-summary"])
    assert (printed.exit_code, printed.stdout) == (0, DocumentTables().block("table", "ladder-summary"))
    unknown = CliRunner().invoke(update_documents, ["--table", "nope"])
    assert unknown.exit_code == 2
    assert "got 'nope'; there are autotune, " in " ".join(unknown.stderr.split())


def test_claims_are_of_rungs_and_groups_that_are_measured():
    for claim in (*CLAIMS, *LADDER_TARGETS):
        rung = RUNGS[claim.rung]
        if claim.in_type_table:
            assert claim.group in TYPE_GROUPS
            assert (type_table_key(claim.group, sparse=rung.sparse), rung) in precision.plan_types([rung], "sm_90a")
        else:
            assert claim.group in groups_of(rung, "sm_90a")
            assert claim.size in SIZES
    for step in (*CLAIMS, *LADDER_TARGETS):
        if step.unit == STEP:
            assert RUNGS[step.rung].previous == step.previous


def test_explanations_hold_no_measured_number():
    for claim in CLAIMS:
        assert not re.search(r"\d+(\.\d+)? ?(TFLOP|%|percent)", claim.note), claim


def test_a_step_needs_its_start():
    with pytest.raises(AssertionError):
        Claim("T3", "wmma-block", STEP, 1.0, "", F16_F32, "")
    with pytest.raises(AssertionError):
        Claim("T3", "wmma-block", TFLOPS, 1.0, "", F16_F32, "", previous="wmma-naive")
