"""Batch-invariant GEMMs beside warptile's usual choice for the same operands."""

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
from warptile.bench.protocol.suites import WEIGHT_SHAPES, ClassTarget

USUAL = "warptile, not invariant"

SHAPES = (*WEIGHT_SHAPES, (2112, 7168), (1280, 8192))
"""N and K: the layers of Llama 3, then two with a small N, where splitting K pays: the fused down projections of
DeepSeek-V3's attention, and the query, key and value of one of eight GPUs of Llama 3 70B."""

TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)

FEW = 128

GOALS = {
    "few": ClassTarget("M = 1 to 128", USUAL, geomean=0.9),
    "many": ClassTarget("M = 256 to 4096", USUAL, geomean=0.95),
}


def rows() -> Iterator[FeatureRow]:
    """Every number of rows at every shape."""
    for n, k in SHAPES:
        for m in TOKENS:
            yield FeatureRow(f"{m}x{n}x{k}", ("few" if m <= FEW else "many",), partial(participants, m=m, n=n, k=k))


def participants(maker: OperandMaker, *, m: int, n: int, k: int) -> tuple[FeatureCall, ...]:
    """With and without the promise, on the same operands."""
    x, w = maker.normal(m, k), maker.normal(n, k, seed=1)
    weights = copies(w.T, maker.sets(w))
    y, z = maker.result(m, n), maker.result(m, n)
    reference = ExactResult(partial(exact_product, x, w.T))

    def complaint(found: Any) -> str:
        alone = wt.matmul(x[-1:], weights[0], batch_invariant=True)
        return "" if maker.torch.equal(alone, found[-1:]) else "the last row has other bits alone than in the batch"

    return (
        FeatureCall(
            OURS, lambda: lambda index: wt.matmul(x, weights[index], out=y, batch_invariant=True), len(weights),
            reference, wt.plan(x, weights[0], out=y, batch_invariant=True), complaint,
        ),
        FeatureCall(
            USUAL, lambda: lambda index: wt.matmul(x, weights[index], out=z), len(weights), reference,
            wt.plan(x, weights[0], out=z),
        ),
    )  # fmt: skip
