"""The Python that docs/emulator.md shows runs as it stands."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "emulator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_python_runs(block, capsys):
    exec(compile(block, str(DOCUMENT), "exec"), {"__name__": "documented"})
    assert "Findings: none" in capsys.readouterr().out
