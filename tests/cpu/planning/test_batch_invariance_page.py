"""The code on the page about batch invariance runs as it stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/batch-invariance.md"


def test_code_blocks_run(monkeypatch, capsys):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["alone"].shape == (1, 48)
    splits, invariant_splits, speed = map(float, capsys.readouterr().out.split())
    assert splits > invariant_splits == 1
    assert 0.5 < speed < 1
