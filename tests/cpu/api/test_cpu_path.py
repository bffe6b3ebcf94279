"""What runs without a GPU loads nothing that drives one."""

import subprocess
import sys

MATMUL = """
import sys
import numpy as np
import warptile as wt

wt.matmul(np.ones((5, 3), np.float16), np.ones((3, 4), np.float16), backend="emulator")
wt.plan(np.ones((5, 3), np.float16), np.ones((3, 4), np.float16), backend="emulator").explain()
print(*[name for name in sys.modules if name.startswith(("warptile.gpu", "warptile.bench", "torch"))])
"""


def test_the_emulator_loads_nothing_of_the_gpu():
    done = subprocess.run([sys.executable, "-c", MATMUL], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


LADDER = """
import sys
from warptile.cli.main import run

sys.argv = ["warptile", "ladder", "--rung", "simt-naive", "--backend", "emulator"]
assert run() == 0
print(*[name for name in sys.modules if name.startswith(("warptile.gpu", "warptile.bench", "torch"))])
"""


def test_the_emulated_ladder_loads_nothing_of_the_gpu():
    done = subprocess.run([sys.executable, "-c", LADDER], capture_output=True, text=True, check=True)
    assert "simt-naive" in done.stdout
    assert done.stdout.endswith("\n\n")  # after the table, the line of modules is empty
