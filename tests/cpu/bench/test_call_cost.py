"""What a call costs the host: rounds that alternate, ratios within a round, and the command that prints them."""

import contextlib
import sys
import types

import numpy as np
import pytest
from click.testing import CliRunner

from warptile.bench.protocol import call_chains, call_cost, records
from warptile.bench.protocol.call_cost import Participant, measure
from warptile.bench.protocol.host_cost import CHAIN, MATMUL, HostCosts
from warptile.cli.main import run, warptile_command
from warptile.gpu import driver


@pytest.fixture
def clock(monkeypatch):
    """Seconds that only calls move forward."""
    now = [0.0]
    monkeypatch.setattr(call_cost.time, "perf_counter", lambda: now[0])
    return now


def participants(clock, order):
    """Two, of 2 and 3 microseconds, that note when they are called."""

    def call(name, cost_us):
        def run():
            order.append(name)
            clock[0] += cost_us * 1e-6

        return run

    return [
        Participant("theirs", "torch", call("theirs", 2.0)),
        Participant("ours", "torch", call("ours", 3.0), "theirs"),
    ]


def test_rounds_alternate_and_each_is_compared_with_its_own(clock):
    order, waits = [], []
    found = measure(participants(clock, order), lambda: waits.append(len(order)), rounds=3, calls=4)
    assert order[:4] == ["theirs"] * 2 + ["ours"] * 2, "both are called before anything is timed"
    timed = [order[4 + 4 * start] for start in range(6)]
    assert timed == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]
    assert waits == [4, 8, 12, 16, 20, 24, 28], "the GPU is waited for before and behind each"
    theirs, ours = found
    assert theirs.rounds_us == pytest.approx((2.0,) * 3)
    assert ours.median_us == pytest.approx(3.0)
    group = HostCosts(workload=MATMUL, size=64, calls=4, costs=found)
    assert (group.ratio(theirs), group.ratio(ours)) == (None, pytest.approx(1.5))


def test_a_chain_is_timed_until_the_gpu_has_finished(clock):
    def wait():
        clock[0] += 8e-6

    timed, waited = (measure(participants(clock, []), wait, rounds=2, calls=4, finished=each) for each in (False, True))
    assert [each.median_us for each in timed] == pytest.approx([2.0, 3.0])
    assert [each.median_us for each in waited] == pytest.approx([4.0, 5.0])


@pytest.fixture
def gpu(monkeypatch, clock):
    monkeypatch.setattr(driver, "enter", lambda ordinal=None: 0)
    monkeypatch.setattr(driver, "synchronize", lambda: None)
    for module in (call_cost, call_chains):
        monkeypatch.setattr(module, "participants_of", lambda size: iter(participants(clock, [])))


