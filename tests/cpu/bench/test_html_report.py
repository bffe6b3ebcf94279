"""The HTML report: one file that loads nothing, with the figures of the records and of no other source."""

import json
import re
import time
from itertools import pairwise

import msgspec
import pytest

from page_tree import tree
from recorded import UNMEASURED, calls_record, environment, ladder_record, profile_record, suites_record
from warptile import measured
from warptile.bench.html_report import kernel_source, page, page_data
from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rendered, without_generated
from warptile.bench.html_report.rung_views import shared_tile
from warptile.bench.profiling.line_profile import LineProfile
from warptile.bench.protocol import records as recorded_results
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.ladder_cells import shown_cell
from warptile.cli.main import USAGE, run
from warptile.codegen.headers import KERNELS
from warptile.ladder import Ladder
from warptile.rungs import RUNGS

MOST_BYTES, MOST_SECONDS = 2_100_000, 10.0
BAD = '<script>alert("x")</script><img src=x onerror=alert(1)>&'


@pytest.fixture(scope="module")
def data():
    return page_data.from_records()


@pytest.fixture(scope="module")
def text(data):
    return page.html(data)


@pytest.fixture(scope="module")
def document(text):
    return tree(text)


def view(document, name):
    return document.one("section", "view", id=name)


def all_of(data_given):
    return tree(page.html(data_given))


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_command_writes_one_small_file_in_time(tmp_path, capsys):
    out = tmp_path / "report.html"
    start_s = time.process_time()
    assert run(["report", "--out", str(out)]) == 0
    assert time.process_time() - start_s < MOST_SECONDS
    assert 100_000 < out.stat().st_size < MOST_BYTES
    assert re.fullmatch(rf"{re.escape(str(out))}: \d\.\d\d MB, \d\.\d s\n", capsys.readouterr().err)


def test_quotes_of_texts_alone_are_not_escaped():
    assert page.with_plain_quotes('<a title="&#34;1 &gt; 0&#34;">&#34;it&#39;s&#34; &lt;b&gt; &amp;#34;</a>') == (
        '<a title="&#34;1 &gt; 0&#34;">"it\'s" &lt;b&gt; &amp;#34;</a>'
    )


def test_it_loads_nothing(document, text):
    for element in document.walk():
        for name in ("src", "srcset", "data", "poster", "action", "background"):
            assert name not in element.attributes, element
        if element.tag == "link":
            assert element.attributes == {"rel": "icon", "href": "data:,"}
        if "href" in element.attributes and element.tag != "link":
            assert element.tag == "a"
            assert element.attributes["href"].startswith(("#", "https://"))
    styles = "".join(each.text for each in document.all("style"))
    scripts = "".join(each.text for each in document.all("script"))
    assert "url(" not in styles
    assert "@import" not in styles
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", scripts)
    (policy,) = (each for each in document.all("meta") if "http-equiv" in each.attributes)
    assert policy.attributes["content"].startswith("default-src 'none'; ")


def test_names_are_unique_and_links_lead_somewhere(document):
    names = [each.attributes["id"] for each in document.walk() if "id" in each.attributes]
    assert len(names) == len(set(names))
    wanted = {each.attributes["href"][1:] for each in document.all("a") if each.attributes["href"].startswith("#")}
    assert wanted - set(names) == {"all"}, "the whole page in one, which the script makes of the hash"


