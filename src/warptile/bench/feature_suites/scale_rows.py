"""Float8 with scales in GPU memory beside ``torch._scaled_mm``, and scales of blocks beside those of whole operands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import warptile as wt
from warptile.bench.feature_suites.feature_row import (
    OURS,
    ExactResult,
    FeatureCall,
    FeatureRow,
    OperandMaker,
    copies,
    exact_product,
)
from warptile.bench.protocol.suites import ClassTarget

TORCH, TENSOR_WISE = "torch._scaled_mm", "warptile, tensor-wise"

TENSOR, ROW, BLOCK = "tensor-wise", "row-wise", "block-wise"
"""One scale for each operand; for each row of A and column of B; for 1 x 128 of A and 128 x 128 of B."""

ALONG_K = 128
"""Elements of K, and columns of B, that share a scale of blocks."""

SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096), (4096, 7168, 16384))
"""Squares, the gate and up projections of Llama 3 70B with half of K, and the output projection of DeepSeek-V3."""

FAST_SLACK, TWO_LEVEL_SLACK = 0.4, 0.03
"""What accumulators with 13 fraction bits may lose, in expected sizes: over all of K, and over 128 of it."""

FAST, TWO_LEVEL = "fast accumulation", "two-level accumulation"

GOALS = {
    "tensor-fast": ClassTarget(f"{TENSOR}, {FAST}", TORCH, each=1.04),
    "tensor": ClassTarget(f"{TENSOR}, {TWO_LEVEL}", TORCH, each=1.04),
    "row-fast": ClassTarget(f"{ROW}, {FAST}", TORCH, each=1.04),
    "row": ClassTarget(f"{ROW}, {TWO_LEVEL}", TORCH, each=1.04),
    "block-torch": ClassTarget(BLOCK, TORCH, each=1.04),
    "block": ClassTarget(BLOCK, TENSOR_WISE, each=0.92),
}


def rows() -> Iterator[FeatureRow]:
    """Every kind of scales at every shape."""
    for m, n, k in SHAPES:
        for kind, fast in ((TENSOR, True), (TENSOR, False), (ROW, True), (ROW, False), (BLOCK, False)):
            name = f"{m}x{n}x{k} {kind}" + ("" if kind == BLOCK else f", {'fast' if fast else 'two-level'}")
            short = kind.partition("-")[0] + ("-fast" if fast else "")
            classes = ("block", "block-torch") if kind == BLOCK else (short,)
            yield FeatureRow(name, classes, partial(participants, kind=kind, fast=fast, m=m, n=n, k=k))


def participants(maker: OperandMaker, *, kind: str, fast: bool, m: int, n: int, k: int) -> tuple[FeatureCall, ...]:
    """warptile and torch on the same operands and scales; of blocks also warptile with two scales."""
    torch = maker.torch
    a, b = (maker.normal(lines, k, seed=seed, dtype="float8_e4m3fn") for seed, lines in enumerate((m, n)))
    sets = maker.sets(a, b)
    pairs = list(zip(copies(a, sets), copies(b.T, sets), strict=True))
    of_a, of_b = scales(maker, kind, m, n, k)
    reference = ExactResult(
        lambda: exact_product(*dequantized(kind, a, b.T, of_a, of_b)),
        FAST_SLACK if fast else TWO_LEVEL_SLACK,
    )
    made = [
        _ours(maker, OURS, pairs, (of_a, of_b), fast=fast, reference=reference),
        FeatureCall(
            TORCH,
            lambda: lambda index: torch._scaled_mm(
                *pairs[index], scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16, use_fast_accum=fast
            ),
            len(pairs), reference,
        ),
    ]  # fmt: skip
    if kind == BLOCK:
        whole = scales(maker, TENSOR, m, n, k)
        of_whole = ExactResult(lambda: exact_product(*dequantized(TENSOR, a, b.T, *whole)), TWO_LEVEL_SLACK)
        made.append(_ours(maker, TENSOR_WISE, pairs, whole, fast=False, reference=of_whole))
    return tuple(made)


def scales(maker: OperandMaker, kind: str, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Scales of A and of B; those of blocks in the strides that torch asks for."""
    if kind == TENSOR:
        return maker.uniform(seed=2), maker.uniform(seed=3)
    if kind == ROW:
        return maker.uniform(m, 1, seed=2), maker.uniform(1, n, seed=3)
    blocks = -(-k // ALONG_K)
    return maker.uniform(blocks, m, seed=2).T, maker.uniform(-(-n // ALONG_K), blocks, seed=3).T


def dequantized(kind: str, a: Any, b: Any, of_a: Any, of_b: Any) -> tuple[Any, Any]:
    """A and B times their scales, in float64."""
    of_a, of_b, (k, n) = of_a.double(), of_b.double(), b.shape
    if kind == BLOCK:
        of_a = of_a.repeat_interleave(ALONG_K, 1)[:, :k]
        of_b = of_b.repeat_interleave(ALONG_K, 0).repeat_interleave(ALONG_K, 1)[:k, :n]
    return a.double() * of_a, b.double() * of_b


def _ours(
    maker: OperandMaker, name: str, pairs: list[Any], factors: tuple[Any, Any], *, fast: bool, reference: ExactResult
) -> FeatureCall:
    (a, b), out = pairs[0], maker.result(pairs[0][0].shape[0], pairs[0][1].shape[1])
    options: dict[str, Any] = {
        "scale_a": factors[0], "scale_b": factors[1], "accumulate": "float32_fast" if fast else None, "out": out,
    }  # fmt: skip
    return FeatureCall(
        name, lambda: lambda index: wt.matmul(*pairs[index], **options), len(pairs), reference,
        wt.plan(a, b, **options),
    )  # fmt: skip