def test_the_command_prints_a_table_or_a_record(gpu):
    shown = CliRunner().invoke(warptile_command, ["bench", "--suite", "calls", "--brief"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0, shown.output
    assert "one call of 64 x 64 x 64" in shown.output
    for width in call_chains.WIDTHS:
        assert f"12 layers relu(x @ w) of width {width} at M = 1" in shown.output
    assert any(line.split()[:3] == ["torch", "ours", "3.0"] and "1.50" in line for line in shown.output.splitlines())
    said = CliRunner().invoke(
        warptile_command, ["bench", "--suite", "calls", "--brief", "--json", "--size", "32", "--size", "48"]
    )
    record = records.decode(said.stdout.encode(), "stdout")
    assert record.kind == "calls"
    assert record.id in said.stderr
    assert record.command == "warptile bench --suite calls --json --size 32 --size 48 --brief"
    assert [(each.workload, each.size, each.layers) for each in record.groups] == [
        (MATMUL, 32, 1), (MATMUL, 48, 1), (CHAIN, 32, 12), (CHAIN, 48, 12),
    ]  # fmt: skip
    ours = record.groups[0].cost("ours")
    assert len(ours.rounds_us) == call_cost.BRIEF_ROUNDS
    assert record.groups[0].ratio(ours) == pytest.approx(1.5)


def test_the_command_keeps_the_record_in_a_file(gpu, tmp_path):
    path = tmp_path / "calls.json"
    said = CliRunner().invoke(warptile_command, ["bench", "--suite", "calls", "--brief", "--save", str(path)])
    assert said.exit_code == 0, said.output
    assert records.decode(path.read_bytes(), path.name).kind == "calls"
    assert "one call of 64 x 64 x 64" in said.stdout


def test_without_torch_there_are_no_chains(gpu, monkeypatch):
    monkeypatch.setattr(call_chains, "participants_of", lambda width: iter(()))
    shown = CliRunner().invoke(warptile_command, ["bench", "--suite", "calls", "--brief"])
    assert shown.exit_code == 0, shown.output
    assert "layers" not in shown.output


class Tensor:
    """As much of torch's as a chain takes, over NumPy."""

    def __init__(self, array):
        self.array = array

    def __mul__(self, factor):
        return Tensor(self.array * factor)

    def __sub__(self, other):
        return Tensor(self.array - other.array)

    def __truediv__(self, other):
        return Tensor(self.array / other.array)

    def __float__(self):
        return float(self.array)

    to = lambda self, kind: self  # noqa: E731
    float = lambda self: self  # noqa: E731
    t = lambda self: Tensor(self.array.T)  # noqa: E731
    abs = lambda self: Tensor(np.abs(self.array))  # noqa: E731
    max = lambda self: Tensor(np.max(self.array))  # noqa: E731


@pytest.fixture
def torch(monkeypatch):
    """A torch whose graphs note that they were replayed."""
    module = types.ModuleType("torch")
    module.Generator = lambda device: types.SimpleNamespace(manual_seed=lambda seed: None)
    module.randn = lambda *shape, device, generator: Tensor(np.random.default_rng(1).standard_normal(shape))
    module.matmul = lambda a, b: Tensor(a.array @ b.array)
    module.relu = lambda x: Tensor(np.maximum(x.array, 0))
    module.bfloat16, module.replays = "bfloat16", 0

    class Graph:
        def replay(self):
            module.replays += 1

    module.cuda = types.SimpleNamespace(
        is_available=lambda: True, Stream=object, stream=contextlib.nullcontext, synchronize=lambda: None,
        CUDAGraph=Graph, graph=lambda graph, stream: contextlib.nullcontext(),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_chains_are_multiplied_in_every_way_and_compared(torch, monkeypatch):
    planned = []
    monkeypatch.setattr(call_chains.wt, "plan", lambda x, w: (planned.append(w), torch.matmul)[1])
    monkeypatch.setattr(call_chains.wt, "matmul", torch.matmul)
    ways = list(call_chains.participants_of(32))
    assert [(each.name, each.beside) for each in ways] == [
        ("torch", None), ("warptile.matmul", "torch"), ("held plan", "torch"), ("torch, graph", None),
        ("warptile.matmul, graph", "torch, graph"), ("held plan, graph", "torch, graph"),
    ]  # fmt: skip
    assert len(planned) == 1
    assert len({each.call().array.tobytes() for each in ways}) == 1
    assert torch.replays == 3
    monkeypatch.setattr(call_chains.wt, "matmul", lambda a, b: Tensor(1.1 * (a.array @ b.array)))
    with pytest.raises(ArithmeticError, match=r"warptile\.matmul is"):
        list(call_chains.participants_of(32))


def test_what_is_not_installed_takes_no_part(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert list(call_chains.participants_of(32)) == []
    assert call_cost.installed("warptile.bench.no_such_module") is None


@pytest.mark.skipif(driver.available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert run(["bench", "--suite", "calls"]) == 3
    assert "NoDeviceError" in capsys.readouterr().err
