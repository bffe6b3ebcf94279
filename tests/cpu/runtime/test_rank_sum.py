"""The kernel that adds partials of ranks, on the emulator: the bits of additions in the order of ranks."""

import numpy as np
import pytest

from tensor_product import ptx_once
from warptile.arrays.array_view import numpy_dtype
from warptile.dtypes import DTYPES
from warptile.emulator import emulate
from warptile.launch.access import Access, Rows
from warptile.ptx import parse
from warptile.runtime.rank_sum import SUM, RankSum, partial_of


def added(kind, partials, divisor=1.0):
    entry, ptx = ptx_once(kind.source, "sm_90a")
    count, out = partials.shape[1], numpy_dtype(DTYPES[kind.out])
    total = np.full(count, np.nan, out)
    emulate(
        parse(ptx), kind.launch(entry, count, divisor),
        {**{partial_of(rank): each.copy() for rank, each in enumerate(partials)}, SUM: total},
        accesses={SUM: Access(writes=True, complete=Rows(1, count, out.itemsize, count * out.itemsize))}, arch="sm_90a",
    )  # fmt: skip
    return total


@pytest.mark.parametrize(
    ("partial", "out", "ranks", "count", "divisor"),
    [
        ("bfloat16", "bfloat16", 2, 4096, 1),
        ("bfloat16", "bfloat16", 8, 1000, 8),
        ("float16", "float16", 3, 37, 3),
        ("float32", "bfloat16", 4, 516, 1),
        ("bfloat16", "float32", 5, 136, 1),
    ],
)
def test_the_bits_are_those_of_additions_in_the_order_of_ranks(partial, out, ranks, count, divisor):
    random = np.random.default_rng(ranks)
    kind = RankSum(ranks, partial, out, aligned=count % 8 == 0)
    values = random.standard_normal((ranks, count)) * np.exp2(random.integers(-9, 9, (ranks, count)))
    partials = values.astype(numpy_dtype(DTYPES[partial]))
    expected = partials[0].astype(np.float32)
    for each in partials[1:]:
        expected = expected + each.astype(np.float32)
    if divisor != 1:
        expected = expected / np.float32(divisor)
    found = added(kind, partials, divisor)
    expected = expected.astype(numpy_dtype(DTYPES[out]))
    assert np.array_equal(found.view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}"))


def test_loads_are_of_16_bytes_where_everything_is_aligned():
    assert RankSum(2, "bfloat16", "bfloat16", aligned=True).width == 8
    assert RankSum(2, "bfloat16", "float32", aligned=True).width == 4
    assert RankSum(2, "bfloat16", "bfloat16", aligned=False).width == 1
    assert RankSum(2, "bfloat16", "bfloat16", aligned=True).launch("k", 1 << 30).grid == (2048, 1, 1)
