"""wgmma-final with two sets of first-level registers: a stage's sums are promoted while the next one is multiplied."""

from dataclasses import replace

import numpy as np
import pytest

import scaled_products as sp
import warptile as wt
from covering import few
from warptile.codegen.nvrtc import compile_ptx
from warptile.codegen.translation_unit import translation_unit
from warptile.errors import CompileError
from warptile.rungs.wgmma import promotion

BASE = {
    "BM": 128, "BN": 64, "BK": 128, "STAGES": 3, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8,
    "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 2,
}  # fmt: skip
PLACE = {"rung": "wgmma-final", "backend": "emulator"}


@pytest.fixture
def rng():
    return np.random.default_rng(20261128)


def kernel_of(a, b, lines, scales, change):
    """The kernel of a product; with scales of blocks that of the product with the epilogue behind them."""
    options = {} if lines is None else {"scale_a": scales[0], "scale_b": scales[1]}
    return wt.plan(a, b, out_dtype="float32", config=BASE | change, **options, **PLACE).plan.kernel


def drawn(rng, lines, extents):
    """Operands and their scales."""
    a, b = sp.operands(rng, *extents)
    return a, b, (1.0, 1.0) if lines is None else sp.block_scales(rng, *extents, lines)


CASES = [
    # One to five stages in tiles of which a CTA has several: the last set is the first one or the second.
    ({}, None, (200, 130, 70)),
    ({"STAGES": 2, "BN": 128}, (1, 128), (140, 270, 130)),
    ({"PINGPONG": 1, "BM": 64}, None, (200, 130, 500)),
    ({"PINGPONG": 1, "BM": 64}, (1, 128), (200, 130, 390)),
    ({"CM": 2}, None, (300, 70, 640)),
    ({"STAGES": 2}, None, (200, 130, 256)),
    ({"BN": 24, "SWAP": 1}, None, (70, 200, 330)),
    ({"BN": 40}, (128, 128), (130, 90, 512)),
    ({"CN": 2, "BN": 32}, (1, 1), (140, 100, 300)),
]


@pytest.mark.parametrize(("change", "lines", "extents"), few(CASES, 4), ids=str)
def test_products(rng, change, lines, extents):
    a, b, scales = drawn(rng, lines, extents)
    kernel = kernel_of(a, b, lines, scales, change)
    assert promotion.alternates(kernel.view.problem, kernel.config)
    options = {} if lines is None else {"scale_a": scales[0], "scale_b": scales[1]}
    d = wt.matmul(a, b, out_dtype="float32", config=BASE | change, **options, **PLACE)
    left, right = sp.dequantized(a, b, *scales, lines or (0, 0))
    assert sp.error_ratio(d, np.asarray(left), np.asarray(right), output_bits=23) <= 1


@pytest.mark.parametrize(
    ("change", "lines"),
    few(
        [
            ({"BN": 144}, None), ({"BN": 136}, (1, 128)), ({"BN": 152}, None), ({"BN": 128}, (1, 128)),
            ({"BN": 112}, (1, 1)), ({"BN": 64, "OVERLAP": 1}, (1, 128)), ({"BK": 256, "STAGES": 2}, None),
            ({"BN": 96}, (1, 1)), ({"BN": 128}, (128, 128)), ({"BM": 64, "CONSUMERS": 1}, None),
        ],
        4,
    ),
    ids=str,
)  # fmt: skip
def test_the_compiler_counts_registers_as_plans_do(rng, change, lines):
    """``WgmmaFinal::ALTERNATES`` is `promotion.alternates`."""
    a, b, scales = drawn(rng, lines, (300, 300, 600))
    kernel = kernel_of(a, b, lines, scales, change)
    source, expected = translation_unit(kernel), bool(promotion.alternates(kernel.view.problem, kernel.config))

    def claim(value):
        claimed = f"static_assert(warptile::WgmmaFinal<warptile::Config>::ALTERNATES == {str(value).lower()});"
        compile_ptx(replace(source, text=f"{source.text}\n{claimed}\n"), "sm_90a")

    claim(expected)
    with pytest.raises(CompileError):
        claim(not expected)
