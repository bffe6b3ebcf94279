"""Records: they come back as they were written, damage is an error with a name, and the newest answers."""

import json
import math
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from recorded import all_records, cell, ladder_record
from warptile.bench.protocol import records
from warptile.bench.protocol.measurements import Round, Spread
from warptile.bench.protocol.records import RecordError, committed, decode, encode, load_folder, newest
from warptile.bench.report.update_documents import main as update_documents


@pytest.mark.parametrize("record", all_records(), ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was_written(record, tmp_path):
    again = decode(encode(record), "it")
    assert without_numbers(again) == without_numbers(record)
    assert numbers(again) == pytest.approx(numbers(record), rel=5e-7, abs=0)
    assert encode(again) == encode(record)
    path = records.write(record, tmp_path)
    assert path.name == f"{record.id}.json"
    assert load_folder(tmp_path) == (again,)


def leaves(value):
    if isinstance(value, dict):
        return [leaf for key, each in sorted(value.items()) for leaf in [key, *leaves(each)]]
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list | tuple) else [value]


def is_number(leaf):
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)


def numbers(record):
    return [leaf for leaf in leaves(msgspec.to_builtins(record)) if is_number(leaf)]


def without_numbers(record):
    return [None if is_number(leaf) else leaf for leaf in leaves(msgspec.to_builtins(record))]


def test_a_file_has_a_line_for_each_item_without_what_a_reader_adds_by_itself():
    raw = encode(ladder_record())
    head, *lines = raw.decode().splitlines()
    assert json.loads(raw)["schema"] == "warptile.record.ladder/1"
    assert head.startswith('{"schema":"warptile.record.ladder/1","date":')
    assert sum(line.startswith('{"rung":') for line in lines) == len(ladder_record().cells)
    assert not {"tuned", "failed", "note"} & json.loads(raw)["cells"][0].keys()
    assert "batch" not in json.loads(raw)["cells"][0]["problem"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1 / 3, "0.3333333"),
        (0.0302331253334328, "0.03023313"),
        (1342177280.0, "1342177280"),
        (1765128804.4, "1765129000"),
        (2.0, "2"),
    ],
)
def test_times_have_the_digits_of_the_driver_and_counters_all_of_theirs(value, written):
    assert f'"time_ms":{written},'.encode() in encode(
        msgspec.structs.replace(ladder_record(), cells=(cell(rounds=(Round(value, 0.5),)),))
    )


def test_a_record_is_named_after_its_kind_gpu_and_date():
    assert ladder_record().id == "ladder-h200-20261120T120000"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"schema": "warptile.record.ladder/2"}', encode(ladder_record()).replace(b'"regime"', b'"mood"')],
    ids=["empty", "cut off", "another schema", "another field"],
)
def test_a_damaged_record_is_an_error_that_names_it(raw):
    with pytest.raises(RecordError, match=r"record broken\.json: .*warptile\.bench\.campaign"):
        decode(raw, "broken.json")


def test_the_figures_of_a_cell_are_medians_of_its_rounds():
    one = cell(rounds=(Round(1.0, 0.5), Round(2.0, 1.5), Round(4.0, 1.0)))
    assert one.time_ms == 2.0
    assert one.tflops == pytest.approx(2 * 4096**3 / 2.0e-3 / 1e12)
    assert one.baseline_ms == 1.0
    # ratios are per round: 0.5 / 1, 1.5 / 2, 1 / 4
    assert one.ratio == Spread(0.25, 0.5, 0.75)


def test_a_cell_without_rounds_has_no_figures():
    one = cell(rounds=())
    assert (one.time_ms, one.tflops, one.baseline_tflops, one.ratio) == (None, None, None, None)


def test_a_spread_refuses_nan():
    with pytest.raises(AssertionError, match="NaN"):
        Spread.of([1.0, math.nan])


def test_newest_of_a_kind():
    old, new = ladder_record("2026-11-20T12:00:00Z"), ladder_record("2026-11-21T12:00:00Z")
    assert newest(records.LadderRecord, [old, new]) is new
    assert newest(records.TuningRecord, [old, new]) is None


ROOT = Path(__file__).parents[3]


def test_the_committed_records_can_be_read():
    dates = [record.date for record in committed()]
    assert dates
    assert dates == sorted(dates)


@pytest.mark.parametrize("record", committed(), ids=lambda record: record.id)
def test_a_committed_record_is_as_its_writer_writes_it(record):
    assert (records.FOLDER / f"{record.id}.json").read_bytes() == encode(record)


def test_every_committed_record_gives_a_figure():
    """To a generated table (which names it), or to a table or a model that ships."""
    folded = re.compile(r"<details><summary>\d+ records?</summary>.*?</details>", re.S)
    documents = [path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]]
    named = "\n".join(found for text in documents for found in folded.findall(text))
    named += "".join(path.read_text() for path in (ROOT / "src" / "warptile" / "data").glob("*.json"))
    used = {record.id for record in committed() if record.id in named}
    assert {record.id for record in committed()} == used, "remove the records that no figure comes from; git has them"


def test_the_committed_records_are_small():
    assert sum(path.stat().st_size for path in records.FOLDER.iterdir()) <= 15_000_000


def test_without_a_checkout_an_error_says_what_is_needed(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "FOLDER", tmp_path / "records")
    committed.cache_clear()
    with pytest.raises(RecordError, match="this needs a checkout of warptile"):
        committed()
    (tmp_path / "README.md").write_text("<!-- table:ladder -->\n<!-- /table -->\n")
    for command in (["--root", str(tmp_path), "--check"], ["--table", "ladder"]):
        done = CliRunner().invoke(update_documents, command)
        assert done.exit_code == 1
        assert "RecordError: records: this needs a checkout of warptile, whose folder `records` holds" in done.stderr
