"""Weights of 4 and 8 bits beside warptile's own bfloat16 GEMM, and beside torch's GEMM of 4-bit weights."""

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
    Run,
    copies,
    exact_product,
)
from warptile.bench.protocol.suites import ClassTarget

BF16, TORCH_INT4 = "warptile, bfloat16", "torch._weight_int4pack_mm"

GROUP_SIZE = 128
"""Weights that share a scale."""

INNER_K_TILES = 8
"""How torch packs its weights: the layout that its documentation calls the default."""

TORCH_SLACK = 2e-2
"""torch's kernel rounds more often on the way."""

LARGE_SCALES, LARGE = (1, 16, 64), 64.0
"""Numbers of rows that are also measured with weights this many times as large: their scales are above the limit up to
which one instruction dequantizes."""

WEIGHTS = ((8192, 8192), (28672, 8192), (8192, 28672))
TOKENS = (1, 8, 16, 32, 64, 128, 256, 1024, 4096)

GOALS = {
    "4-few": ClassTarget("4 bits, M <= 16", BF16, each=3.3),
    "4-32": ClassTarget("4 bits, M = 32", BF16, each=2.5),
    "4-64": ClassTarget("4 bits, M = 64", BF16),
    "4-medium": ClassTarget("4 bits, M = 128 and 256", BF16, each=1.0),
    "4-many": ClassTarget("4 bits, M >= 1024", BF16, each=0.95),
    "4-torch": ClassTarget("4 bits, all M", TORCH_INT4),
    "4-large": ClassTarget("4 bits, scales of 2^-5 and more", BF16),
    "8-few": ClassTarget("8 bits, M <= 64", BF16),
    "8-medium": ClassTarget("8 bits, M = 128 and 256", BF16, each=1.0),
    "8-many": ClassTarget("8 bits, M >= 1024", BF16, each=0.95),
}  # fmt: skip


def rows() -> Iterator[FeatureRow]:
    """Both widths at every number of rows, and a few with large scales."""
    for bits in (4, 8):
        for n, k in WEIGHTS:
            for m in TOKENS:
                yield FeatureRow(
                    f"{bits} bits, {m}x{n}x{k}", _classes(bits, m), partial(participants, bits=bits, m=m, n=n, k=k)
                )
    n, k = WEIGHTS[1]
    for m in LARGE_SCALES:
        yield FeatureRow(
            f"4 bits, {m}x{n}x{k}, large scales",
            ("4-large",),
            partial(participants, bits=4, m=m, n=n, k=k, factor=LARGE),
        )


def _classes(bits: int, m: int) -> tuple[str, ...]:
    if bits == 8:
        return ("8-few" if m <= 64 else "8-medium" if m <= 256 else "8-many",)
    mine = {32: "4-32", 64: "4-64"}.get(m, "4-few" if m <= 16 else "4-medium" if m <= 256 else "4-many")
    return mine, "4-torch"


def participants(
    maker: OperandMaker, *, bits: int, m: int, n: int, k: int, factor: float = 1
) -> tuple[FeatureCall, ...]:
    """Quantized weights of variance ``factor**2 / K``, and the same weights in bfloat16."""
    x = maker.normal(m, k)
    w = wt.quantize(maker.normal(n, k, seed=1) * (factor / k**0.5), bits=bits, group_size=GROUP_SIZE)
    wide = w.dequantize()
    quantized = [w, *(_clone(w) for _ in range(maker.sets(w) - 1))]
    dense = copies(wide.T, maker.sets(wide))
    y, z = maker.result(m, n), maker.result(m, n)
    product = partial(exact_product, x, wide.T)
    found = [
        FeatureCall(
            OURS, lambda: lambda index: wt.matmul(x, quantized[index], out=y), len(quantized), ExactResult(product),
            wt.plan(x, w, out=y),
        ),
        FeatureCall(
            BF16, lambda: lambda index: wt.matmul(x, dense[index], out=z), len(dense), ExactResult(product),
            wt.plan(x, dense[0], out=z),
        ),
    ]  # fmt: skip
    if bits == 4:
        sets, reference = len(quantized), ExactResult(product, TORCH_SLACK)
        found.append(FeatureCall(TORCH_INT4, lambda: torch_int4(maker, x, w, sets), sets, reference))
    return tuple(found)


def _clone(w: Any) -> Any:
    return wt.QuantizedWeights(**{**w.state(), "packed": w.packed.clone()})


def torch_operands(torch: Any, w: Any) -> tuple[Any, Any]:
    """What torch packs: two codes in a byte, the first one above; and of each group the scale and the zero point."""
    codes, scales, _ = w.unpacked()
    above_zero = (codes + 8).to(torch.uint8)
    octets = (above_zero[:, ::2] << 4 | above_zero[:, 1::2]).contiguous()
    return octets, torch.stack((scales, torch.zeros_like(scales)), -1).transpose(0, 1).contiguous()


def torch_int4(maker: OperandMaker, x: Any, w: Any, sets: int) -> Run:
    """torch's GEMM with the same codes and scales."""
    aten = maker.torch.ops.aten
    octets, scales = torch_operands(maker.torch, w)
    packed = aten._convert_weight_to_int4pack(octets, INNER_K_TILES)
    weights = copies(packed, sets)
    return lambda index: aten._weight_int4pack_mm(x, weights[index], GROUP_SIZE, scales)
