"""alloca, stacksave, stackrestore: memory of a thread until the function returns."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import EmulationReport
from warptile.errors import UninitializedRead, UnsupportedError
from warptile.launch.params import Scalar

TAKE = """
__device__ __forceinline__ int* take(int words) {
  unsigned long long at, size = words * 4ull;
  asm volatile("alloca.u64 %0, %1, 16;\\n\\tcvta.local.u64 %0, %0;" : "=l"(at) : "l"(size) : "memory");
  return reinterpret_cast<int*>(at);
}
__device__ __noinline__ int sum(int n, int t) {
  int* p = take(n), s = 0;
  for (int i = 0; i < n; ++i) p[i] = i + t;
  for (int i = 0; i < n; ++i) s += p[(i * 7 + t) % n];
  return s;
}
__device__ __noinline__ int down(int n, int t) {
  int* p = take(n + 1);
  p[n] = t;
  const int below = n ? down(n - 1, t + 1) : 0;
  return below + p[n];
}
"""


def run(body: str, n: int, **options: object) -> tuple[np.ndarray, EmulationReport]:
    out = np.zeros(32, np.int32)
    text = f"{TAKE}__global__ void k(int* out, int n) {{ const int t = threadIdx.x; {body} }}"
    return out, run_cuda(text, "k", [out, Scalar("s32", n)], outputs={0: False}, **options)


@pytest.mark.parametrize("schedule", ["latest", "random:3"])
def test_each_thread_takes_as_much_as_it_asks_for(schedule: str) -> None:
    body = "int* p = take(t + 1); for (int i = 0; i <= t; ++i) p[i] = i * t; int s = 0;"
    out, _ = run(
        body + "for (int i = 0; i <= t; ++i) s += p[t - i] + (t & 1 ? 1 : 0); out[t] = s;", 0, schedule=schedule
    )
    assert out.tolist() == [t * t * (t + 1) // 2 + (t + 1 if t & 1 else 0) for t in range(32)]


def test_a_function_gives_back_what_it_has_taken() -> None:
    """A thread has 16 KiB; the calls take 32 KiB one after the other."""
    out, _ = run("int s = 0; for (int i = 0; i < n; ++i) s += sum(128 + t, i); out[t] = s;", 64)
    assert out[3] == sum(sum((j * 7 + i) % 131 + i for j in range(131)) for i in range(64))


def test_activations_of_a_recursive_function_have_their_own() -> None:
    body = "out[t] = down(t % 7, 1) + down(3, 5);"
    out, _ = run(body, 0)
    assert out.tolist() == [sum(range(1, t % 7 + 2)) + 26 for t in range(32)]


def test_what_is_taken_again_after_a_restore_holds_nothing() -> None:
    take_twice = """unsigned long long top; asm volatile("stacksave.u64 %0;" : "=l"(top) :: "memory");
      int* p = take(4); p[t & 3] = 5; asm volatile("stackrestore.u64 %0;" :: "l"(top) : "memory");
      int* q = take(4); """
    out, _ = run(take_twice + "q[0] = p == q; out[t] = q[0];", 0)
    assert out.tolist() == [1] * 32
    with pytest.raises(UninitializedRead, match=r"read at .* from local memory"):
        run(take_twice + "out[t] = q[t & 3];", 0)


def test_there_is_so_much_for_a_thread() -> None:
    with pytest.raises(UnsupportedError, match="alloca takes 20000 bytes; a thread has 16384"):
        run("out[t] = take(n)[0];", 5000)
