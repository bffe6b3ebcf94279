"""docs/conformance.md runs as written."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_its_examples_run(number, monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    exec(BLOCKS[number], {})


def test_there_are_examples():
    assert len(BLOCKS) >= 2
