"""Grouped GEMMs beside one dense GEMM of as many operations, and beside ``torch._grouped_mm``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
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
from warptile.bench.protocol.suites import WEIGHTS, ClassTarget

TORCH, DENSE = "torch._grouped_mm", "torch.mm, one dense GEMM"

FORWARD, DGRAD, WGRAD = "forward", "dgrad", "wgrad"
"""Y = X W^T; dX = dY W; dW = dY^T X."""

SHAPES = ((4096, 7168), (14336, 4096))
"""N and K of an expert: gate and up projections of DeepSeek-V3, one of them of Mixtral 8x7B."""

EVEN = ((512,) * 8, (1024,) * 8)
RAGGED = ((37, 1201, 0, 333, 890, 512, 95, 1028), (2047, 129, 1, 1500, 700, 1315, 2400, 100))
"""Rows of groups: as many in all as those of `EVEN`."""

EXPERTS = ((128, 1536, 2048), (64, 2048, 7168))
"""Experts, and N and K of each."""
EXPERT_ROWS = (1, 4, 16, 64)

GOALS = {
    "even": ClassTarget("even groups, forward and dgrad", DENSE, each=1.0),
    "even-wgrad": ClassTarget("even groups, wgrad, which writes 8 results", DENSE, each=1.0),
    "ragged": ClassTarget("ragged groups, forward and dgrad", DENSE, each=0.97),
    "ragged-wgrad": ClassTarget("ragged groups, wgrad", DENSE, each=0.97),
    "torch": ClassTarget("all groups of hundreds of rows", TORCH),
    "experts": ClassTarget("reading the weights of many experts, 1 to 64 rows each", WEIGHTS, each=4.1),
    "experts-torch": ClassTarget("many experts, 1 to 64 rows each", TORCH),
}


def rows() -> Iterator[FeatureRow]:
    """Even and ragged groups in every direction, then many experts of few rows."""
    for n, k in SHAPES:
        for kind, each in (*(("even", sizes) for sizes in EVEN), *(("ragged", sizes) for sizes in RAGGED)):
            for direction in (FORWARD, DGRAD, WGRAD):
                text = f"{len(each)} x {each[0]}" if kind == "even" else f"{len(each)} ragged of {sum(each)}"
                classes = (f"{kind}-wgrad" if direction == WGRAD else kind, "torch")
                made = partial(participants, sizes=each, n=n, k=k, direction=direction)
                yield FeatureRow(f"{text} rows, N {n}, K {k}, {direction}", classes, made)
    for experts, n, k in EXPERTS:
        for few in EXPERT_ROWS:
            made = partial(participants, sizes=(few,) * experts, n=n, k=k, direction=FORWARD, dense=False)
            name = f"{experts} x {few} {'rows' if few > 1 else 'row'}, N {n}, K {k}, {FORWARD}"
            yield FeatureRow(name, ("experts", "experts-torch"), made, 2 * experts * n * k)


def participants(
    maker: OperandMaker, *, sizes: Sequence[int], n: int, k: int, direction: str, dense: bool = True
) -> tuple[FeatureCall, ...]:
    """warptile, torch, and one dense GEMM with as many rows as all groups together."""
    torch, total = maker.torch, sum(sizes)
    ends = list(accumulate(sizes))
    offsets = torch.tensor(ends, device=maker.device, dtype=torch.int32)
    x, y = maker.normal(total, k), maker.normal(total, n, seed=1)
    if direction == WGRAD:
        a, b, out = y.mT, x, maker.result(len(sizes), n, k)
    else:
        w = maker.normal(len(sizes), n, k, seed=2)
        a, b = (x, w.mT) if direction == FORWARD else (y, w)
        out = maker.result(total, b.shape[-1])
    pairs = _pairs(maker, a, b)
    reference = ExactResult(partial(grouped_product, torch, a, b, ends))
    made = [
        FeatureCall(
            OURS, lambda: lambda index: wt.matmul_grouped(*pairs[index], offsets, out=out), len(pairs), reference
        ),
        FeatureCall(TORCH, lambda: lambda index: torch._grouped_mm(*pairs[index], offs=offsets), len(pairs), reference),
    ]
    if dense:
        one = b if direction == WGRAD else b[0]
        result = maker.result(a.shape[0], one.shape[-1])
        operands = _pairs(maker, a, one)
        of_one = ExactResult(partial(exact_product, a, one))
        made.append(
            FeatureCall(DENSE, lambda: lambda index: torch.mm(*operands[index], out=result), len(operands), of_one)
        )
    return tuple(made)


def _pairs(maker: OperandMaker, a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Sets of both operands."""
    sets = maker.sets(a, b)
    return list(zip(copies(a, sets), copies(b, sets), strict=True))


def grouped_product(torch: Any, a: Any, b: Any, ends: Sequence[int]) -> tuple[Any, Any]:
    """The exact results of all groups and the expected sizes of their elements."""
    parts = [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    along_k = b.dim() == 2
    found = [
        exact_product(a[:, part], b[part]) if along_k else exact_product(a[part], b[group])
        for group, part in enumerate(parts)
    ]
    join = torch.stack if along_k else torch.cat
    return join([exact for exact, _ in found]), join([size for _, size in found])
