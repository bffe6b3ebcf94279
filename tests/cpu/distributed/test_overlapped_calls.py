"""What overlapped calls queue, in which order, on a pretended GPU; and which calls ranks overlap together."""

import ctypes
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.distributed import _symmetric_memory  # noqa: E402

from warptile.distributed import collectives, overlapped_gather, overlapped_scatter, shared_sum  # noqa: E402
from warptile.distributed.overlapped_gather import ABILITY, OverlappedGather, ability, together  # noqa: E402
from warptile.distributed.overlapped_scatter import OverlappedScatter  # noqa: E402
from warptile.errors import CommunicationError  # noqa: E402
from warptile.gpu import driver  # noqa: E402

SIZE, RANK, ROWS, K = 4, 1, 3, 8


class Pretended:
    """A GPU whose streams do everything at once and note it down; peers' memory is host memory."""

    def __init__(self, monkeypatch, *, captured=False):
        self.done = []
        self.whole = torch.randn(SIZE * ROWS, K).bfloat16()
        size = self.whole.numel() * 2
        self.peers = [torch.zeros(size + 256, dtype=torch.uint8) for _ in range(SIZE)]
        for rank, memory in enumerate(self.peers):
            rows = slice(rank * ROWS, (rank + 1) * ROWS)
            if rank != RANK:
                memory[:size].view(torch.bfloat16).view(SIZE * ROWS, K)[rows] = self.whole[rows]
                memory[size : size + 4].view(torch.int32).fill_(1)
        handle = SimpleNamespace(
            buffer_ptrs=[each.data_ptr() for each in self.peers],
            barrier=lambda channel: self.done.append(f"barrier {channel}"),
        )
        monkeypatch.setattr(_symmetric_memory, "empty", lambda *size, **options: self.peers[RANK])
        monkeypatch.setattr(_symmetric_memory, "rendezvous", lambda memory, name: handle)
        stream = SimpleNamespace(cuda_stream=7, wait_stream=lambda other: self.done.append("wait"))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured)
        monkeypatch.setattr(driver, "copy_between", self.copy)
        monkeypatch.setattr(driver, "write_value", self.write)
        monkeypatch.setattr(OverlappedGather, "_made", lambda gather, b, d, max_sms: self.launch(gather, b))

    def copy(self, target, source, size, stream):
        ctypes.memmove(target, source, size)
        self.done.append(f"copy of {size}")

    def write(self, address, value, stream):
        ctypes.c_int32.from_address(address).value = value
        self.done.append("flag")

    def launch(self, gather, b):
        def run(stream, at_a, at_b, at_d, at_flags):
            assert (at_a, at_b) == (gather.a.data_ptr(), b.data_ptr())
            flags = (ctypes.c_int32 * SIZE).from_address(at_flags)
            assert list(flags) == [1] * SIZE
            found = gather.a @ b
            ctypes.memmove(at_d, found.data_ptr(), found.numel() * 2)
            self.done.append("launch")

        return run


def group():
    return SimpleNamespace(rank=RANK, size=SIZE, name="tp")


@pytest.mark.parametrize("captured", [False, True])
def test_rows_are_pulled_in_ring_order_between_two_barriers(monkeypatch, captured):
    gpu = Pretended(monkeypatch, captured=captured)
    shard = gpu.whole[RANK * ROWS :][:ROWS]
    gather = OverlappedGather(group(), shard)
    bs = [torch.randn(K, 5).bfloat16(), torch.randn(4, K).bfloat16().mT]
    for _ in range(2):
        gpu.done.clear()
        gather.a.fill_(float("nan"))
        ds = gather.multiply(shard, bs, None, None)
        for b, d in zip(bs, ds, strict=True):
            assert torch.equal(d, gpu.whole @ b)
        pulled = [f"copy of {ROWS * K * 2}", "copy of 4" if captured else "flag"] * (SIZE - 1)
        assert gpu.done == ["barrier 0", "wait", *pulled, "launch", "launch", "wait", "barrier 1"]


def test_a_b_that_no_kernel_gathers_for_is_multiplied_when_all_rows_are_there(monkeypatch):
    gpu = Pretended(monkeypatch)
    monkeypatch.setattr(OverlappedGather, "_made", lambda *_: None)
    monkeypatch.setattr(overlapped_gather, "matmul", lambda a, b, out, max_sms: torch.matmul(a, b, out=out))
    shard, b = gpu.whole[RANK * ROWS :][:ROWS], torch.randn(K, 5).bfloat16()
    (d,) = OverlappedGather(group(), shard).multiply(shard, [b], None, None)
    assert torch.equal(d, gpu.whole @ b)


