"""`warptile isa --html`: where pages go, and what it says to names and paths that do not fit."""

import os

import pytest

from page_tree import tree
from warptile.bench.instruction_pages import page_set
from warptile.cli.main import run

NAME = "mma.m16n8k16.f32.f16"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *arguments, code=0):
    assert run(["isa", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return " ".join(captured.err.split())


def test_one_instruction_is_one_file_named_after_it(capsys, here):
    text = said(capsys, NAME, "--html")
    file = here / f"{NAME}.html"
    assert text == f"{NAME}.html: {file.stat().st_size / 1e3:.0f} kB"
    page = tree(file.read_text())
    assert page.one("h1").text == NAME
    assert page.all("a") == []


def test_a_file_or_a_folder_may_be_named(capsys, here):
    said(capsys, "ldmatrix.x4", "--html", "page.html")
    assert tree((here / "page.html").read_text()).one("h1").text == "ldmatrix.x4"
    (here / "folder").mkdir()
    said(capsys, "mbarrier.init", "--html=folder")
    assert os.listdir("folder") == ["mbarrier.init.html"]


def test_several_instructions_are_a_folder_with_an_index(capsys, here):
    text = said(capsys, "ldmatrix", "--html", "moves")
    assert text.startswith("moves/index.html: 6 pages and this index, ")
    assert len(list((here / "moves").iterdir())) == 7
    page = tree((here / "moves" / "ldmatrix.x4.html").read_text())
    assert [link.attributes["href"] for link in page.all("a")] == ["index.html"]


def test_all_instructions_go_to_the_folder_isa(capsys, here, monkeypatch):
    monkeypatch.setattr(page_set, "names", lambda: ("mbarrier.init", NAME))
    assert "2 pages" in said(capsys, "--html")
    assert sorted(os.listdir("isa")) == ["index.html", "mbarrier.init.html", f"{NAME}.html"]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["mma.m16n8k16.f32.f17", "--html"], "no instruction is called 'mma.m16n8k16.f32.f17'; did you mean mma."),
        (["--html", NAME], f"name the instruction first: warptile isa {NAME} --html"),
        (["mma", "--html", "x.html"], "they take a folder: warptile isa mma --html x"),
        (["--html", "x.html"], "they take a folder: warptile isa --html x"),
        ([NAME, "--html", "--json"], "--html and --json: a page has every architecture; leave out one of the two"),
        ([NAME, "--html", "--arch", "sm_80"], "--html and --arch"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_answered_with_a_call_that_does(capsys, here, arguments, wanted):
    assert wanted in said(capsys, *arguments, code=2)
    assert list(here.iterdir()) == []


def test_a_path_that_cannot_be_written_is_named(capsys, here):
    assert "nowhere/page.html" in said(capsys, NAME, "--html", "nowhere/page.html", code=1)
    assert "nowhere/deep" in said(capsys, "ldmatrix", "--html", "nowhere/deep", code=1)
    (here / "file").write_text("")
    assert "got the file 'file' for 6 instructions" in said(capsys, "ldmatrix", "--html", "file", code=2)
    assert (here / "file").read_text() == ""


def test_a_name_with_signs_is_a_file_without_them(capsys, here):
    said(capsys, "cp.async.bulk.prefetch.tensor.*d.L2", "--html")
    assert os.listdir(here) == ["cp.async.bulk.prefetch.tensor.-d.L2.html"]
