"""GEMMs of two ranks over gloo: values, bits, gradients and compiled graphs."""

import pytest

import two_ranks
from two_ranks import answers

torch = pytest.importorskip("torch", reason="torch is not installed")

import quick_products  # noqa: E402
import warptile as wt  # noqa: E402
import warptile.distributed as wd  # noqa: E402


def drawn(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def quick():
    """No kernel is emulated in this rank from now on."""
    quick_products.install(pytest.MonkeyPatch())


def bits_on_the_emulator(rank):
    a, b = drawn(40, 32, dtype=torch.bfloat16), drawn(32, 24, dtype=torch.bfloat16)
    gathered, d = wd.all_gather_matmul(a.chunk(2)[rank], b, return_a=True)
    assert torch.equal(gathered, a)
    assert torch.equal(d, wt.matmul(a, b))

    k = slice(0, 16) if rank == 0 else slice(16, 32)
    partials = [wt.matmul(a[:, :16].contiguous(), b[:16]), wt.matmul(a[:, 16:].contiguous(), b[16:])]
    expected = (partials[0].float() + partials[1].float()).bfloat16()
    mine, weights = a[:, k].contiguous(), b[k]
    assert torch.equal(wd.matmul_reduce_scatter(mine, weights), expected.chunk(2)[rank])
    assert torch.equal(wd.matmul_all_reduce(mine, weights), expected)
    wide = wd.matmul_all_reduce(mine, weights, partial_dtype="float32", out_dtype=torch.float32)
    assert (wide - a.float() @ b.float()).abs().max() < 1e-4


def test_the_bits_are_those_of_the_plain_gemms_and_a_sum_in_rank_order(tmp_path):
    answers(two_ranks.run(bits_on_the_emulator, tmp_path))


def axes_types_and_lists(rank):
    quick()
    a, b, c = drawn(6, 8, 10), drawn(10, 12), drawn(10, 7)
    for dim in (0, 1, -2):
        d, e = wd.all_gather_matmul(a.chunk(2, dim)[rank], [b, c], gather_dim=dim)
        torch.testing.assert_close(d, a @ b)
        torch.testing.assert_close(e, a @ c)
        assert d.is_contiguous()
    mine, weights = a.chunk(2, -1)[rank], b.chunk(2)[rank]
    for dim in (0, 1, 2, -1):
        found = wd.matmul_reduce_scatter(mine, weights, scatter_dim=dim)
        torch.testing.assert_close(found, (a @ b).chunk(2, dim)[rank])
        assert found.is_contiguous()
    torch.testing.assert_close(wd.matmul_all_reduce(mine, weights, reduce_op="avg"), a @ b / 2)
    # N may differ where columns are not exchanged.
    torch.testing.assert_close(wd.all_gather_matmul(a.chunk(2)[rank], b[:, : 5 + rank]), a @ b[:, : 5 + rank])
    # So may each rank's part of K where results are.
    part = slice(0, 3) if rank == 0 else slice(3, 10)
    torch.testing.assert_close(wd.matmul_all_reduce(a[..., part], b[part]), a @ b)

    integers = torch.arange(-24, 24).reshape(4, 12).to(torch.int8)
    found = wd.matmul_reduce_scatter(integers[:, 6 * rank :][:, :6], torch.ones(6, 2, dtype=torch.int8))
    assert found.dtype == torch.int32
    assert found[:, 0].tolist() == integers.sum(1).tolist()[2 * rank :][:2]
    half = wd.matmul_reduce_scatter(mine.bfloat16(), weights.bfloat16(), out_dtype="float32")
    assert half.dtype == torch.float32
    assert wd.all_gather_matmul(torch.empty(0, 10), torch.ones(10, 3)).shape == (0, 3)
    assert wd.matmul_reduce_scatter(torch.ones(4, 0), torch.ones(0, 3)).tolist() == [[0.0] * 3] * 2

    # Elements of larger results are summed by one rank each, in the same order.
    from warptile.distributed import collectives
    from warptile.distributed.process_groups import group_named

    group, partial = group_named(torch.distributed.group.WORLD.group_name), drawn(7, 3, dtype=torch.float32, seed=rank)
    whole = collectives.all_reduce(group, partial, "sum", torch.bfloat16, "test")
    assert torch.equal(whole, collectives.all_reduce_in_parts(group, partial, "sum", torch.bfloat16, "test"))


def test_axes_types_and_lists(tmp_path):
    answers(two_ranks.run(axes_types_and_lists, tmp_path))


def three_ranks(rank):
    quick()
    from warptile.distributed import collectives

    a, b = drawn(6, 9, dtype=torch.bfloat16), drawn(9, 5, dtype=torch.bfloat16)
    assert torch.equal(wd.all_gather_matmul(a.chunk(3)[rank], b), wt.matmul(a, b))
    partials = [wt.matmul(mine, weights) for mine, weights in zip(a.chunk(3, 1), b.chunk(3), strict=True)]
    mine, weights = a.chunk(3, 1)[rank], b.chunk(3)[rank]
    for reduce_op, factor in (("sum", 1), ("avg", 3)):
        expected = (((partials[0].float() + partials[1].float()) + partials[2].float()) / factor).bfloat16()
        found = wd.matmul_reduce_scatter(mine, weights, reduce_op=reduce_op)
        assert torch.equal(found, expected.chunk(3)[rank])
        assert torch.equal(wd.matmul_all_reduce(mine, weights, reduce_op=reduce_op), expected)
        collectives.ONE_EXCHANGE_BYTES = 0  # in parts, of which the last is padded: 30 elements
        assert torch.equal(wd.matmul_all_reduce(mine, weights, reduce_op=reduce_op), expected)
        assert torch.equal(wd.matmul_all_reduce(mine[:1], weights, reduce_op=reduce_op), expected[:1])


def test_three_ranks_add_in_their_order(tmp_path):
    answers(two_ranks.run(three_ranks, tmp_path, size=3))


def block(x, gate, up, down, gather, scatter):
    """A feed-forward block whose input and output are divided by rows."""
    first, second = gather(x, [gate, up])
    return scatter(torch.nn.functional.silu(first) * second, down)


def parallel_block(x, gate, up, down):
    return block(x, gate, up, down, wd.all_gather_matmul, wd.matmul_reduce_scatter)


def gradients(rank):
    quick()
    x, gate, up, down = drawn(6, 5), drawn(5, 8), drawn(5, 8, seed=1), drawn(8, 5)
    whole = [each.clone().requires_grad_() for each in (x, gate, up, down)]
    expected = block(*whole, lambda x, bs: [x @ b for b in bs], torch.matmul)
    towards = drawn(6, 5, seed=9)
    expected.backward(towards)
    splits = (0, 1, 1, 0)
    for function in (parallel_block, torch.compile(parallel_block, fullgraph=True, backend="aot_eager")):
        mine = [
            each.chunk(2, dim)[rank].clone().requires_grad_()
            for each, dim in zip((x, gate, up, down), splits, strict=True)
        ]
        found = function(*mine)
        torch.testing.assert_close(found, expected.chunk(2)[rank])
        found.backward(towards.chunk(2)[rank])
        for each, of_whole, dim in zip(mine, whole, splits, strict=True):
            torch.testing.assert_close(each.grad, of_whole.grad.chunk(2, dim)[rank])

    # The gathered tensor has a gradient too, and so have gradients.
    shard, b = x.chunk(2)[rank].clone().requires_grad_(), gate.clone().requires_grad_()
    a, d = wd.all_gather_matmul(shard, b, return_a=True)
    (first,) = torch.autograd.grad((a.square().sum() + d.square().sum()), shard, create_graph=True)
    local = x.clone().requires_grad_()
    (of_one,) = torch.autograd.grad(local.square().sum() + (local @ b).square().sum(), local, create_graph=True)
    torch.testing.assert_close(first, 2 * of_one.chunk(2)[rank])  # both ranks have the sum
    (second,) = torch.autograd.grad(first.square().sum(), shard)
    (of_one,) = torch.autograd.grad((2 * of_one).square().sum(), local)
    torch.testing.assert_close(second, of_one.chunk(2)[rank])  # of the squares of all shards

    a, b = (each.chunk(2, dim)[rank].clone().requires_grad_() for each, dim in ((x @ gate, 1), (down, 0)))
    wd.matmul_all_reduce(a, b, reduce_op="avg").backward(towards)
    torch.testing.assert_close(a.grad, towards @ b.detach().T / 2)
    torch.testing.assert_close(b.grad, a.detach().T @ towards / 2)
    # A result that only b's gradient needs gathers no more than g.
    a = a.detach()
    wd.matmul_reduce_scatter(a, b).square().sum().backward()


def test_gradients_are_those_of_one_rank_also_compiled(tmp_path):
    answers(two_ranks.run(gradients, tmp_path))


def group_of_one(rank):
    quick()
    a, b = drawn(5, 4, dtype=torch.bfloat16), drawn(4, 3, dtype=torch.bfloat16)
    for found in (
        wd.all_gather_matmul(a, b),
        wd.all_gather_matmul(a, [b], return_a=True)[1][0],
        wd.matmul_reduce_scatter(a, b),
        wd.matmul_all_reduce(a, b),
    ):
        assert torch.equal(found, wt.matmul(a, b))
    name = torch.distributed.group.WORLD.group_name
    shard, weights = drawn(5, 4).requires_grad_(), drawn(4, 3).requires_grad_()
    operators = torch.ops.warptile
    torch.library.opcheck(operators.all_gather_matmul, (shard, [weights], 0, name))
    torch.library.opcheck(operators.matmul_reduce_scatter, (shard, weights, "sum", 0, name))
    torch.library.opcheck(operators.matmul_all_reduce, (shard, weights, "sum", name))
    with pytest.raises(wt.ShapeError, match=r"a_shard has shape \(5, 4\) and b has shape \(3, 4\)"):
        wd.all_gather_matmul(a, b.T)


def test_a_group_of_one_rank_multiplies_plainly(tmp_path):
    answers(two_ranks.run(group_of_one, tmp_path, size=1))