def test_headings_are_in_order_and_there_is_one_title(document, data):
    levels = [int(each.tag[1]) for each in document.walk() if re.fullmatch("h[1-6]", each.tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert document.one("html").attributes["lang"] == "en"
    assert data.gpus[0] == "NVIDIA H200"
    title = f"warptile: measurements on {' and '.join(data.gpus)}"
    assert document.one("title").text == document.one("h1").text == title


def test_every_figure_has_a_table(document):
    figures = document.all("figure")
    assert len(figures) > 100
    for figure in figures:
        table = figure.one("details", "wt-data").one("table", "wt-table")
        assert len(table.rows()) > 1, figure.one("figcaption").text


def test_there_is_a_view_for_every_part_and_every_rung(document):
    found = [each.attributes["id"] for each in document.all("section", "view")]
    rungs = [f"rung-{name}" for name in RUNGS]
    parts = ["overview", "suites", "calls", "untuned", "tuned"]
    more = ["instructions", "banks", "source", "glossary", "types", "correctness", "environment"]
    assert found == [*parts, *rungs, *more]
    listed = [each.attributes["href"][1:] for each in document.one("nav").all("a")]
    assert sorted(listed) == sorted([*found, "all"])


# --- what it says ----------------------------------------------------------------------------------------------------


def test_the_ladder_has_the_figures_of_the_records(document, data):
    figure = document.one("figure", id="ladder")
    on = {record.environment.gpu for record in data.records if isinstance(record, recorded_results.LadderRecord)}
    assert figure.one("figcaption").text == f"The ladder on {' and '.join(on)}: TFLOP/s of every rung"
    rows = {row[0]: row for row in figure.one("table", "wt-table").rows()[1:]}
    assert list(rows) == [name for name in RUNGS if name not in UNMEASURED]
    for name, row in rows.items():
        cell = shown_cell(data.lookup, name)
        assert row[5:7] == [f"{expected_of(cell).tflops:.1f}", f"{cell.tflops:.1f}"]
        assert row[8] == f"{100 * cell.ratio.median:.1f} %"
    for item in figure.one("ul", "wt-chart").all("li"):
        assert item.one(class_="wt-shown").text == rows[item.one("a").text][6]


def test_a_rung_has_its_page_its_prediction_its_counters_and_its_source(document, data):
    shown = view(document, "rung-mma-swizzled")
    assert shown.one("h2").text == f"mma-swizzled: {RUNGS['mma-swizzled'].idea}"
    headings = [each.text for each in shown.all("h3")]
    assert headings == [
        "Problem", "Idea", "Predict", "Result", "What can go wrong", "Next", "Measured and predicted",
        "Counters of Nsight Compute", "Counters by line", "Source",
    ]  # fmt: skip
    cell = shown_cell(data.lookup, "mma-swizzled")
    said = expected_of(cell)
    assert (
        f"the prediction is {said.tflops:.1f} TFLOP/s on the H200, limited by {said.bound}. Measured: "
        f"{cell.tflops:.1f} TFLOP/s" in shown.words
    )
    stalls = shown.one("figure", id="rung-mma-swizzled-stalls").one("table").rows()
    assert stalls[1][0] == data.lookup.profile("mma-swizzled").top_stall
    lines = [each.text for each in shown.one("ol", "code").all("li")]
    source = (KERNELS / RUNGS["mma-swizzled"].file).read_text().rstrip("\n").split("\n")
    assert [line.rstrip("\n").expandtabs(kernel_source.INDENT) for line in lines] == source


@pytest.mark.parametrize("name", [name for name in RUNGS if name not in UNMEASURED])
def test_bank_maps_agree_with_what_nsight_compute_counted(data, name):
    """In the mma family A and B lie alike, so the count of both is that of the map of A. In the wmma family rows of B
    are longer: the count of both is between that of A's map and eight."""
    cell, profile = shown_cell(data.lookup, name), data.lookup.profile(name)
    tile = shared_tile(RUNGS[name], cell)
    loads = profile.by_opcode.get("LDSM", {})
    if tile is None:
        assert RUNGS[name].family in ("simt", "wgmma") or RUNGS[name].sparse or not RUNGS[name].mechanism.staged
        return
    counted = loads["shared_wavefronts"] / loads["shared_wavefronts_ideal"]
    drawn = {tile.wavefronts(*phase) for phase in tile.phases}
    if RUNGS[name].family == "mma" or drawn == {1}:
        assert drawn == {counted}
    else:
        assert max(drawn) <= counted <= 8


def test_the_maps_of_a_rung_are_those_of_before_and_after_where_rows_lie_otherwise(document):
    titles = {
        figure.attributes["id"]: [each.words for each in figure.all("section", "wt-map")]
        for figure in document.all("figure")
        if figure.attributes["id"].endswith("-banks")
    }
    before, after = titles["rung-mma-swizzled-banks"]
    assert before.startswith("mma-vectorized, BK = 64: 8 wavefrontsbyte")
    assert after.startswith("mma-swizzled, BK = 64: 1 wavefrontbyte")
    assert {"rung-wmma-padded-banks", "rung-mma-tma-banks", "rung-mma-tma-swizzled-banks"} <= titles.keys()
    assert "rung-mma-double-buffer-banks" not in titles


def test_includes_lead_to_the_files_that_are_included(document):
    links = view(document, "rung-mma-swizzled").one("ol", "code").all("a")
    assert [(each.text, each.attributes["href"]) for each in links] == [
        ("tile/mma_stage.cuh", "#source-tile-mma-stage")
    ]
    shared = {each.attributes["id"] for each in view(document, "source").all("details", "source")}
    own = {kernel_source.source_name(file) for name in RUNGS for file in kernel_source.own_files(name)}
    every = {kernel_source.source_name(file) for name in RUNGS for file in kernel_source.reached(RUNGS[name].file)}
    assert shared.isdisjoint(own)
    assert shared | own == every


def test_suites_have_a_chart_each_and_every_row(document, data):
    shown = view(document, "suites")
    suites = [record for record in data.records if isinstance(record, recorded_results.SuitesRecord)]
    rows = {(each.suite, each.row) for record in suites for each in record.contests}
    tables = [
        figure.one("table").rows()[1:] for figure in shown.all("figure") if "-cublaslt" in figure.attributes["id"]
    ]
    assert sum(map(len, tables)) == len(rows)
    classes = shown.one("figure", id="suite-classes").one("table").rows()
    assert len(classes) > 10


def test_the_environment_of_every_record_is_there(document, data):
    rows = view(document, "environment").one("table").rows()
    assert [row[0] for row in rows[1:]] == [record.id for record in data.records]
    first = data.records[0].environment
    assert rows[1][2:5] == [first.gpu, first.driver, first.cuda]
    assert [each.text for each in view(document, "environment").all("dt")] == [record.id for record in data.records]


def test_tuned_configurations_are_those_that_ship(document):
    shown = view(document, "tuned")
    from warptile.planning import shipped_table

    entries = shipped_table.table("wgmma-final").entries
    rows = [row for fold in shown.all("details", "fold") for table in fold.all("table") for row in table.rows()[1:]]
    assert len(rows) == len(entries)


# --- where figures come from -----------------------------------------------------------------------------------------


def test_without_records_the_summary_that_ships_is_shown_and_the_page_says_so():
    found = all_of(PageData("summary"))
    assert "This installation has no records" in view(found, "overview").words
    rows = {row[0]: row for row in found.one("figure", id="ladder").one("table").rows()[1:]}
    assert list(rows) == [name for name in RUNGS if name not in UNMEASURED]
    speeds = {f"{each.tflops:.1f}" for each in measured.summary().results if each.rung == "wgmma-final"}
    assert rows["wgmma-final"][6] in speeds
    views = {each.attributes["id"] for each in found.all("section", "view")}
    assert "suites" not in views
    assert "glossary" not in views
    assert {"tuned", "banks", "instructions", "rung-mma-swizzled", "environment"} <= views
    assert "Nsight" not in view(found, "rung-mma-swizzled").one("h2").text


def climb(**changes):
    """A saved climb of two rungs."""
    given = {
        "family": "mma", "idea": "", "arch": "sm_80", "dtype": "float16", "out_dtype": "float16",
        "accumulator": "float32", "correct": True, "error_ratio": 0.25, "config": {"BM": 128},
        "resources": {"registers": 126, "shared_bytes": 32768, "spill_bytes": 0},
        "predicted": {"time_ms": 1.0, "bound": "tensor", "tflops": 2.0, "arch": "H200"},
    }  # fmt: skip
    rungs = [{**given, "name": name, **changes.get(name, {})} for name in ("mma-vectorized", "mma-swizzled")]
    document = {
        "schema": "warptile.ladder/1", "backend": "emulator",
        "problem": {"m": 192, "n": 160, "k": 96, "dtype": "float16"},
        "environment": {"warptile": "0.1.0", "gpu": None}, "rungs": rungs,
    }  # fmt: skip
    return {**document, **changes.get("whole", {})}


COUNTED = {"shared_load_wavefronts": 800.0, "shared_load_wavefronts_ideal": 100.0, "shared_load_conflict_ratio": 8.0}
RECORDED = {
    "m": 4096, "n": 4096, "k": 4096, "time_ms": 2.0, "tflops": 68.4, "of_cublas": 0.1, "of_cublas_low": 0.09,
    "of_cublas_high": 0.11, "cublas_tflops": 640.0, "record": "r", "gpu": "NVIDIA H200", "date": "2026-11-20",
    "regime": "sustained",
}  # fmt: skip


def saved(tmp_path, contents, name="run.json"):
    path = tmp_path / name
    path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    return path


def test_a_run_on_the_emulator_shows_checks_and_counters_and_keeps_recorded_speeds_apart(tmp_path):
    run_file = saved(tmp_path, climb(**{"mma-vectorized": {"counters": COUNTED, "measured": RECORDED}}))
    found = all_of(page_data.from_runs([run_file]))
    assert found.one("title").text == "warptile: saved runs"
    views = [each.attributes["id"] for each in found.all("section", "view")]
    assert views[:3] == ["climb", "rung-mma-vectorized", "rung-mma-swizzled"]
    assert found.one("p", "brand").one("a").attributes["href"] == "#climb"
    shown = view(found, "climb")
    assert "it takes no times" in shown.words
    rows = shown.all("table")[0].rows()
    assert rows[0] == ["rung", "types", "correct", "largest error / bound", "bank conflicts (n-way)", "registers",
                       "shared bytes"]  # fmt: skip
    assert rows[1] == ["mma-vectorized", "f16", "yes", "0.250", "8.00", "126", "32,768"]
    conflicts = shown.one("figure", id="climb-conflicts").one("table").rows()
    assert conflicts[1] == ["mma-vectorized", "800", "100", "8.00"]
    apart = shown.one("figure", id="climb-recorded")
    assert "not measured in this run" in apart.one("figcaption").text
    assert apart.one("table").rows()[1][6] == "68.4"
    assert found.all("figure", id="ladder") == []


def test_a_run_on_a_gpu_shows_its_speeds(tmp_path):
    timed = {"time_ms": 1.0, "tflops": 222.6, "of_cublas": 0.5}
    whole = {"backend": "gpu", "environment": {"gpu": "NVIDIA H100"}}
    found = all_of(page_data.from_runs([saved(tmp_path, climb(**{"mma-swizzled": timed, "whole": whole}))]))
    figure = view(found, "climb").one("figure", id="climb-speeds")
    rows = {row[0]: row for row in figure.one("table").rows()}
    assert rows["mma-swizzled"][5:9] == ["2.0", "222.6", "–", "50.0 %"]
    assert rows["mma-vectorized"][6] == "–"
    assert "on NVIDIA H100" in figure.one("figcaption").text


def test_what_failed_in_a_run_is_said(tmp_path):
    wrong = {"mma-swizzled": {"correct": False, "failure": f"D[0, 0] is {BAD}"}}
    found = all_of(page_data.from_runs([saved(tmp_path, climb(**wrong))]))
    assert f"mma-swizzled: D[0, 0] is {BAD}" in [each.words for each in view(found, "climb").all("li")]
    assert "Every result is within" not in view(found, "climb").words


def test_records_and_climbs_can_be_shown_together_and_several_climbs_are_numbered(tmp_path):
    files = [saved(tmp_path, climb(), f"{i}.json") for i in (1, 2)]
    for record in (suites_record(), calls_record(), profile_record()):
        files.append(saved(tmp_path, recorded_results.encode(record).decode(), f"{record.id}.json"))
    found = all_of(page_data.from_runs(files))
    views = [each.attributes["id"] for each in found.all("section", "view")]
    assert {"climb-1", "climb-2", "suites", "calls", "environment"} <= set(views)
    assert "tuned" not in views
    assert "untuned" not in views


def profiled(rung="mma-swizzled", file="mma/swizzled.cuh", line=26):
    lines = [
        {"file": file, "line": line, "text": "for (...)", "warp_instructions": 1000, "global_sectors": 7,
         "shared_wavefronts": 16, "shared_wavefronts_ideal": 8, "time_share": 0.25},
        {"file": "tile/vector.cuh", "line": 20, "text": BAD, "warp_instructions": 250, "global_sectors": 0,
         "shared_wavefronts": 0, "shared_wavefronts_ideal": 0},
    ]  # fmt: skip
    return {
        "schema": "warptile.profile/2", "backend": "emulator", "rung": rung, "config": {"BM": 128},
        "problem": {"m": 128, "n": 128, "k": 128, "dtype": "float16"}, "counters": {}, "lines": lines,
    }  # fmt: skip


def test_counters_by_line_are_a_table_and_marks_in_the_source(tmp_path):
    found = all_of(page_data.from_runs([saved(tmp_path, profiled())]))
    shown = view(found, "rung-mma-swizzled")
    table = next(each for each in shown.all("table") if each.rows()[0][0] == "line")
    assert table.rows()[1] == ["mma/swizzled.cuh:26", "for (...)", "25.0 %", "1,000", "7", "16", "8", "2.00"]
    assert table.rows()[2][:3] == ["tile/vector.cuh:20", BAD, ""]
    (marked,) = shown.all("li", "hot")
    assert marked.attributes["id"] == table.all("a")[0].attributes["href"][1:] == "source-mma-swizzled-l26"
    assert marked.attributes["style"] == "--share:1.000"
    assert marked.attributes["title"] == "1,000 warp instructions, 7 global sectors, 16 shared wavefronts, 2.00-way"
    assert found.one("footer").text


@pytest.mark.parametrize(
    ("contents", "said"),
    [("nothing", "malformed"), ("{}", "missing required field `schema`"), (None, "No such file"),
     ('{"schema": "warptile.tune/1"}', "Invalid value")],
)  # fmt: skip
def test_a_file_that_is_no_run_is_refused_with_a_call_that_works(tmp_path, capsys, contents, said):
    path = tmp_path / "odd.json"
    if contents is not None:
        path.write_text(contents)
    assert run(["report", "--run", str(path), "--out", str(tmp_path / "out.html")]) == USAGE
    error = capsys.readouterr().err
    assert said in error
    assert f"ArgumentError: run: {path}: " in error
    assert "warptile ladder --save run.json, then warptile report --run run.json" in error


def test_a_folder_without_records_is_refused(tmp_path, capsys):
    assert run(["report", "--records", str(tmp_path)]) == USAGE
    assert "has no record (*.json)" in capsys.readouterr().err


def test_a_rung_without_emulate_is_refused(capsys):
    assert run(["report", "--rung", "simt-naive"]) == USAGE
    assert "warptile report --emulate --rung NAME" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_said(tmp_path, capsys):
    assert run(["report", "--out", str(tmp_path / "none" / "report.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_other_records_are_read_from_a_folder(tmp_path):
    recorded_results.write(ladder_record(), tmp_path / "records")
    out = tmp_path / "out.html"
    assert run(["report", "--records", str(tmp_path / "records"), "--out", str(out)]) == 0
    found = tree(out.read_text())
    assert "Figures are from 1 record of the folder records, measured on NVIDIA H200." in view(found, "overview").words
    rows = {row[0]: row for row in found.one("figure", id="ladder").one("table").rows()[1:]}
    cell = next(each for each in ladder_record().cells if (each.rung, each.problem.dtype) == ("simt-naive", "float32"))
    assert rows["simt-naive"][6] == f"{cell.tflops:.1f}"


def test_emulate_counts_the_lines_of_the_rungs_that_are_named(tmp_path, capsys):
    out = tmp_path / "out.html"
    assert run(["report", "--emulate", "--rung", "simt-naive", "--out", str(out)]) == 0
    assert "1/1 simt-naive" in capsys.readouterr().err
    found = tree(out.read_text())
    assert found.one("footer").one("code").text == "warptile report --emulate --rung simt-naive"
    shown = view(found, "rung-simt-naive")
    assert shown.all("li", "hot")
    assert "The emulator counted one launch of 128 x 128 x 128" in shown.words


# --- saving runs -----------------------------------------------------------------------------------------------------


def test_what_ladder_and_profile_save_can_be_shown(tmp_path, capsys):
    size = ["-m", "32", "-n", "32", "-k", "16", "--backend", "emulator"]
    ladder, lines = tmp_path / "ladder.json", tmp_path / "lines.json"
    assert run(["ladder", "--rung", "simt-naive", *size, "--save", str(ladder)]) == 0
    assert run(["profile", "simt-naive", *size, "--save", str(lines)]) == 0
    assert f"{lines}: saved; `warptile report --run {lines}` shows it" in capsys.readouterr().err
    data = page_data.from_runs([ladder, lines])
    assert isinstance(data.ladders[0], Ladder)
    assert isinstance(data.profiles["simt-naive"], LineProfile)
    assert data.rungs == ("simt-naive",)
    assert view(all_of(data), "rung-simt-naive").all("li", "hot")


def test_a_folder_that_is_not_there_is_said_before_anything_runs(tmp_path, capsys):
    path = tmp_path / "none" / "run.json"
    assert run(["ladder", "--rung", "simt-naive", "--save", str(path)]) == USAGE
    error = capsys.readouterr().err
    assert "there is no folder" in " ".join(error.split())
    assert "1/1" not in error


# --- data is never markup --------------------------------------------------------------------------------------------


def test_whatever_records_say_is_text():
    record = msgspec.structs.replace(
        ladder_record(), command=BAD, notes=BAD, failures=(BAD,), prediction=BAD, environment=environment(gpu=BAD)
    )
    cells = tuple(msgspec.structs.replace(cell, note=BAD, rounds=()) for cell in record.cells)
    bad = msgspec.structs.replace(record, cells=(*record.cells, *cells[:3]))
    clean, found = all_of(PageData("records", (ladder_record(),))), all_of(PageData("records", (bad,)))
    for tag in ("script", "img"):
        assert len(found.all(tag)) == len(clean.all(tag))
    assert BAD in found.one("title").text
    assert view(found, "environment").text.count(BAD) >= 4


def test_markdown_has_no_markup_but_its_own():
    found = rendered(f"A {BAD} and `{BAD}`\n\n| a | b |\n| --- | ---: |\n| {BAD} | [x](javascript:alert) |\n", BAD)
    assert tree(str(found)).all("script") == tree(str(found)).all("img") == tree(str(found)).all("a") == []
    assert tree(str(found)).all("td")[0].text == BAD


def test_markdown_links_stay_on_the_page_or_become_text():
    text = "[r](../rungs/mma-final.md#result) [g](../glossary.md#tma) [d](../planning.md) [w](https://example.org/)"
    found = tree(str(rendered(text, "t", frozenset({"rung-mma-final", "term-tma"}))))
    assert [(each.text, each.attributes["href"]) for each in found.all("a")] == [
        ("r", "#rung-mma-final"), ("g", "#term-tma"), ("w", "https://example.org/"),
    ]  # fmt: skip
    assert [each.text for each in found.all("span", "elsewhere")] == ["d"]
    assert tree(str(rendered(text, "t"))).all("a")[0].text == "w"


def test_folds_and_generated_blocks():
    text = "# Title\nbefore\n<!-- measured:x -->\nnumbers\n<!-- /measured -->\nafter\n"
    assert without_generated(text).split() == ["before", "after"]
    fold = tree(str(rendered("a\n\n<details><summary>2 records</summary>\n\n- `one`\n\n</details>\n", "t")))
    assert fold.one("summary").text == "2 records"
    assert fold.one("details").one("li").words == "one"