def test_gpus_without_symmetric_memory_are_an_error_that_says_what_to_set(monkeypatch):
    def refuse(memory, name):
        raise RuntimeError("no peer access")

    Pretended(monkeypatch)
    monkeypatch.setattr(_symmetric_memory, "rendezvous", refuse)
    with pytest.raises(CommunicationError, match="WARPTILE_OVERLAP=off"):
        OverlappedGather(group(), torch.zeros(ROWS, K).bfloat16())


class PretendedScatter:
    """Rank 1 of two, whose GEMMs store at once; what the other rank stores is there from the start."""

    def __init__(self, monkeypatch, *, whole):
        self.done = []
        self.rows, self.k, self.n = 4, 8, 6
        self.a = torch.randn(2, 2 * self.rows, self.k).bfloat16()  # of both ranks
        self.b = torch.randn(2, self.k, self.n).bfloat16()
        self.memory = [torch.zeros(2 * self.rows * self.n * 2, dtype=torch.uint8) for _ in range(2)]
        self.parts = [each.view(torch.bfloat16).view(2, self.rows, self.n) for each in self.memory]
        self.parts[1][0] = (self.a[0] @ self.b[0])[self.rows :]
        handle = SimpleNamespace(
            buffer_ptrs=[each.data_ptr() for each in self.memory],
            barrier=lambda channel: self.done.append(f"barrier {channel}"),
        )
        monkeypatch.setattr(overlapped_scatter, "symmetric", lambda *arguments: (self.memory[1], handle))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7))
        monkeypatch.setattr(driver, "copy_between", self.copy)
        monkeypatch.setattr(
            overlapped_scatter, "matmul", lambda a, b, out_dtype, max_sms: torch.matmul(a, b).to(out_dtype)
        )
        monkeypatch.setattr(OverlappedScatter, "_made", lambda *arguments: None if whole else self.launch)

    def copy(self, target, source, size, stream):
        ctypes.memmove(target, source, size)
        self.done.append(("copy", self.owner(target)))

    def launch(self, stream, at_a, at_b, at_d):
        first = (at_a - self.a[1].data_ptr()) // (self.k * 2)
        found = self.a[1][first : first + self.rows] @ self.b[1]
        ctypes.memmove(at_d, found.data_ptr(), found.numel() * 2)
        self.done.append(("launch", self.owner(at_d)))

    def owner(self, address):
        return next(rank for rank, each in enumerate(self.memory) if 0 <= address - each.data_ptr() < each.numel())


@pytest.mark.parametrize("whole", [False, True])
def test_partials_are_stored_where_they_are_summed_the_own_ones_last(monkeypatch, whole):
    gpu = PretendedScatter(monkeypatch, whole=whole)
    scatter = OverlappedScatter(SimpleNamespace(rank=1, size=2, name="tp"), 4, 6, torch.bfloat16, torch.device("cpu"))
    found = scatter.multiply(gpu.a[1], gpu.b[1], "sum", torch.bfloat16, None)
    how = "copy" if whole else "launch"
    assert gpu.done == ["barrier 0", (how, 0), (how, 1), "barrier 1"]
    partials = [gpu.a[rank] @ gpu.b[rank] for rank in range(2)]
    assert torch.equal(found, (partials[0].float() + partials[1].float()).bfloat16()[4:])
    assert torch.equal(gpu.parts[0][1], partials[1][:4]), "rank 0 has its rows of this rank's partial"


def pretended_sum(monkeypatch):
    """Rank 1 of two, whose peer's partial is there from the start; what it does, in order, and the partials."""
    done = []
    memory = [torch.zeros(shared_sum.LEAST_BYTES, dtype=torch.uint8) for _ in range(2)]
    partials = [each[: 3 * 5 * 2].view(torch.bfloat16).view(3, 5) for each in memory]
    partials[0].copy_(torch.randn(3, 5))
    handle = SimpleNamespace(
        buffer_ptrs=[each.data_ptr() for each in memory], barrier=lambda channel: done.append(f"barrier {channel}")
    )
    monkeypatch.setattr(shared_sum, "symmetric", lambda *arguments: (memory[1], handle))

    def product(a, b, out, **options):
        done.append(("GEMM", out.data_ptr() == memory[1].data_ptr(), options))
        out.copy_(a @ b)

    def add(kind, addresses, total, count, divisor, ordinal, stream):
        done.append("sum")
        assert (addresses, count, kind.aligned) == (handle.buffer_ptrs, 15, False)
        found = ((partials[0].float() + partials[1].float()) / divisor).bfloat16()
        ctypes.memmove(total, found.data_ptr(), count * 2)

    monkeypatch.setattr(shared_sum, "matmul", product)
    monkeypatch.setattr(collectives, "add_on_gpu", add)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda ordinal: 7, raising=False)
    return done, partials


