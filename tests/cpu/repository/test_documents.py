"""What documents say exists, exists: paths, links, make targets, commands and their options; and the pins are plain."""

import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import click
import numpy as np
import pytest

import warptile as wt
from warptile.cli.main import warptile_command

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]
    if path.is_file()
)
CODE_BLOCK = re.compile(r"^```.*?^```|(?:^    [^\n]*\n)+", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHORED = re.compile(r"\]\(([^)#\s]*\.md)?#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
A_PATH = re.compile(r"(?:src|tests|docs|\.ci)/[\w./-]*|[\w-]+\.(?:md|toml|txt)|Makefile|LICENSE")


def phrases(text):
    """Everything that stands as code: lines of code blocks and inline code."""
    for block in CODE_BLOCK.findall(text):
        yield from (line.split("#")[0].strip() for line in block.splitlines())
    yield from INLINE.findall(CODE_BLOCK.sub("", text))


def make_targets():
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def wrong_paths(text):
    named = [phrase for phrase in phrases(text) if A_PATH.fullmatch(phrase)]
    return [name for name in named if not (ROOT / name).exists()]


def wrong_links(text, folder):
    return [link for link in LINK.findall(text) if "://" not in link and not (folder / link).exists()]


def anchors(document):
    """The anchors that GitHub makes of a document's headings."""
    text = CODE_BLOCK.sub("", document.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def wrong_anchors(text, document):
    """Links to a heading that is not there; links to files that are not there are `wrong_links`."""
    wanted = [(document.parent / path if path else document, anchor) for path, anchor in ANCHORED.findall(text)]
    return [f"{path.name}#{anchor}" for path, anchor in wanted if path.exists() and anchor not in anchors(path)]


def wrong_commands(text):
    """Make targets, warptile commands and options that do not exist."""
    wrong = []
    for phrase in phrases(text):
        words = phrase.removeprefix("$ ").split()
        if (
            len(words) > 1
            and words[0] == "make"
            and re.fullmatch(r"[a-z-]+", words[1])
            and words[1] not in make_targets()
        ):
            wrong.append(phrase)
        if len(words) > 1 and words[0] == "warptile" and not words[1].startswith("-"):
            wrong += [phrase] if not command_exists(words[1:]) else []
    return wrong


def command_exists(words):
    context = click.Context(warptile_command)
    command = warptile_command.get_command(context, words[0])
    if command is None:
        return False
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0].strip("[]") for word in words[1:] if word.strip("[]").startswith("-")}
    return used <= known | {"--help", "-h"} or isinstance(command, click.Group)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_exists(document):
    text = document.read_text()
    assert wrong_paths(text) == []
    assert wrong_links(text, document.parent) == []
    assert wrong_anchors(text, document) == []
    assert wrong_commands(text) == []


def test_the_checks_can_fail():
    text = "`src/warptile/nowhere.py`, `make nothing`, [x](gone.md), `warptile fly`\n\n    warptile ladder --wings\n"
    assert wrong_paths(text) == ["src/warptile/nowhere.py"]
    assert wrong_links(text, ROOT) == ["gone.md"]
    assert wrong_commands(text) == ["warptile ladder --wings", "make nothing", "warptile fly"]
    links = "[x](docs/glossary.md#wave) [y](docs/glossary.md#cpasync) [z](docs/glossary.md#nothing) [own](#licence)"
    assert wrong_anchors(links, ROOT / "README.md") == ["glossary.md#nothing", "README.md#licence"]
    good = "`make ladder`, `warptile ladder --json`, `src/warptile/errors.py`\n\n    make test  # words\n"
    assert (wrong_paths(good), wrong_commands(good)) == ([], [])


def test_the_readme_states_the_two_commands_and_holds_short_tables():
    text = (ROOT / "README.md").read_text()
    assert {"make ladder", "make test"} <= set(phrases(text))
    assert re.findall(r"<!-- table:([\w-]+) -->", text) == ["ladder-summary", "untuned", "calls", "recipes"]
    table = re.search(r"<!-- table:ladder-summary -->\n(.*?)<!-- /table -->", text, re.S)
    assert table
    assert 10 <= len([line for line in table[1].splitlines() if line.startswith("| [`")]) <= 15
    calls = re.search(r"<!-- table:calls -->\n(.*?)<!-- /table -->", text, re.S)
    assert calls
    assert len([line for line in calls[1].splitlines() if line.startswith("| ")]) <= 18
    python = next(block for block in CODE_BLOCK.findall(text) if block.startswith("```python"))
    compile(python.removeprefix("```python").removesuffix("```"), "README.md", "exec")


def test_pictures_are_well_formed():
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for picture in pictures:
        assert ET.parse(picture).getroot().tag.endswith("svg")


def test_pins_are_versions_and_nothing_else():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*( ; .+)?", pin), pin
    assert not any("://" in line or "@" in line for line in lines)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = {
        normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
    ]
    names = {normal(re.match(r"[A-Za-z0-9._-]+", requirement)[0]) for requirement in wanted}
    assert names - pinned == set()


def test_the_licence_is_the_one_that_the_project_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text().splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in (ROOT / "LICENSE").read_text()


def test_every_counter_of_the_emulator_is_documented_with_nsights_metric_or_none():
    section = (ROOT / "docs" / "emulator.md").read_text().partition("## What it counts")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    documented = {name: metric for names, metric in rows for name in re.findall(r"`(\w+)`", names)}
    kernel = wt.kernel("__global__ void k(int* x) { x[0] = 1; }", backend="emulator", arch="sm_90a")
    assert set(documented) == set(kernel[1, 1](np.zeros(1, np.int32)).counters)
    assert all("__" in metric or metric.strip().startswith("none") for metric in documented.values())
    assert "op_ldgsts" in documented["shared_async_copy_wavefronts"], "cp.async is in none of Nsight's op_st"
    assert "op_ldgsts" not in documented["shared_store_wavefronts"]
