"""The code in docs/distributed.md runs on two ranks as it stands."""

import re
from pathlib import Path

import pytest

import two_ranks

torch = pytest.importorskip("torch", reason="torch is not installed")

import quick_products  # noqa: E402

DOCUMENT = Path(__file__).parents[3] / "docs" / "distributed.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def blocks(rank):
    quick_products.install(pytest.MonkeyPatch())
    found, names = BLOCK.findall(DOCUMENT.read_text()), {}
    torch.manual_seed(0)
    for number, block in enumerate(found):
        exec(compile(block, f"{DOCUMENT.name}, block {number}", "exec"), names)
    return len(found)


def test_blocks_run_one_after_the_other(tmp_path):
    assert two_ranks.answers(two_ranks.run(blocks, tmp_path)) == [2, 2]