@pytest.mark.parametrize("reduce_op", ["sum", "avg"])
def test_every_rank_adds_the_partials_of_all_between_two_barriers(monkeypatch, reduce_op):
    done, partials = pretended_sum(monkeypatch)
    ranks = SimpleNamespace(rank=1, size=2, name="tp", sums={})
    a, b = torch.randn(3, 4).bfloat16(), torch.randn(4, 5).bfloat16()
    for _ in range(2):
        done.clear()
        shared = shared_sum.of_group(ranks, 30, torch.device("cpu"))
        found = shared.multiply(a, b, reduce_op, (torch.bfloat16, torch.bfloat16), {"max_sms": 9})
        assert done == [("GEMM", True, {"max_sms": 9}), "barrier 0", "sum", "barrier 1"]
        assert torch.equal(partials[1], a @ b)
        divisor = 2 if reduce_op == "avg" else 1
        assert torch.equal(found, ((partials[0].float() + partials[1].float()) / divisor).bfloat16())
    assert list(ranks.sums) == [shared_sum.LEAST_BYTES]
    shared_sum.of_group(ranks, shared_sum.LEAST_BYTES + 2, torch.device("cpu"))
    assert list(ranks.sums) == [shared_sum.LEAST_BYTES, 2 * shared_sum.LEAST_BYTES], "graphs may hold the first"


def able_to_share(monkeypatch, *, rows=4, n=8, types=(torch.bfloat16, torch.bfloat16), size=2, backend=None):
    a = SimpleNamespace(is_cuda=True, shape=torch.Size((rows, 16)), get_device=lambda: 3)
    return shared_sum.ability(a, n, *types, SimpleNamespace(size=size), backend)


def test_which_sums_read_partials_of_other_gpus(monkeypatch):
    assert able_to_share(monkeypatch) is None, "only where it is asked for"
    monkeypatch.setenv("WARPTILE_OVERLAP", "on")
    assert able_to_share(monkeypatch)[1] == 3
    assert able_to_share(monkeypatch, types=(torch.float32, torch.float16)) is not None
    assert able_to_share(monkeypatch, rows=0) is None
    assert able_to_share(monkeypatch, types=(torch.float64, torch.float64)) is None
    assert able_to_share(monkeypatch, backend="emulator") is None
    assert able_to_share(monkeypatch, rows=1024, n=1024) is not None
    assert able_to_share(monkeypatch, rows=1024, n=1024, size=4) is None, "larger sums go in parts"


def able(monkeypatch, a, b, dim=0, **options):
    pretended = SimpleNamespace(
        is_cuda=True, numel=a.numel, shape=a.shape, dtype=a.dtype, device=a.device, element_size=a.element_size,
        get_device=lambda: 3,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return ability(pretended, [b], dim, options)


def test_what_a_rank_can_overlap(monkeypatch):
    a, b = torch.zeros(4, 16).bfloat16(), torch.zeros(16, 8).bfloat16()
    assert able(monkeypatch, a, b) is None, "only where it is asked for"
    monkeypatch.setenv("WARPTILE_OVERLAP", "on")
    assert able(monkeypatch, a, b)[1] == 3
    assert able(monkeypatch, a.view(1, 4, 16), b, 1) is not None
    assert able(monkeypatch, a.view(2, 2, 16), b, 1) is None, "shards are not one after the other"
    assert able(monkeypatch, a.float(), b.float()) is None
    assert able(monkeypatch, a[:, :12], b[:12]) is None, "TMA reads rows of multiples of 16 bytes"
    assert able(monkeypatch, a, b, batch_invariant=True) is None
    assert able(monkeypatch, a, b, backend="emulator") is None
    assert ability(a, [b], 0, {}) is None, "it is not on a GPU"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((["h", 0], ["h", 1]), True),
        ((["h", 0], None), False),
        ((["h", 0], ["i", 1]), False),
        ((["h", 0], ["h", 0]), False),
        ((["h", 0],), False),
        (tuple(["h", gpu] for gpu in range(9)), False),
    ],
)
def test_all_ranks_overlap_or_none(places, expected):
    assert together([{ABILITY: each} for each in places], group()) is expected
