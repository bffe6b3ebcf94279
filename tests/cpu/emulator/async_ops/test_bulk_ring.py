"""A ring of stages that bulk copies fill: one producer, two warps of consumers, full and empty mbarriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_ops_mbarrier import PREFIX, SCHEDULES

from covering import few
from emulation import run_cuda
from warptile.emulator import select_checks
from warptile.errors import DataRace, Deadlock, EmulationError, MbarrierMisuse, UninitializedRead

RING = (
    PREFIX
    + """
#define LOAD(to, from, bytes, b) \\
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \\
               :: "r"(at(to)), "l"(from), "r"(bytes), "r"(at(b)) : "memory")
__global__ void __launch_bounds__(96) k(int* o, const int* a) {
  __shared__ __align__(128) int s[3][32];
  __shared__ u64 full[3], empty[3];
  int t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 3; ++i) { init(&full[i], 1); init(&empty[i], 64); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (t == 0) {
    #pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      int stage = i % 3, turn = i / 3 % 2;
      EMPTY;
      expect(&full[stage], BYTES);
      LOAD(s[stage], a + 32 * i, 128, &full[stage]);
    }
  } else if (t >= 32) {
    int sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      int stage = i % 3, turn = i / 3 % 2;
      FULL;
      sum += s[stage][31 - t % 32];
      ARRIVE;
    }
    o[t - 32] = sum;
  }
}"""
)

FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory")'

RIGHT = {
    "EMPTY": "wait(&empty[stage], turn ^ 1)", "BYTES": "128", "FULL": "wait(&full[stage], turn)",
    "ARRIVE": f"{FENCE}; arrive(&empty[stage])",
}  # fmt: skip

SUMS = [*(np.arange(256) ** 2).reshape(8, 32).sum(axis=0)[::-1]] * 2


def run(schedule: str, report: bool = False, checks: frozenset[str] | None = None, **replaced: str) -> Any:
    """The sums; with ``report`` also what is found."""
    text = RING
    for name, value in {**RIGHT, **replaced}.items():
        text = text.replace(name, value)
    out, source = np.zeros(64, np.int32), np.arange(256, dtype=np.int32) ** 2
    options = {} if checks is None else {"checks": checks}
    found = run_cuda(text, "k", [out, source], block=96, schedule=schedule, collect=report, **options)
    return (out.tolist(), found.findings) if report else out.tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_ring_of_bulk_copies(schedule: str) -> None:
    assert run(schedule) == SUMS


@pytest.mark.parametrize("schedule", few(SCHEDULES, 1))
@pytest.mark.parametrize(
    ("replaced", "errors"),
    [
        ({"EMPTY": "(void)0"}, (DataRace, UninitializedRead, MbarrierMisuse)),
        ({"EMPTY": "wait(&empty[stage], turn)"}, (Deadlock,)),
        ({"BYTES": "256"}, (Deadlock,)),
        ({"BYTES": "64"}, (Deadlock, MbarrierMisuse, UninitializedRead, DataRace)),
        ({"FULL": "wait(&full[stage], turn ^ 1)"}, (DataRace, UninitializedRead, Deadlock)),
        ({"FULL": "once(&full[stage], turn ^ 1)"}, (DataRace, UninitializedRead)),
        ({"ARRIVE": "if (t % 32 == 0) arrive(&empty[stage])"}, (Deadlock,)),
        ({"ARRIVE": "arrive(&empty[stage]); sum += s[stage][0]"}, (DataRace, UninitializedRead)),
    ],
)
def test_bugs_in_a_ring(replaced: dict[str, str], errors: tuple[type[EmulationError], ...], schedule: str) -> None:
    with pytest.raises(errors):
        run(schedule, **replaced)


PLAIN = "arrive(&empty[stage])"


@pytest.mark.parametrize("schedule", few(SCHEDULES, 1))
@pytest.mark.parametrize("between", ["", "__syncwarp();", "sum *= 1 + s[stage][0] * 0;"])
def test_a_read_that_nobody_waits_for_is_a_model_finding(between: str, schedule: str) -> None:
    arrive = f"{between} {PLAIN}"
    with pytest.raises(DataRace, match="let the memory go without waiting for what it read: the copy may be faster"):
        run(schedule, ARRIVE=arrive)
    out, findings = run(schedule, report=True, ARRIVE=arrive)
    assert out == SUMS
    assert {(each.check, each.severity) for each in findings} == {("unwaited-reads", "model")}
    assert "fence.proxy.async" in findings[0].fix
    for checks in (select_checks(ignore=["unwaited-reads"]), select_checks(model="common")):
        assert run(schedule, report=True, checks=checks, ARRIVE=arrive) == (SUMS, ())


@pytest.mark.parametrize(
    "waits",
    [
        FENCE,
        '__threadfence_block()',
        'asm volatile("bar.sync 1, 64;" ::: "memory")',
        "o[t - 32] = sum",
        "if (__shfl_xor_sync(~0u, sum, 1) == 7) o[t - 32] = 0",
        "if (sum == -1) o[t - 32] = 5",
    ],
)  # fmt: skip
def test_what_waits_for_a_read(waits: str) -> None:
    assert run("latest", ARRIVE=f"{waits}; {PLAIN}") == SUMS
