"""Whole products whose every bit is held to what an H200 gave: types, sizes and inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import warptile
from random_words import stream

HASHES = Path(__file__).parent / "data" / "products_h200.json"
RUNG = "mma-final"
SIZES = ((193, 161, 97), (257, 129, 321), (130, 200, 520))
"""No extent of the first two is a multiple of a tile, of the third only k is of some."""


@dataclass(frozen=True)
class Product:
    """One call of matmul.

    Attributes:
        dtype: type of the operands.
        options: of the call: types of the sum and of the result.
        size: m, n and k.
    """

    dtype: str
    options: tuple[tuple[str, str], ...]
    size: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Of its entry."""
        return " ".join((self.dtype, *(f"{key}={value}" for key, value in self.options), "x".join(map(str, self.size))))

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """A and B, the same everywhere."""
        m, n, k = self.size
        return _matrix(self, "a", (m, k)), _matrix(self, "b", (k, n))

    def run(self, backend: str, config: Mapping[str, int] | None = None) -> np.ndarray:
        """The product."""
        a, b = self.operands()
        return warptile.matmul(a, b, rung=RUNG, config=config, backend=backend, **dict(self.options))

    def config(self, backend: str) -> dict[str, int]:
        """What the rung would take."""
        a, b = self.operands()
        return dict(warptile.plan(a, b, rung=RUNG, backend=backend, **dict(self.options)).plan.config)


_TYPES: dict[str, Any] = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tfloat32": np.float32, "int8": np.int8,
    "float64": np.float64,
}  # fmt: skip


def _matrix(product: Product, which: str, shape: tuple[int, int]) -> np.ndarray:
    words = stream(1, product.name, which, shape=shape)
    if product.dtype == "int8":
        return (words >> np.uint64(56)).astype(np.uint8).view(np.int8)
    value = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1  # in [-1, 1), of 53 bits
    exponent = (words & np.uint64(7)).astype(np.int64)
    return np.ldexp(value, -exponent).astype(_TYPES[product.dtype])


def digest(result: np.ndarray) -> str:
    """SHA-256 of all its bytes."""
    return hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()


PRODUCTS = tuple(
    Product(dtype, options, size)
    for dtype, options in (
        ("float16", (("out_dtype", "float32"),)),
        ("float16", (("accumulate", "float16"),)),
        ("bfloat16", (("out_dtype", "float32"),)),
        ("tfloat32", (("precision", "tf32"),)),
        ("int8", ()),
        ("float64", ()),
    )
    for size in SIZES
)


def recorded() -> dict[str, dict[str, Any]]:
    """Configuration and digest by name."""
    found: dict[str, dict[str, Any]] = json.loads(HASHES.read_text())["products"]
    return found
