"""Every block of code in docs/torch.md, and the README's for PyTorch, runs as it stands."""

import re
from pathlib import Path

import pytest

import quick_products

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own compiler
ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize(("document", "count"), [("docs/torch.md", 9), ("README.md", 5)])
def test_blocks_run_one_after_the_other(monkeypatch, capsys, document, count):
    blocks = [block for block in BLOCK.findall((ROOT / document).read_text()) if "import jax" not in block]
    assert len(blocks) == count
    quick_products.install(monkeypatch)
    torch._dynamo.reset()
    names = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{document}, block {number}", "exec"), names)
