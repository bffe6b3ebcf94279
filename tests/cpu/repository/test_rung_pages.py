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


@pytest.mark.parametrize("name", RUNGS)
def test_an_idea_fits_a_line_of_a_terminal(name):
    assert 0 < len(RUNGS[name].idea) <= 80


def test_the_checks_can_fail():
    text = (
        "```cpp\nwgmma_commit_group();\n...\nwgmma_commit_groups();\n```\n`tma_parity`, `tma_nothing`, `wgmma_fence`\n"
    )
    assert not_in_the_kernels(text) == ["wgmma_commit_groups();"]
    assert unknown_names(text) == ["tma_nothing"]
