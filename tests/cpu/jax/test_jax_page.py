"""docs/jax.md runs as written, block after block."""

import re
from pathlib import Path

import pytest

pytest.importorskip("jax")

PAGE = Path(__file__).parents[3] / "docs" / "jax.md"


def test_every_block_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) >= 5
