"""docs/precision.md: its blocks run as written, each by itself."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "precision.md"


def test_the_blocks_run(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
