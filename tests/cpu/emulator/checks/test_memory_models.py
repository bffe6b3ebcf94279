"""``model="common"`` lets pass what the PTX memory model does not promise and common code relies on; and no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import EmulationReport, select_checks
from warptile.errors import DataRace, UnsupportedError

CAS_ADD = """
__device__ double add(double* address, double value) {
  auto* word = reinterpret_cast<unsigned long long*>(address);
  unsigned long long old = *word, assumed;
  do {
    assumed = old;
    old = atomicCAS(word, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
  } while (assumed != old);
  return __longlong_as_double(old);
}
"""


@dataclass(frozen=True)
class Relying:
    """A kernel of 64 threads in two blocks that relies on ``check``; with ``wrong`` for ``right`` it is a bug."""

    check: str
    text: str
    right: str = ""
    wrong: str = ""

    def run(self, body: str, model: str = "ptx", volatile: str = "strong") -> EmulationReport:
        return run_cuda(
            self.text.replace("@", body), "k", [np.zeros(64, np.int32), np.zeros(1)], grid=2, block=64,
            outputs={0: False, 1: False}, checks=select_checks(model=model, volatile=volatile), collect=True,
        )  # fmt: skip


CASES = {
    "a shuffle": Relying(
        "warp-order",
        """__global__ void k(int* o, double*) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;
             int x = @;
             if (blockIdx.x == 0) o[threadIdx.x] = s[threadIdx.x ^ 1] + x;
           }""",
        "__shfl_xor_sync(~0u, threadIdx.x, 1)", "threadIdx.x ^ 1",
    ),
    "a vote, and a fence in one lane": Relying(
        "warp-order",
        """__device__ int flag, data[32];
           __global__ void k(int* o, double*) {
             if (threadIdx.x >= 32) return;
             if (blockIdx.x == 0) {
               data[threadIdx.x] = threadIdx.x;
               if (@ && threadIdx.x == 0) { __threadfence(); atomicExch(&flag, 1); }
             } else {
               while (atomicAdd(&flag, 0) == 0) {}
               __threadfence();
               o[threadIdx.x] = data[threadIdx.x];
             }
           }""",
        "__any_sync(~0u, threadIdx.x < 40)", "(threadIdx.x < 40)",
    ),
    "the guide's atomicAdd": Relying(
        "cas-read",
        CAS_ADD + "__global__ void k(int* o, double* sum) { @; }",
        "add(sum, 1.0)", "add(sum, 1.0); if (threadIdx.x == 5 && blockIdx.x == 1) o[0] = *sum",
    ),
    "a test before a compare-and-swap": Relying(
        "cas-read",
        """__global__ void k(int* o, double*) {
             int* word = o + threadIdx.x % 8;
             @
           }""",
        "if (*word == 0 && atomicCAS(word, 0, 1) == 0) atomicAdd(o + 32, 1);",
        "int old = *word; if (old == 0 && atomicCAS(word, 0, 1) == 0) o[40 + threadIdx.x % 8] = old;"
        "if (blockIdx.x == 1) o[63] = *word;",
    ),
    "a test before an atomic minimum": Relying(
        "cas-read",
        """__global__ void k(int* o, double*) {
             const int mine = -1 - threadIdx.x - 64 * blockIdx.x;
             @
           }""",
        "if (*o > mine) atomicMin(o, mine);",
        "if (*o > mine) atomicAdd(o, mine);",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_model_decides_whether_it_is_reported(name: str) -> None:
    case = CASES[name]
    found = case.run(case.right).findings
    assert found
    assert {each.check for each in found} == {case.check}
    assert {each.severity for each in found} == {"model"}
    assert all(each.fails for each in found)
    assert case.run(case.right, "common").findings == ()


@pytest.mark.parametrize("name", CASES)
def test_what_nothing_orders_is_an_error_in_both(name: str) -> None:
    case = CASES[name]
    assert [each.severity for each in case.run(case.wrong, "common").findings] == ["error"]
    assert "error" in [each.severity for each in case.run(case.wrong).findings]


def test_one_check_of_the_model_can_be_left_out_alone() -> None:
    case = CASES["a shuffle"]
    text = case.text.replace("@", case.right)
    arguments = [np.zeros(64, np.int32), np.zeros(1)]
    run_cuda(text, "k", arguments, block=64, outputs={0: False}, checks=select_checks(ignore=["warp-order"]))
    with pytest.raises(DataRace, match=r"no __syncwarp\(\)"):
        run_cuda(text, "k", arguments, block=64, outputs={0: False}, checks=select_checks(ignore=["cas-read"]))


VOLATILE = """__device__ volatile int turn;
              __global__ void k(int* o, double*) {
                if (threadIdx.x) return;
                if (blockIdx.x == 0) turn = 3;
                else o[0] = turn;
              }"""


def test_volatile_accesses_are_strong_or_weak() -> None:
    case = Relying("volatile", VOLATILE)
    assert case.run("").findings == ()
    (found,) = case.run("", volatile="weak").findings
    assert (found.check, found.severity) == ("volatile", "model")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "x86"}, "ptx or common"),
        ({"volatile": "maybe"}, "strong or weak"),
        ({"checks": ["race"]}, r"^checks: got 'race'; there are .*, such as checks=\['races'\]$"),
        ({"ignore": ["race"]}, r"^ignore: got 'race'; there are .*, such as ignore=\['races'\]$"),
        ({"ignore": ["deadlock"]}, "^ignore: deadlock is always checked"),
    ],
)
def test_options_that_do_not_exist(options: dict[str, object], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        select_checks(**options)
