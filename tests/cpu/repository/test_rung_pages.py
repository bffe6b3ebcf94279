"""Every rung has a page of one shape, and what the pages quote and name is there."""

import re
from functools import cache
from pathlib import Path

import pytest

from warptile.emulator.counters import FIELDS, SHARED_KINDS
from warptile.rungs import RUNGS

ROOT = Path(__file__).parents[3]
COUNTERS = {*FIELDS, *(f"shared_{kind}_conflict_ratio" for kind in SHARED_KINDS), "arithmetic_intensity"}
BUGS = {path.stem for path in (ROOT / "tests" / "wrong_kernels").glob("*.cu")}
QUOTED = re.compile(r"^```cpp\n(.*?)^```", re.M | re.S)
NAMED = re.compile(r"`([a-z]+(?:_[a-z0-9]+)+)(?:<\d+>)?`")
METHODS = {"from_torch", "to_torch"}
"""Python names that a page mentions."""
STALLS = {"long_scoreboard", "short_scoreboard", "mio_throttle", "not_selected"}
"""Nsight Compute's names for what a warp waits for."""
INTRINSICS = {"store_matrix_sync", "load_matrix_sync", "mma_sync", "fill_fragment"}
"""Names of nvcuda::wmma."""
KEYWORDS = {"max_sms"}
"""Arguments of `warptile.matmul`."""

MEASURED = re.compile(r"^\| [^|]+ \| (\d+)\^3 \| [^|]+ \| [^|]+ \| ([\d.]+) \| [^|]+ \| ([\d.–]+) \|", re.M)
"""Size, TFLOP/s and speedup over the previous rung, of the rows of a page's table."""
SPEED = re.compile(r"([\d.]*\d) TFLOP/s at (\d+)\^3")
SPEEDUP = re.compile(r"(\d\.\d+) times the rung before")

SECTIONS = ["Problem", "Idea", "Predict", "Result", "What can go wrong", "Next"]
MOST_LINES, MOST_LINES_OF_THE_LAST = 75, 110
"""Of a page without its generated tables: a screen of idea, one of code, one of evidence."""


def page(name):
    return (ROOT / "docs" / "rungs" / f"{name}.md").read_text()


def plain(code):
    """Code without the spaces in front of its lines."""
    return "\n".join(line.strip() for line in code.strip().splitlines())


@cache
def sources():
    return [plain(path.read_text()) for path in sorted((ROOT / "src" / "warptile" / "kernels").rglob("*.cuh"))]


def not_in_the_kernels(text):
    """Quoted pieces of code, `...` between them, that no kernel has."""
    pieces = [plain(piece) for block in QUOTED.findall(text) for piece in re.split(r"^\s*\.\.\.\n", block, flags=re.M)]
    return [piece for piece in pieces if not any(piece in source for source in sources())]


def unknown_names(text):
    """Names that are no counter, no planted bug, no word of a kernel and none of the other lists."""
    words = set().union(*(re.findall(r"\w+", source) for source in sources()))
    return sorted(set(NAMED.findall(text)) - COUNTERS - BUGS - METHODS - STALLS - INTRINSICS - KEYWORDS - words)


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_has_a_page_with_its_source_and_its_record(name):
    text = page(name)
    assert text.startswith(f"# {name}: ")
    assert f"`src/warptile/kernels/{RUNGS[name].file}`" in text
    assert f"<!-- measured:{name} -->" in text
    if RUNGS[name].previous:
        assert f"Rung before it: `{RUNGS[name].previous}`." in " ".join(text.split())


@pytest.mark.parametrize("name", RUNGS)
def test_a_page_has_the_shape_of_all_pages(name):
    text = page(name)
    assert text.splitlines()[2].startswith("**You will see** ")
    assert re.findall(r"^## (.*)", text, re.M) == SECTIONS
    assert (
        text.index("\n## Result\n") < text.index(f"<!-- measured:{name} -->") < text.index("\n## What can go wrong\n")
    )
    written = re.sub(r"<!-- measured:.*?<!-- /measured -->", "", text, flags=re.S)
    assert len(written.splitlines()) <= (MOST_LINES_OF_THE_LAST if name == "wgmma-final" else MOST_LINES)


@pytest.mark.parametrize("name", RUNGS)
def test_a_page_quotes_its_kernel_and_names_bugs_and_counters_that_there_are(name):
    text = page(name)
    assert QUOTED.search(text) or "```ptx" in text
    assert not_in_the_kernels(text) == []
    assert BUGS & set(NAMED.findall(text))
    assert unknown_names(text) == []


def stale_figures(text):
    """Speeds and speedups that the text of a result says and its table does not."""
    said = " ".join(text.partition("\n## Result\n")[2].partition("<!-- measured:")[0].split())
    rows = MEASURED.findall(text)

    def rounds(number, to):
        return number != "–" and abs(float(number) - float(to)) <= 0.51 * 10.0 ** -len(to.partition(".")[2])

    speeds = [(speed, size) for speed, size in SPEED.findall(said)
              if not any(size == of and rounds(measured, speed) for of, measured, _ in rows)]  # fmt: skip
    return speeds + [times for times in SPEEDUP.findall(said) if not any(rounds(each, times) for *_, each in rows)]


@pytest.mark.parametrize("name", RUNGS)
def test_the_text_of_a_result_says_what_its_table_says(name):
    assert stale_figures(page(name)) == []


def test_each_page_is_linked_by_the_ladder_and_by_a_page_before_it():
    listed = re.findall(r"\]\(rungs/([\w-]+)\.md\)", (ROOT / "docs" / "ladder.md").read_text())
    assert listed == list(RUNGS)
    names = list(RUNGS)
    for number, name in enumerate(names[1:], 1):
        before = [page(each).partition("\n## Next\n")[2] for each in names[:number]]
        assert any(f"({name}.md)" in text for text in before), name


@pytest.mark.parametrize("name", RUNGS)
def test_an_idea_fits_a_line_of_a_terminal(name):
    assert 0 < len(RUNGS[name].idea) <= 80


def test_the_checks_can_fail():
    text = (
        "```cpp\nwgmma_commit_group();\n...\nwgmma_commit_groups();\n```\n`tma_parity`, `tma_nothing`, `wgmma_fence`\n"
    )
    assert not_in_the_kernels(text) == ["wgmma_commit_groups();"]
    assert unknown_names(text) == ["tma_nothing"]
    result = "\n## Result\n{} TFLOP/s at 4096^3, {} times the rung\nbefore.\n<!-- measured:x -->\n"
    table = "| bf16 | 4096^3 | 1.0 | dram | 420.8 | 65.1 % | 1.27 |  |\n"
    assert stale_figures(result.format(421, 1.3) + table) == []
    assert stale_figures(result.format(410, 1.37) + table) == [("410", "4096"), "1.37"]
