"""docs/quantized.md runs as written, block after block."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "quantized.md"


def test_the_blocks_run(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(block, names)
