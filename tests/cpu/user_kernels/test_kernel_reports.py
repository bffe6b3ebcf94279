"""What an emulated call says: findings, counters, lines, and as text of 80 columns."""

import logging
from typing import Any

import numpy as np
import pytest

import warptile as wt
from warptile.errors import DataRace, UninitializedRead

RACY = """#include <stdio.h>
__global__ void turn_around(const float* x, float* y, int n) {
  __shared__ float tile[64];
  if (threadIdx.x < n) tile[threadIdx.x] = x[threadIdx.x];
  BARRIER
  y[threadIdx.x] = tile[63 - threadIdx.x];
  if (threadIdx.x == 0) printf("turned %d around\\n", n);
}
"""


def run(barrier, n=64, **options):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    made = wt.kernel(RACY.replace("BARRIER", barrier), backend="emulator", arch="sm_90a", **options)
    return made[1, 64](x, y, n), y


def test_a_correct_kernel():
    report, y = run("__syncthreads();")
    assert y.tolist() == list(range(63, -1, -1))
    assert report.ok
    assert report.finished
    assert report.raise_if_found(warnings=True) is report
    assert report.output == "turned 64 around\n"
    # 2 warps, a request each; 128 bytes are 4 sectors.
    assert (report.counters["global_load_requests"], report.counters["global_load_sectors"]) == (2, 8)
    line = next(each for each in report.lines if "63 - " in each.text)
    assert (line.file, line.line, line.shared_wavefronts) == ("source.cu", 6, 2)


def test_findings_are_collected_and_raised_on_request(caplog):
    with caplog.at_level(logging.WARNING, logger="warptile"):
        report, _ = run("", n=48)
    assert {each.kind for each in report.findings} == {"DataRace", "UninitializedRead"}
    assert "turn_around: findings: 2 errors; print(report) shows them" in caplog.text
    assert not report.ok
    assert report.finished
    with pytest.raises(DataRace, match="write-read race") as raised:
        report.raise_if_found()
    assert raised.value.location.line == 6
    assert any("put __syncthreads()" in note for note in raised.value.__notes__)
    assert any("UninitializedRead: st.global" in note for note in raised.value.__notes__)


def test_checks_can_be_chosen():
    report, _ = run("", n=48, checks=["races"])
    with pytest.raises(DataRace, match="race on shared memory") as raised:
        report.raise_if_found()
    assert (raised.value.first.line, raised.value.location.line) == (4, 6)
    report, _ = run("", n=48, checks="default", ignore="races")
    with pytest.raises(UninitializedRead):
        report.raise_if_found()
    assert run("", n=64, checks=())[0].ok


@pytest.mark.parametrize("barrier", ["", "__syncthreads();"])
def test_a_report_fits_a_terminal(barrier):
    text = str(run(barrier, n=48)[0])
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("turn_around: grid 1, block 64, emulated as sm_90a")
    assert "source.cu:6" in text
    assert "turned 48 around" in text


def test_a_kernel_that_does_not_end():
    made = wt.kernel("__global__ void out(int* x) {\n x[threadIdx.x] = 1;\n}", backend="emulator")
    x = np.zeros(8, np.int32)
    report = made[1, 32](x)
    assert not report.finished
    assert x.tolist() == [0] * 8
    assert "did not run to its end" in str(report)


VOLATILE = """
__device__ volatile int turn;
__global__ void turns(int* y) {
  if (blockIdx.x == 0) turn = 3;
  else y[0] = turn;
}
"""


def test_volatile_accesses_are_strong_or_weak():
    y = np.zeros(1, np.int32)
    made = wt.kernel(VOLATILE, backend="emulator", arch="sm_90a")
    assert made[2, 1](y).ok
    (found,) = wt.kernel(VOLATILE, backend="emulator", arch="sm_90a", volatile="weak")[2, 1](y).findings
    assert (found.check, found.severity) == ("volatile", "model")
    with wt.emulated(volatile="weak", raises=False) as launches:
        made[2, 1](y)
    assert [each.check for each in launches.reports[0].findings] == ["volatile"]


UNLOCKED = """
__device__ int lock;
__global__ void count(int* x, int* seen) {
  while (atomicCAS(&lock, 0, 1) != 0) {}
  __threadfence();
  seen[blockIdx.x] = x[0];
  __threadfence();
  atomicExch(&lock, 0);
  if (blockIdx.x == 0) x[0] = 1;  // not inside the lock: a race, unless block 0 is the last to take it
}
"""


def test_explore_finds_what_depends_on_the_order_of_blocks_and_says_how_to_replay_it():
    def arrays() -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1, np.int32), np.zeros(2, np.int32)

    def checks(**given: Any) -> list[str]:
        with wt.emulated(raises=False, **given) as launches:
            wt.kernel(UNLOCKED, arch="sm_90a", backend="emulator")[2, 1](*arrays())
        return [each.check for each in launches.reports[0].findings]

    outcomes = {seed: checks(schedule=f"random:{seed}") for seed in range(1, 9)}
    first = min(seed for seed, found in outcomes.items() if found)
    quiet = next(f"random:{seed}" for seed, found in outcomes.items() if not found)
    x, seen = arrays()
    report = wt.kernel(UNLOCKED, arch="sm_90a", backend="emulator", schedule=quiet, explore=8)[2, 1](x, seen)
    (found,) = report.findings
    assert (found.check, found.schedule) == ("races", f"random:{first}")
    assert f'replay: schedule="random:{first}"' in str(report)
    assert (x.tolist(), seen.tolist()) == ([1], [0, 0]), "what the schedule that was asked for computes"
    assert checks(schedule=quiet, explore=8) == ["races"]
    assert checks(schedule=quiet, explore=0) == []
    with pytest.raises(wt.ArgumentError, match="explore: got -1"):
        wt.kernel(UNLOCKED, explore=-1)


def test_a_report_shows_itself_in_a_line():
    report = wt.kernel("__global__ void f(int* x) { x[threadIdx.x] = 1; }", backend="emulator")[1, 8](np.zeros(4, "i4"))
    assert repr(report) == (
        f"<report of f: grid 1, block 8, emulated as {report.arch}; findings: 1 error; print(report) shows it>"
    )
