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

DATA = Path(__file__).parents[1] / "data"
HASHES = DATA / "products_h200.json"
WGMMA_HASHES = DATA / "wgmma_products_h200.json"
"""Not there until they have been captured."""

SIZES = ((193, 161, 97), (257, 129, 321), (130, 200, 520))
"""No extent of the first two is a multiple of a tile, of the third only k is of some."""


@dataclass(frozen=True)
class Product:
    """One call of matmul.

    Attributes:
        dtype: type of the operands.
        options: of the call: types of the sum and of the result.
        size: m, n and k.
        rung: the kernel.
        fixed: what a configuration is, instead of the rung's own for the problem; () for that one.
    """

    dtype: str
    options: tuple[tuple[str, str], ...]
    size: tuple[int, int, int]
    rung: str = "mma-final"
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """Of its entry."""
        size = "x".join(map(str, self.size))
        return " ".join((self.dtype, *(f"{key}={value}" for key, value in (*self.options, *self._changed)), size))

    @property
    def _changed(self) -> tuple[tuple[str, int], ...]:
        """How the fixed configuration differs from the plainest."""
        return tuple((key, value) for key, value in self.fixed if value != WGMMA_PLAIN.get(key, value))

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """A and B, the same everywhere."""
        m, n, k = self.size
        return _matrix(self, "a", (m, k)), _matrix(self, "b", (k, n))

    def run(self, backend: str, config: Mapping[str, int] | None = None) -> np.ndarray:
        """The product."""
        a, b = self.operands()
        return warptile.matmul(a, b, rung=self.rung, config=config, backend=backend, **dict(self.options))

    def config(self, backend: str) -> dict[str, int]:
        """What the rung takes: the fixed one, or its own choice."""
        if self.fixed:
            return dict(self.fixed)
        a, b = self.operands()
        return dict(warptile.plan(a, b, rung=self.rung, backend=backend, **dict(self.options)).plan.config)


_TYPES: dict[str, Any] = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tfloat32": np.float32, "int8": np.int8,
    "float64": np.float64, "float8_e4m3": ml_dtypes.float8_e4m3fn,
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


WGMMA_PLAIN = {
    "BM": 128, "BN": 64, "STAGES": 3, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8, "ALONG_N": 0,
    "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 3,
}  # fmt: skip
"""Of wgmma-final: small tiles, and three blocks that take several each. BK is 128 bytes of elements."""

_DEPTH = {"float16": 64, "bfloat16": 64, "tfloat32": 32, "float8_e4m3": 128, "int8": 128}


def _wgmma(dtype: str, options: dict[str, str], size: tuple[int, int, int], **change: int) -> Product:
    config = {**WGMMA_PLAIN, "BK": _DEPTH[dtype], **change}
    return Product(dtype, tuple(options.items()), size, "wgmma-final", tuple(config.items()))


_FULL, _FAST = {"out_dtype": "float32"}, {"out_dtype": "float32", "accumulate": "float32_fast"}
_TF32 = {"precision": "tf32"}
_LONG = (130, 200, 520)

WGMMA_PRODUCTS = (
    *(
        _wgmma(dtype, options, size)
        for dtype, options in (
            ("float16", _FULL), ("float16", {"accumulate": "float16"}), ("bfloat16", _FULL), ("tfloat32", _TF32),
            ("float8_e4m3", _FULL), ("float8_e4m3", _FAST), ("int8", {}),
        )
        for size in ((193, 161, 97), _LONG)
    ),
    _wgmma("float16", _FULL, _LONG, PINGPONG=1, SMS=2),
    _wgmma("float8_e4m3", _FULL, _LONG, PINGPONG=1, ALONG_N=1),
    _wgmma("bfloat16", {}, _LONG, OVERLAP=1, BN=128),
    _wgmma("float8_e4m3", {}, _LONG, OVERLAP=1),
    _wgmma("tfloat32", _TF32, _LONG, CM=2, CN=2, SMS=4),
    _wgmma("int8", {}, _LONG, CM=2, SMS=4, SWAP=1),
    _wgmma("float16", _FULL, _LONG, SPLITS=3, SMS=32),
    _wgmma("float8_e4m3", _FULL, _LONG, STREAM=1, SMS=5),
    _wgmma("bfloat16", _FULL, _LONG, STREAM=1, SMS=6, CM=2, SWAP=1),
)  # fmt: skip


def recorded(path: Path = HASHES) -> dict[str, dict[str, Any]]:
    """Configuration and digest by name."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text())["products"]
    return found
