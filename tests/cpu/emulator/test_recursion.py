"""Functions that call themselves, by name or through pointers: registers, results and local variables of each call."""

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import program
from warptile.errors import UninitializedRead, UnsupportedError
from warptile.launch.params import Scalar

SCHEDULES = ["latest", "random:3"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_of_a_warp_recurse_as_deep_as_each_of_them_has_to(schedule):
    text = """__device__ __noinline__ unsigned fibonacci(unsigned n) {
                return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
              }
              __global__ void k(unsigned* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 11); }"""
    out = np.zeros(64, np.uint32)
    run_cuda(text, "k", [out], block=64, schedule=schedule)
    assert out.tolist() == [(0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55)[lane % 11] for lane in range(64)]


def test_two_functions_call_each_other():
    text = """__device__ __noinline__ bool odd(int n);
              __device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
              __device__ bool odd(int n) { return n == 0 ? false : even(n - 1); }
              __global__ void k(int* out) { out[threadIdx.x] = 2 * even(threadIdx.x) + odd(threadIdx.x); }"""
    out = np.zeros(32, np.int32)
    run_cuda(text, "k", [out])
    assert out.tolist() == [2, 1] * 16


VISIT = """
struct Found { int values[5]; int best; };
__device__ __noinline__ void visit(int depth, Found* parent, const int* in) {
  Found mine;
  for (int i = 0; i < 5; ++i) mine.values[i] = in[(depth * 5 + i + threadIdx.x) % 64];
  mine.best = -1;
  if (depth < 4) {
    visit(depth + 1, &mine, in);
    if (threadIdx.x % 2) visit(depth + 2, &mine, in);
  }
  int best = mine.best;
  for (int i = 0; i < 5; ++i) best = max(best, mine.values[i]);
  parent->best = max(parent->best, best);
  parent->values[depth % 5] += best;
}
__global__ void k(int* out, const int* in) {
  Found root;
  for (int i = 0; i < 5; ++i) root.values[i] = i;
  root.best = 0;
  visit(0, &root, in);
  int sum = root.best;
  for (int i = 0; i < 5; ++i) sum = sum * 7 + root.values[i];
  out[threadIdx.x] = sum;
}
"""


def visited(lane: int, numbers: list[int]) -> int:
    def visit(depth: int, parent: list[int]) -> None:
        mine = [numbers[(depth * 5 + i + lane) % 64] for i in range(5)] + [-1]
        if depth < 4:
            visit(depth + 1, mine)
            if lane % 2:
                visit(depth + 2, mine)
        parent[5] = max(parent[5], *mine)
        parent[depth % 5] += max(mine)

    root = [*range(5), 0]
    visit(0, root)
    total = root[5]
    for value in root[:5]:
        total = total * 7 + value
    return total


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_call_has_local_variables_of_its_own_to_which_others_may_point(schedule):
    numbers = np.random.default_rng(3).integers(0, 100, 64).astype(np.int32)
    out = np.zeros(64, np.int32)
    run_cuda(VISIT, "k", [out, numbers], block=64, schedule=schedule)
    assert out.tolist() == [visited(lane, numbers.tolist()) for lane in range(64)]


def test_local_variables_of_too_many_calls_do_not_fit(monkeypatch):
    monkeypatch.setattr(program, "_MOST_ROOM", 64)
    with pytest.raises(UnsupportedError, match="local variables take more than 64 bytes"):
        run_cuda(VISIT, "k", [np.zeros(64, np.int32), np.zeros(64, np.int32)], block=64)


def test_virtual_functions_and_pointers_lead_back():
    text = """struct Node { __device__ virtual int sum(int x) const = 0; };
              struct Leaf : Node { int v; __device__ int sum(int x) const override { return v * x; } };
              struct Both : Node {
                Node *a, *b;
                __device__ int sum(int x) const override { int left = a->sum(x); return left + 2 * b->sum(x + 1); }
              };
              typedef int (*Function)(int);
              __device__ Function table[1];
              __device__ int factorial(int n) { return n <= 1 ? 1 : n * table[0](n - 1); }
              __global__ void k(int* out, int depth) {
                Leaf leaf;
                Both both[3];
                leaf.v = threadIdx.x;
                Node* node = &leaf;
                for (int i = 0; i < depth; ++i) { both[i].a = &leaf; both[i].b = node; node = &both[i]; }
                if (threadIdx.x == 0) table[0] = factorial;
                __syncwarp();
                out[threadIdx.x] = node->sum(1) + (table[0](threadIdx.x % 8) << 16);
              }"""
    out = np.zeros(32, np.int32)
    run_cuda(text, "k", [out, Scalar("s32", 3)])

    def summed(depth: int, x: int) -> int:
        return x if depth == 0 else x + 2 * summed(depth - 1, x + 1)

    factorials = [1, 1, 2, 6, 24, 120, 720, 5040]
    assert out.tolist() == [lane * summed(3, 1) + (factorials[lane % 8] << 16) for lane in range(32)]


def test_structs_are_passed_and_returned():
    text = """struct Three { float x, y, z; };
              __device__ __noinline__ Three turn(int n, Three a) {
                if (n == 0) return a;
                Three b = turn(n - 1, {a.y, a.z, a.x + 1});
                return {b.x + a.x, b.y * 0.5f, b.z - n};
              }
              __global__ void k(float* out) {
                Three found = turn(threadIdx.x % 5, {1, 2, 3});
                out[threadIdx.x] = found.x + 10 * found.y + 100 * found.z;
              }"""
    out = np.zeros(32, np.float32)
    run_cuda(text, "k", [out])

    def turn(n: int, a: tuple[float, ...]) -> tuple[float, ...]:
        if n == 0:
            return a
        b = turn(n - 1, (a[1], a[2], a[0] + 1))
        return b[0] + a[0], b[1] * 0.5, b[2] - n

    expected = [turn(lane % 5, (1.0, 2.0, 3.0)) for lane in range(32)]
    assert out.tolist() == [x + 10 * y + 100 * z for x, y, z in expected]


def test_an_undefined_value_of_a_caller_stays_undefined():
    text = """__device__ __noinline__ int down(int n, const int* in) {
                __shared__ int tile[32];
                int held = tile[threadIdx.x];
                int below = n > 0 ? down(n - 1, in) : 0;
                if (n == WHO) return held + below;
                return in[n] + below;
              }
              __global__ void k(int* out, const int* in) { out[threadIdx.x] = down(3, in); }"""
    numbers = np.arange(8, dtype=np.int32)
    with pytest.raises(UninitializedRead):
        run_cuda(text.replace("WHO", "2"), "k", [np.zeros(32, np.int32), numbers])
    out = np.zeros(32, np.int32)
    run_cuda(text.replace("WHO", "7"), "k", [out, numbers])
    assert (out == 6).all()


def test_recursion_without_an_end_is_reported():
    text = """__device__ __noinline__ int down(int n, volatile int* on) { return *on ? down(n + 1, on) + 1 : n; }
              __global__ void k(int* out, int* on) { out[0] = down(0, on); }"""
    with pytest.raises(UnsupportedError, match="calls itself more than 4096 times"):
        run_cuda(text, "k", [np.zeros(1, np.int32), np.ones(1, np.int32)], block=1)
