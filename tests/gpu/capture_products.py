"""Multiply on the GPU and write digests of the results: ``python3 tests/gpu/capture_products.py --out DIR``.

``products_h200.json`` and ``wgmma_products_h200.json`` are the test data of
``tests/cpu/emulator/test_captured_products.py``. With ``--wgmma`` the second alone is made.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from capture_instructions import header
from products import HASHES, PRODUCTS, WGMMA_HASHES, WGMMA_PRODUCTS, Product, digest


def capture(products: tuple[Product, ...], path: Path) -> None:
    """Each product in its fixed configuration, or in the one that the GPU's own choice gives; twice: the bits stay."""
    found = {}
    for product in products:
        config = product.config("gpu")
        first, second = (digest(product.run("gpu", config)) for _ in range(2))
        if first != second:
            raise SystemExit(f"{product.name}: two runs differ")
        found[product.name] = {"config": config, "sha256": first}
        print(product.name, first, flush=True)
    about = {**header(), "rung": products[0].rung, "products": found}
    path.write_text(json.dumps(about, indent=1) + "\n")


def main() -> None:
    """Write the digests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wgmma", action="store_true", help="products of wgmma-final alone")
    arguments = parser.parse_args()
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.wgmma:
        capture(PRODUCTS, folder / HASHES.name)
    capture(WGMMA_PRODUCTS, folder / WGMMA_HASHES.name)


if __name__ == "__main__":
    main()
