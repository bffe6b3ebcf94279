"""Kernels of torch's extensions, compiled where torch is not installed."""

import numpy as np
import pytest

import warptile as wt
from warptile.codegen import cuda_file
from warptile.codegen.host_code import lines_with_scopes
from warptile.errors import DTypeError

INCLUDES = "#include <torch/extension.h>\n#include <ATen/cuda/Atomic.cuh>\n#include <c10/util/complex.h>\n"


def run(source, name, grid, block, *arguments):
    report = wt.kernel(INCLUDES + source, name, backend="emulator", arch="sm_90a")[grid, block](*arguments)
    assert report.ok
    return report


def accessor(array, index):
    strides = [index(stride // array.itemsize) for stride in array.strides]
    return wt.struct(data_=array, sizes_=[index(size) for size in array.shape], strides_=strides)


@pytest.mark.parametrize(("bits", "index"), [(32, np.int32), (64, np.int64)])
def test_accessors_of_tensors(bits, index):
    source = f"""
    template <typename T>
    __global__ void k(torch::PackedTensorAccessor{bits}<T, 3, torch::RestrictPtrTraits> y,
                      const at::PackedTensorAccessor{bits}<T, 2> x) {{
      for (int i = 0; i < y.size(0); ++i)
        for (int j = 0; j < y.size(1); ++j) {{
          auto row = y[i][j];
          row[threadIdx.x] = 10 * x[j][threadIdx.x] + i + row.size(0) + y.stride(1);
        }}
    }}
    at::Tensor host(at::Tensor x) {{ return x; }}
    """
    x, y = np.arange(12, dtype=np.float64).reshape(4, 3).T, np.zeros((2, 3, 4))
    run(source, "k<double>", 1, 4, accessor(y, index), accessor(x, index))
    assert (y == 10 * x + np.arange(2).reshape(2, 1, 1) + 4 + 4).all()


def test_16_bit_types_and_what_they_add_up_in():
    source = """
    template <typename T> __global__ void k(T* y, const T* x) {
      static_assert(std::is_same_v<at::acc_type<T, true>, float> && std::is_same_v<at::opmath_type<T>, float>);
      static_assert(std::is_same_v<at::acc_type<double, true>, double> && std::is_same_v<at::opmath_type<int>, int>);
      static_assert(std::is_same_v<at::acc_type<short, true>, int64_t> && std::is_same_v<at::Half, c10::Half>);
      static_assert(std::is_same_v<decltype(x[0] * x[1]), T> && std::is_same_v<decltype(2.0f / x[0]), float>);
      at::acc_type<T, true> sum = 0;
      CUDA_KERNEL_LOOP(i, 8) sum += x[i];
      sum += WARP_SHFL_XOR(sum, 1) + WARP_SHFL_DOWN(sum, 2, 4);
      if (WARP_BALLOT(threadIdx.x < 3) == 7 && threadIdx.x == 0) y[0] = sum + at::ceil_div(7, 2);
    }
    """
    x, y = np.arange(8, dtype=np.float16), np.zeros(1, np.float16)
    run(source, "k<c10::Half>", 1, 32, y, x)
    assert y[0] == 0 + 1 + 2 + 4
    x, y = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), np.zeros(1, np.uint16)
    run(source, "k<at::BFloat16>", 1, 32, y, x)
    assert y[0] == 0x40E0


def test_arithmetic_of_16_bit_types():
    source = """
    __global__ void k(c10::Half* y, const c10::Half* x) {
      c10::Half a = x[0], b = __ldg(x + 1);
      y[0] = a + b, y[1] = a - 2, y[2] = 3 * b, y[3] = a / b, y[4] = -a, y[5] = 0.5 * a;
      y[6] = a > b ? std::numeric_limits<c10::Half>::lowest() : std::numeric_limits<at::Half>::infinity();
      y[7] += b, y[8] = __half2float(a) + fmaxf(a, b), y[9] = c10::Half(0x3C00, c10::Half::from_bits());
      y[10] = (a == a) + (a < 0.5f) + (b >= 2.0), y[11] = static_cast<int>(b);
    }
    """
    a, b = np.float16(-3), np.float16(1.75)
    y = np.zeros(12, np.float16)
    run(source, "k", 1, 1, y, np.array([a, b]))
    expected = [a + b, a - 2, 3 * b, a / b, -a, a / 2, np.inf, b, a + b, 1, 2, 1]
    assert y.tolist() == [float(each) for each in expected]
    with pytest.raises(DTypeError, match=r"c10::Half|f16"):
        run(source, "k", 1, 1, y.astype(np.float32), y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.float16])
