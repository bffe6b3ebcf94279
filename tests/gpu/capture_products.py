"""Multiply on the GPU and write digests of the results: ``python3 tests/gpu/capture_products.py --out DIR``.

``products_h200.json`` is the test data of ``tests/cpu/test_captured_products.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from capture_instructions import header

from products import PRODUCTS, RUNG, digest


def main() -> None:
    """Each product in the configuration that the GPU's own choice gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for product in PRODUCTS:
        config = product.config("gpu")
        found[product.name] = {"config": config, "sha256": digest(product.run("gpu", config))}
        print(product.name, found[product.name]["sha256"], flush=True)
    about = {**header(), "rung": RUNG, "products": found}
    (folder / "products_h200.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
