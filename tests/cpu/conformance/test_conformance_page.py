"""docs/conformance.md runs as written."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"


def test_its_example_runs(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(block, {})
