"""Users' kernels give the same on a GPU and on the emulator, whatever they are given."""

import ctypes

import numpy as np
import pytest

import warptile as wt

SOURCE = r"""
struct Line { const float* x; float* y; float slope; };
template <typename T> __global__ void scale(T* x, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * by;
}
__global__ void line(const __grid_constant__ Line p, int n) {
  int i = threadIdx.x;
  if (i < n) p.y[i] = p.slope * p.x[i];
}
struct alignas(64) CUtensorMap { char raw[128]; };
__global__ void box(const __grid_constant__ CUtensorMap map, float* d) {
  __shared__ alignas(128) float tile[8 * 16];
  __shared__ alignas(8) unsigned long long bar;
  unsigned at = __cvta_generic_to_shared(&bar), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(at));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],"
                 " [%1, {%2, %3}], [%4];" :: "r"(to), "l"(&map), "r"(4), "r"(2), "r"(at) : "memory");
  }
  __syncthreads();
  asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again;}" :: "r"(at));
  d[threadIdx.x] = tile[threadIdx.x];
}
"""


def launch(name, backend, grid, block, make, **options):
    """What the arrays hold after a launch of a kernel on a backend."""
    arrays, arguments = make()
    report = wt.kernel(SOURCE, name, backend=backend, **options)[grid, block](*arguments)
    assert (report is None) == (backend == "gpu")
    return [array.tolist() for array in arrays]


def scaled():
    x = np.arange(1000, dtype=np.float32)[3:990:2]
    return [x], (x, 2.5, 400)


def in_structs():
    class Line(ctypes.Structure):
        _fields_ = (("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("slope", ctypes.c_float))

    x, y = np.arange(64, dtype=np.float32), np.zeros(65, np.float32)[1:]
    return [x, y], (wt.struct(Line(0, 0, 3.0), x=x, y=y), 50)


def boxed():
    x, d = np.arange(20 * 32, dtype=np.float32).reshape(20, 32), np.zeros(128, np.float32)
    return [d], (wt.tensor_map(x, box=(8, 16)), d)


@pytest.mark.parametrize(
    ("name", "grid", "block", "make", "options"),
    [
        ("scale<float>", 8, 128, scaled, {}),
        ("line", 1, 64, in_structs, {}),
        ("box", 1, 128, boxed, {"arch": "sm_90a"}),
    ],
    ids=["scalars", "structs", "tensor map"],
)
def test_both_backends_agree(name, grid, block, make, options):
    assert launch(name, "gpu", grid, block, make, **options) == launch(name, "emulator", grid, block, make, **options)


def test_tensors_on_the_gpu_are_written_in_place():
    torch = pytest.importorskip("torch")
    x = torch.arange(100, device="cuda", dtype=torch.float32)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert wt.kernel(SOURCE, "scale<float>")[1, 128](x[10:], 2.0, 80) is None
        torch.cuda.current_stream().synchronize()
    assert x.tolist() == [*range(10), *range(20, 180, 2), *range(90, 100)]
