"""wgmma-final that gathers A, on one GPU: shards arrive from pinned host memory while it runs, with a flag for each.

Copies from the host need no SM, as those from other GPUs do not: the kernel may occupy all SMs while it waits.
"""

import time

import pytest

from warptile.arrays import array_view
from warptile.arrays.operands import arrange
from warptile.gpu import driver, stream_operations
from warptile.launch.concurrent_stream import ConcurrentStream, StreamCopy, StreamFlag, StreamWait
from warptile.planning.gathered_plan import GatheredPlan
from warptile.planning.plan import Plan
from warptile.rungs import RUNGS
from warptile.rungs.wgmma.gathered import FLAG_BYTES, SHARD_FLAGS, Shards
from warptile.runtime.execute import GpuBackend, compiled

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LIMIT_S = 20


@pytest.fixture(autouse=True)
def hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is for Hopper")


class Gathering:
    """A GEMM with shards on their way.

    Attributes:
        expected: D of the plain kernel in the same configuration, whose bits are to be found again.
    """

    def __init__(self, m, n, k, count, first, **config):
        generator = torch.Generator("cuda").manual_seed(m + n + k)
        self.whole = torch.randn(m, k, generator=generator, device="cuda").bfloat16()
        self.b = torch.randn(n, k, generator=generator, device="cuda").bfloat16().mT
        self.host = self.whole.cpu().pin_memory()
        self.a, self.d = torch.empty_like(self.whole), torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        self.flags = torch.zeros(count, dtype=torch.int32, device="cuda")
        self.one = torch.ones(1, dtype=torch.int32).pin_memory()
        self.go = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.rows, self.first, self.count = m // count, first, count
        self.backend = GpuBackend(self.a.get_device())
        problem = arrange(self.whole, self.b, out=self.d).problem
        plan = GatheredPlan.of(problem, Shards(count, self.rows, first), self.backend.device)
        if config:
            chosen = {**dict(plan.config), **config}
            plan = GatheredPlan.of(problem, plan.shards, self.backend.device, chosen)
        self.plan = plan
        plain = Plan(problem, RUNGS["wgmma-final"], dict(plan.config), "test", self.backend.device)
        self.backend.load(compiled(self.plan))  # nothing is loaded while a kernel waits
        self._run(plain, self.whole)
        self.expected = self.d.clone()

    def _run(self, plan, a):
        operands = {"A": a, "B": self.b, "D": self.d, SHARD_FLAGS: self.flags}
        views = {name: array_view.view(each, name) for name, each in operands.items()}
        self.backend.run(plan, views, [()], 1, 0)

    def reset(self):
        """Nothing has arrived but the first shard."""
        self.a.fill_(float("nan"))
        self.d.fill_(float("nan"))
        self.flags.zero_()
        part = slice(self.first * self.rows, (self.first + 1) * self.rows)
        self.a[part] = self.whole[part]
        self.flags[self.first] = 1
        self.go.zero_()

    def push(self, *, held=False, order=None):
        """The other shards, in a stream's words; ``held`` until ``go`` is set."""
        size = self.rows * self.a.shape[1] * 2
        others = [(self.first + step) % self.count for step in range(1, self.count)] if order is None else order
        operations = [StreamWait("go")] if held else []
        for shard in others:
            operations += [
                StreamCopy("host", "A", size, shard * size, shard * size), StreamFlag(SHARD_FLAGS, shard * FLAG_BYTES)
            ]  # fmt: skip
        return ConcurrentStream("host to GPU", tuple(operations))

    @property
    def pointers(self):
        return {
            "A": self.a.data_ptr(), "host": self.host.data_ptr(), SHARD_FLAGS: self.flags.data_ptr(),
            "go": self.go.data_ptr(),
        }  # fmt: skip

    def multiply(self):
        self._run(self.plan, self.a)


def finished(event):
    """Whether an event comes within the limit; without waiting for the GPU, which may never be done."""
    end = time.monotonic() + LIMIT_S
    while not event.query():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


SHAPES = {
    "two shards": (8192, 4096, 4096, 2, 1, {}),
    "eight shards": (8192, 4096, 1024, 8, 3, {}),
    "tiles of two shards": (1000, 2048, 1024, 2, 0, {}),
    "few rows": (64, 4096, 4096, 2, 1, {}),
    "ping-pong": (4096, 4096, 1024, 4, 2, {"BM": 64, "BN": 256, "PINGPONG": 1, "STAGES": 3}),
    "clusters": (4096, 4096, 1024, 4, 2, {"CM": 2}),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("order", ["before", "while it runs", "backwards"])
def test_the_bits_of_the_plain_kernel_whenever_shards_arrive(name, order):
    m, n, k, count, first, config = SHAPES[name]
    case = Gathering(m, n, k, count, first, **config)
    beside, released = driver.Stream(), driver.Stream()
    for _ in range(5):
        case.reset()
        torch.cuda.synchronize()
        others = [shard for shard in reversed(range(count)) if shard != first] if order == "backwards" else None
        pushed = case.push(held=order == "while it runs", order=others)
        if order == "before":
            stream_operations.enqueue(pushed, case.pointers, beside.handle)
            beside.synchronize()
            case.multiply()
        else:
            case.multiply()
            stream_operations.enqueue(pushed, case.pointers, beside.handle)
        event = torch.cuda.Event()
        event.record()
        if order == "while it runs":
            time.sleep(0.02)
            assert not event.query(), "it waits"
            driver.write_value(case.go.data_ptr(), 1, released.handle)
        assert finished(event), "the kernel waits for a flag that has been set"
        torch.cuda.synchronize()
        assert torch.equal(case.d.view(torch.int16), case.expected.view(torch.int16))


def test_in_a_cuda_graph_flags_are_copied():
    case = Gathering(4096, 4096, 1024, 2, 0)
    beside, size = torch.cuda.Stream(), case.rows * case.a.shape[1] * 2
    ready = torch.tensor([1, 0], dtype=torch.int32, device="cuda")

    def call():
        """Everything that one call queues: flags of the last one are cleared, copies and the kernel overlap."""
        case.flags.copy_(ready)
        main = torch.cuda.current_stream()
        beside.wait_stream(main)
        handle = beside.cuda_stream
        driver.copy_between(case.a.data_ptr() + size, case.host.data_ptr() + size, size, handle)
        driver.copy_between(case.flags.data_ptr() + FLAG_BYTES, case.one.data_ptr(), FLAG_BYTES, handle)
        case.multiply()
        main.wait_stream(beside)

    case.reset()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            call()
        for _ in range(5):
            case.d.fill_(float("nan"))
            case.a[case.rows :].fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(case.d.view(torch.int16), case.expected.view(torch.int16))
