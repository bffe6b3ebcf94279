"""``random:SEED`` lets some blocks and warps get ahead; a search over seeds finds what needs such an order."""

from __future__ import annotations

import json

import numpy as np
import pytest

from emulation import compiled, run_cuda
from warptile.cli.main import run
from warptile.emulator import emulate, explore, launch_geometry
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec

ORDERS = """
__global__ void blocks(int* order, int* ticket) {
  if (threadIdx.x == 0) order[atomicAdd(ticket, 1)] = blockIdx.x;
}
__global__ void warps(int* order, int* ticket) {
  if (threadIdx.x % 32 == 0) order[atomicAdd(ticket, 1)] = threadIdx.x / 32;
}
__global__ void converged(unsigned* masks, const int* in) {
  unsigned x = threadIdx.x;
  for (int i = 0; i < x % 5 + in[blockIdx.x]; ++i) x = x * 5 + i;
  if (x % 3 == 0) x += masks[0];
  masks[blockIdx.x * blockDim.x + threadIdx.x] = __activemask();
}
"""
"""A late first block of the last kernel writes behind the end."""

LATE = """__global__ void late(int* out, int* ticket) {
  if (threadIdx.x != 0) return;
  const int mine = atomicAdd(ticket, 1);
  out[blockIdx.x == 0 ? mine * MANY : blockIdx.x] = 1;
}
"""


def order(entry: str, schedule: str, *, grid: int = 1, block: int = 128) -> tuple[int, ...]:
    found = np.zeros(max(grid, block // 32), np.int32)
    run_cuda(ORDERS, entry, [found, np.zeros(1, np.int32)], grid=grid, block=block, outputs={0: False, 1: False},
             schedule=schedule)  # fmt: skip
    return tuple(found.tolist())


@pytest.mark.parametrize(("entry", "grid", "block"), [("blocks", 4, 64), ("warps", 1, 128)])
def test_seeds_vary_the_order_and_repeat_it(entry: str, grid: int, block: int) -> None:
    """Of four blocks (or warps), of which a random choice goes first: 12 seeds give several orders, each complete."""
    found = [order(entry, f"random:{seed}", grid=grid, block=block) for seed in range(12)]
    assert all(sorted(each) == [0, 1, 2, 3] for each in found)
    assert len(set(found)) > 4
    assert len({each[0] for each in found}) > 2
    assert [order(entry, f"random:{seed}", grid=grid, block=block) for seed in (3, 4)] == found[3:5]
    assert order(entry, "latest", grid=grid, block=block) == (0, 1, 2, 3)


def test_sets_of_blocks_that_run_one_after_the_other_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_geometry, "LANES_PER_WAVE", 64)
    found = {order("blocks", f"random:{seed}", grid=4, block=64) for seed in range(6)}
    assert len(found) > 2


@pytest.mark.parametrize("seed", range(4))
def test_lanes_of_a_warp_reconverge(seed: int) -> None:
    masks = np.zeros(4 * 96, np.uint32)
    run_cuda(ORDERS, "converged", [masks, np.arange(4, dtype=np.int32)], grid=4, block=96, schedule=f"random:{seed}")
    assert (masks == 0xFFFFFFFF).all()


def test_a_search_shows_what_an_order_of_blocks_does_and_how_to_see_it_again() -> None:
    entry, module = compiled(LATE.replace("MANY", "100"), "late", "sm_90a")
    spec = LaunchSpec(entry, (4, 1, 1), (32, 1, 1), (Pointer("out"), Pointer("ticket")))
    accesses = {"out": Access(writes=True), "ticket": Access(writes=True)}

    def operands() -> dict[str, np.ndarray]:
        return {"out": np.zeros(8, np.int32), "ticket": np.zeros(1, np.int32)}

    def run_once(schedule: str) -> list[str]:
        report = emulate(module, spec, operands(), accesses=accesses, arch="sm_90a", schedule=schedule, collect=True)
        return [each.kind for each in report.findings]

    given = operands()
    assert run_once("latest") == []
    report = explore(module, spec, given, accesses=accesses, arch="sm_90a", seeds=8)
    (found,) = report.findings
    assert (found.kind, found.severity) == ("IllegalAddress", "error")
    assert run_once(found.schedule) == ["IllegalAddress"]
    seed = int(found.schedule.removeprefix("random:"))
    assert all(run_once(f"random:{earlier}") == [] for earlier in range(1, seed))
    assert report.finished, "the report is that of the schedule that was asked for"
    assert given["out"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    right, fixed = compiled(LATE.replace("MANY", "1"), "late", "sm_90a")
    report = explore(
        fixed, LaunchSpec(right, spec.grid, spec.block, spec.arguments), operands(), accesses=accesses, arch="sm_90a",
        seeds=8, checks=frozenset(),
    )  # fmt: skip
    assert report.findings == ()


def test_the_command_line_says_how_to_replay(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.cu").write_text(LATE)
    np.save("out.npy", np.zeros(8, np.int32))
    np.save("ticket.npy", np.zeros(1, np.int32))
    command = ["emulate", "late.cu", "-D", "MANY=100", "--grid", "4", "--arg", "inout:out.npy"]
    command += ["--arg", "inout:ticket.npy", "--out-dir", "done"]
    assert run(command) == 0
    assert run([*command, "--explore", "8"]) == 1
    said = capsys.readouterr().out
    replay = said.partition("  replay: ")[2].splitlines()[0].split()
    assert replay[0] == "--schedule"
    assert run([*command, *replay, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["check"], found["schedule"]) == ("addresses", replay[1])