def test_atomic_sums(dtype):
    names = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64_t", "float16": "at::Half"}
    source = """
    template <typename T> C10_LAUNCH_BOUNDS_1(64) __global__ void k(T* y) {
      gpuAtomicAdd(y, T(1));
      gpuAtomicAddNoReturn(y + 1, T(2));
      at::native::fastAtomicAdd(y, 2, 3, T(3), true);
    }
    """
    y = np.array([-100, 0, 0], dtype)
    if dtype is np.int64:
        source = source.replace("at::native::fastAtomicAdd(y, 2, 3, T(3), true);", "gpuAtomicAdd(y + 2, T(3));")
    run(source, f"k<{names[np.dtype(dtype).name]}>", 1, 64, y)
    assert y.tolist() == [-36, 128, 192]


def test_complex_numbers():
    source = """
    __global__ void k(c10::complex<float>* y, const c10::complex<float>* x) {
      c10::complex<float> a = x[0], b = x[1];
      y[0] = a + b, y[1] = a - b, y[2] = a * b, y[3] = a / b, y[4] = std::conj(a), y[5] = 2.0f * -a;
      y[6] = c10::complex<float>(std::real(a), std::imag(b)), y[7] += b;
      gpuAtomicAdd(y + 8, a);
      y[9] = a == b || a != a;
    }
    """
    a, b = 3 - 4j, 1 + 2j
    x, y = np.array([a, b], np.complex64), np.zeros(10, np.complex64)
    run(source, "k", 1, 1, y, x)
    expected = [a + b, a - b, a * b, a / b, a.conjugate(), -2 * a, 3 + 2j, b, a, 0]
    assert np.allclose(y, expected, rtol=1e-6)


def test_places_of_elements_by_their_number():
    source = """
    template <int Dims> __global__ void k(int* y, const at::cuda::detail::TensorInfo<int, int> info) {
      y[threadIdx.x] = info.data[at::cuda::detail::IndexToOffset<int, int, Dims>::get(threadIdx.x, info)];
    }
    void host() { auto stream = at::cuda::getCurrentCUDAStream(); }
    """
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4).transpose(2, 0, 1)
    sizes, strides = np.zeros((2, 25), np.int32)
    sizes[:3], strides[:3] = x.shape, np.array(x.strides) // 4
    for dims in (3, -1):
        y = np.zeros(24, np.int32)
        info = wt.struct(data=x, sizes=list(sizes), strides=list(strides), dims=np.int32(3))
        run(source, f"k<{dims}>", 1, 24, y, info)
        assert (y.reshape(x.shape) == x).all()


def test_host_code_of_torch_is_left_out_at_once(monkeypatch):
    passes, run_program = [], cuda_file.run_program

    def counted(*arguments, **options):
        passes.append(1)
        return run_program(*arguments, **options)

    monkeypatch.setattr(cuda_file, "run_program", counted)
    functions = "".join(f"at::Tensor f{i}(const at::Tensor& x) {{ return at::zeros_like(x); }}\n" for i in range(8))
    y = np.zeros(1, np.int32)
    run(f"{functions}__global__ void k(int* y) {{ y[0] = 7; }}", "k", 1, 1, y)
    assert y[0] == 7
    assert len(passes) == 3  # one for the headers, one that shows what the device does not have


def test_members_that_a_namespace_lacks_are_looked_for_with_it():
    text = "at::Tensor f();\nTensor g();\nat :: Tensors h();\nother::Thing i(); // at::Tensor\nint other;\n"
    assert lines_with_scopes(text, {"at::Tensor": "no member", "other": "no scope"}) == {
        1: "no member", 4: "no scope",
    }  # fmt: skip
