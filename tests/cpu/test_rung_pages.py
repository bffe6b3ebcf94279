"""Every rung has a page, and what the pages of the Hopper family quote and name is there."""

import re
from functools import cache
from pathlib import Path

import pytest

from warptile.emulator.counters import FIELDS
from warptile.rungs import RUNGS

ROOT = Path(__file__).parents[2]
HOPPER = [name for name, rung in RUNGS.items() if rung.family == "wgmma"]
COUNTERS = {*FIELDS, "shared_load_conflict_ratio", "shared_store_conflict_ratio", "arithmetic_intensity"}
MISTAKES = {path.stem for path in (ROOT / "tests" / "wrong_kernels").glob("*.cu")}
QUOTED = re.compile(r"^```cpp\n(.*?)^```", re.M | re.S)
NAMED = re.compile(r"`([a-z]+(?:_[a-z0-9]+)+)(?:<\d+>)?`")


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
    """Names that are no counter, no wrong kernel and no word of a kernel."""
    words = set().union(*(re.findall(r"\w+", source) for source in sources()))
    return sorted(set(NAMED.findall(text)) - COUNTERS - MISTAKES - words)


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_has_a_page_with_its_source_and_its_record(name):
    text = page(name)
    assert text.startswith(f"# {name}: ")
    assert f"`src/warptile/kernels/{RUNGS[name].file}`" in text
    assert f"<!-- measured:{name} -->" in text


@pytest.mark.parametrize("name", HOPPER)
def test_a_page_quotes_its_kernel_and_names_mistakes_and_counters_that_there_are(name):
    text = page(name)
    assert f"Rung before it: `{RUNGS[name].previous}`." in " ".join(text.split())
    assert QUOTED.search(text)
    assert not_in_the_kernels(text) == []
    assert MISTAKES & set(NAMED.findall(text))
    assert unknown_names(text) == []


def test_the_checks_can_fail():
    text = (
        "```cpp\nwgmma_commit_group();\n...\nwgmma_commit_groups();\n```\n`tma_parity`, `tma_nothing`, `wgmma_fence`\n"
    )
    assert not_in_the_kernels(text) == ["wgmma_commit_groups();"]
    assert unknown_names(text) == ["tma_nothing"]
