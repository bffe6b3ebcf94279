"""The kernel that adds partials of ranks on a GPU: the bits of additions by torch, one after the other."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

from warptile.distributed.collectives import sum_in_rank_order  # noqa: E402
from warptile.runtime.rank_sum import MOST_RANKS  # noqa: E402


@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 17])
@pytest.mark.parametrize("shape", [(1024, 4096), (333, 77), (1, 8)], ids=str)
@pytest.mark.parametrize("reduce_op", ["sum", "avg"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_bits_of_additions_in_the_order_of_ranks(ranks, shape, reduce_op, dtype):
    generator = torch.Generator("cuda").manual_seed(ranks)
    partials = torch.randn(ranks, *shape, generator=generator, device="cuda").to(dtype)
    for out in (dtype, torch.bfloat16, torch.float32):
        expected = partials[0].float()
        for each in partials[1:]:
            expected = expected + each.float()
        expected = (expected / expected.new_full((), ranks) if reduce_op == "avg" else expected).to(out)
        for given in (partials, partials.mT.contiguous().mT):
            found = sum_in_rank_order(given, reduce_op, out)
            assert torch.equal(found, expected)
            assert found.is_contiguous() or ranks > MOST_RANKS
