"""The tables and pictures of docs/roofline.md, and that a checkout notices stale ones."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from recorded import UNMEASURED, all_records
from warptile.bench.protocol.records import LadderRecord
from warptile.bench.report.documents import DocumentTables, check, tables, update
from warptile.bench.report.record_lookup import NO_RECORD
from warptile.bench.report.roofline_tables import PICTURES, TABLES
from warptile.roofline.published_gpus import GPUS, LEVELS
from warptile.roofline.source_texts import readings
from warptile.rungs import RUNGS

ROOT = Path(__file__).parents[3]
OF_RECORDS = ("roofline-rungs", "roofline-sizes", "roofline-above", "roofline-predictions")


@pytest.fixture(scope="module")
def report():
    return DocumentTables()


def rows(text):
    """Cells of the first table's rows, the header left out."""
    lines = [line for line in text.split("\n\n")[0].splitlines() if line.startswith("| ")]
    return [line[2:-2].split(" | ") for line in lines[2:]]


def test_every_table_is_on_the_page_and_has_a_name(report):
    page = (ROOT / "docs" / "roofline.md").read_text()
    for name in TABLES:
        assert f"<!-- table:{name} -->" in page
        assert name in tables()
        assert report.block("table", name).startswith("| ")


def test_every_gpu_and_every_figure_of_it_is_in_the_tables(report):
    for name in ("roofline-gpus", "roofline-peaks", "roofline-bandwidths"):
        assert [row[0] for row in rows(report.block("table", name))] == list(GPUS)
    sources = rows(report.block("table", "roofline-sources"))
    for gpu in GPUS.values():
        named = [figure for row in sources if row[0] == gpu.name for figure in row[1].split(", ")]
        assert sorted(named) == sorted(gpu.figures)
    peaks = {row[0]: row[1:] for row in rows(report.block("table", "roofline-peaks"))}
    assert peaks["T4"] == ["–", "8.1, –", "–", "65, –", "–", "130"]
    assert peaks["A100"] == ["19.5", "19.5, 78", "156", "312, 312", "–", "624"]
    bandwidths = {row[0]: row[1:] for row in rows(report.block("table", "roofline-bandwidths"))}
    assert bandwidths["V100"] == ["15.67", "3.133", "0.9", "7.98", "39.9", "139"]
    assert bandwidths["H100"][1:3] == ["–", "3.35"]


def test_every_rung_is_below_a_roof_and_names_its_records(report):
    text = report.block("table", "roofline-rungs")
    found = {row[0].strip("`"): row[1:] for row in rows(text)}
    assert list(found) == [name for name in RUNGS if name not in UNMEASURED]
    shares = {name: int(row[-1].removesuffix(" %")) for name, row in found.items()}
    assert [name for name, share in shares.items() if share > 100] == ["wgmma-pingpong"]
    assert min(shares.values()) > 0
    assert found["wmma-naive"][:3] == ["1.00", "~15.9", "~480"]
    assert found["wgmma-final"][2] == "715"
    records = re.findall(r"^- `([\w-]+)`", text, re.M)
    assert any(record.startswith("ladder-") for record in records)
    assert any(record.startswith("profile-") for record in records)
    assert all((ROOT / "records" / f"{record}.json").exists() for record in records)


def test_the_points_above_are_named_with_what_explains_them(report):
    text = report.block("table", "roofline-above")
    assert {row[0] for row in rows(text)} == {"`wgmma-pingpong`"}
    (ratio,) = re.findall(r"^\| `wgmma-final` \| 4096\^3 \|.* ([\d.]+) \|$", text, re.M)
    assert 2 < float(ratio) < 3
    assert "counters-h200" in text


def test_readings_are_shown_with_their_formulas(report):
    text = report.block("table", "roofline-readings")
    assert [row[0] for row in rows(text)] == [f"{each.figure:g}" for each in readings()]
    for each in readings():
        assert f"`{each.formula}`" in text
    assert "https://arxiv.org/abs/1903.07486" in text


def test_without_records_the_tables_of_rungs_say_so():
    empty = DocumentTables([])
    for name in OF_RECORDS:
        assert empty.block("table", name) == NO_RECORD + "\n"
    for name in set(TABLES) - set(OF_RECORDS):
        assert empty.block("table", name).startswith("| ")
    assert list(empty.pictures()) == [f"{PICTURES}/gpus.svg"]


def test_records_whose_tiles_are_not_known_have_no_points():
    def of_old_tunables(record):
        cells = tuple(msgspec.structs.replace(each, config={"BM": 128}) for each in record.cells)
        return msgspec.structs.replace(record, cells=cells)

    records = [of_old_tunables(each) if isinstance(each, LadderRecord) else each for each in all_records()]
    of_other_tiles = DocumentTables(records)
    for name in OF_RECORDS:
        assert of_other_tiles.block("table", name) == NO_RECORD + "\n"


def test_the_pictures_of_the_page_are_there_and_well_formed(report):
    made = {name: text for name, text in report.pictures().items() if name.startswith(PICTURES)}
    assert sorted(made) == sorted(f"{PICTURES}/{name}.svg" for name in (*LEVELS, "gpus"))
    page = (ROOT / "docs" / "roofline.md").read_text()
    for name, text in made.items():
        ET.fromstring(text)
        assert f"]({name})" in page
        assert (ROOT / "docs" / name).read_text() == text


def test_a_stale_picture_or_table_is_noticed(tmp_path):
    page, picture = tmp_path / "page.md", tmp_path / PICTURES / "gpus.svg"
    page.write_text(f"<!-- table:roofline-gpus -->\n<!-- /table -->\n![GPUs]({PICTURES}/gpus.svg)\n")
    empty = DocumentTables([])
    assert check(tmp_path, empty) == [page, picture]
    assert update(tmp_path, empty) == [page, picture]
    assert check(tmp_path, empty) == []
    picture.write_text(picture.read_text().replace("H200", "H300"))
    assert check(tmp_path, empty) == [picture]
    page.write_text(page.read_text().replace("1.53", "1.54"))
    assert check(tmp_path, empty) == [page, picture]
