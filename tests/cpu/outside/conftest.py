"""The scripts under tests/outside, for import."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "outside"))
