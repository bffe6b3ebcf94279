"""docs/jax.md runs as written, block after block, and so does what the README says of JAX."""

import re
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[3]


def test_every_block_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "jax.md").read_text(), re.S)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) >= 5


def test_the_readmes_block_runs():
    section = (ROOT / "README.md").read_text().partition("\n## JAX\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"```python\n(.*?)```", section, re.S)
    names: dict = {}
    exec(block, names)
    assert (names["gradient"].shape, names["examples"].shape) == ((32, 16), (4, 8, 16))
