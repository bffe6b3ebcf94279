"""The code on the page about epilogues runs as it stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/epilogues.md"


def test_code_blocks_run(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) >= 4
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["pre"].shape == names["d"].shape == (40, 48)
