"""Tensor-parallel GEMMs on GPUs over NCCL: one rank on one GPU, and two and four ranks where there are as many."""

import os

import pytest

import two_ranks
import warptile as wt
from two_ranks import answers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

BACKEND = "cpu:gloo,cuda:nccl"
SHAPES = ((256, 512, 1024), (1024, 4096, 2048), (96, 1000, 520))
"""M, N and K; the last is no multiple of a tile."""


@pytest.fixture(params=[1, 2, 4])
def size(request):
    if torch.cuda.device_count() < request.param:
        pytest.skip(f"{request.param} ranks need as many GPUs")
    return request.param


def drawn(*shape, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").bfloat16()


def bits_of_the_plain_gemm(rank, size, overlap):
    os.environ["WARPTILE_OVERLAP"] = overlap
    os.environ["WARPTILE_COMPILE"] = "wait"
    import warptile.distributed as wd

    for m, n, k in SHAPES:
        a, b = drawn(m, k, seed=1), drawn(k, n, seed=2)
        shard = a.chunk(size)[rank].contiguous()
        parts = [slice(k * each // size, k * (each + 1) // size) for each in range(size)]
        mine, weights = a[:, parts[rank]].contiguous(), b[parts[rank]].contiguous()
        gathered = wt.matmul(a, b)
        partials = [wt.matmul(a[:, part].contiguous(), b[part].contiguous()).float() for part in parts]
        total = partials[0]
        for each in partials[1:]:
            total = total + each
        total = total.bfloat16()
        calls = {
            "gather": (lambda shard=shard, b=b: wd.all_gather_matmul(shard, b), gathered),
            "scatter": (lambda a=mine, b=weights: wd.matmul_reduce_scatter(a, b), total.chunk(size)[rank]),
            "reduce": (lambda a=mine, b=weights: wd.matmul_all_reduce(a, b), total),
        }
        for name, (call, expected) in calls.items():
            for _ in range(5):
                assert torch.equal(call(), expected), (name, m, n, k)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                call()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    found = call()
                for _ in range(3):
                    found.fill_(float("nan"))
                    graph.replay()
                    torch.cuda.synchronize()
                    assert torch.equal(found, expected), ("graph", name, m, n, k)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_the_bits_are_those_of_the_plain_gemm_also_in_a_graph(tmp_path, size, overlap):
    answers(two_ranks.run(bits_of_the_plain_gemm, tmp_path, size, overlap, size=size, backend=BACKEND))


def refusal(rank):
    import warptile.distributed as wd

    a = torch.zeros(4, 8, device="cuda" if rank else "cpu")
    with pytest.raises(wt.LayoutError, match="rank 0 gave cpu, rank 1 gave cuda"):
        wd.matmul_all_reduce(a, torch.zeros(8, 4, device=a.device))


def test_ranks_on_different_devices_are_told(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("two ranks need two GPUs")
    answers(two_ranks.run(refusal, tmp_path, backend="cuda:nccl"))
