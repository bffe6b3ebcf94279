"""Device code that uses headers of C and C++, as nvcc would compile it with those of the host."""

import numpy as np
import pytest

import warptile as wt
from warptile.codegen.host_headers import HOST_HEADERS, IMPLIED
from warptile.errors import CompileError

F32, F64 = np.finfo(np.float32), np.finfo(np.float64)

VALUES = {
    "INFINITY": np.inf, "-INFINITY": -np.inf, "isnan(NAN)": 1, "isnan((double)NAN)": 1, "HUGE_VAL": np.inf,
    "M_PI": np.pi, "M_E": np.e, "M_SQRT1_2": np.sqrt(0.5), "M_2_SQRTPI": 2 / np.sqrt(np.pi), "M_LN10": np.log(10),
    "M_LOG2E": np.log2(np.e), "M_LOG10E": np.log10(np.e), "M_LN2": np.log(2), "M_1_PI": 1 / np.pi, "M_SQRT2": 2**0.5,
    "M_PI_2": np.pi / 2, "M_PI_4": np.pi / 4, "M_2_PI": 2 / np.pi,
    "FLT_MAX": F32.max, "FLT_MIN": F32.tiny, "FLT_EPSILON": F32.eps, "FLT_TRUE_MIN": F32.smallest_subnormal,
    "DBL_MAX": F64.max, "DBL_MIN": F64.tiny, "DBL_EPSILON": F64.eps, "DBL_TRUE_MIN": F64.smallest_subnormal,
    "INT_MIN": -(2**31), "INT_MAX": 2**31 - 1, "UINT_MAX": 2**32 - 1, "SHRT_MIN": -(2**15), "CHAR_BIT": 8,
    "LLONG_MIN": -(2.0**63), "ULONG_MAX": 2.0**64, "INT32_MIN": -(2**31), "UINT16_MAX": 65535, "SIZE_MAX": 2.0**64,
    "sizeof(intmax_t)": 8, "sizeof(int_least16_t)": 2, "sizeof(std::uint8_t)": 1, "offsetof(Pair, second)": 8,
    "NULL == nullptr": 1, "EXIT_FAILURE": 1,
    "std::numeric_limits<float>::max()": F32.max, "std::numeric_limits<float>::lowest()": -F32.max,
    "std::numeric_limits<double>::epsilon()": F64.eps, "-std::numeric_limits<float>::infinity()": -np.inf,
    "isnan(std::numeric_limits<double>::quiet_NaN())": 1, "std::numeric_limits<double>::infinity()": np.inf,
    "std::numeric_limits<float>::denorm_min()": F32.smallest_subnormal, "std::numeric_limits<int>::min()": -(2**31),
    "std::numeric_limits<unsigned char>::max()": 255, "std::numeric_limits<float>::min()": F32.tiny,
    "std::min(3, 2)": 2, "std::max(2.5, -1.0)": 2.5, "std::clamp(7, 0, 5)": 5, "std::clamp(-7, 0, 5)": 0,
    "std::max({3, 9, 4})": 9, "std::min({3.5, 0.5, 4.0})": 0.5, "third()": 7,
    "std::numeric_limits<float>::digits": 24, "std::numeric_limits<unsigned char>::digits": 8,
    "std::numeric_limits<long>::digits": 63, "std::fminf(1.5f, 2)": 1.5, "copied(-2.0)": -2, "exchanged(4, 5)": 45,
    "sizeof(std::ptrdiff_t)": 8, "std::make_pair(2, 0.5).second": 0.5, "(double)((__int128)1 << 70)": 2.0**70,
    "swapped(3, 4)": 43, "std::abs(-3)": 3, "std::abs(-2.5f)": 2.5, "std::sqrt(2.25f)": 1.5, "std::floor(-0.5)": -1,
    "sqrt(16)": 4, "std::trunc(8u)": 8, "pow(0.5f, 2.0)": 0.25, "pow(3, 4)": 81, "std::fmax(1, 2.5f)": 2.5,
    "fmod(7.5, 2.0f)": 1.5, "atan2(0, -1)": np.pi, "floor(-3)": -3, "lround(7)": 7, "std::isnan(3)": 0,
    "isfinite(3)": 1, "signbit(-2)": 1, "sizeof(exp(1))": 8, "sizeof(sqrt(1.0f))": 4, "sizeof(pow(2.0f, 3))": 4,
    "sizeof(fmin(1.0f, 2.0))": 8,
    "std::fmax(1.0f, 2.0f)": 2, "std::isnan(0.0f)": 0, "std::is_same<int, float>::value": 0,
}  # fmt: skip

FACTS = (
    "sizeof(std::aligned_storage<12, 4>::type) == 12 && alignof(std::aligned_storage_t<12, 4>) == 4",
    "std::is_same_v<std::make_index_sequence<3>, std::index_sequence<0, 1, 2>>", "sizeof(std::array<char, 5>) == 5",
    "std::make_integer_sequence<int, 0>::size() == 0 && std::numeric_limits<int>::is_signed",
    "std::is_same_v<std::remove_cv_t<const volatile int>, int>", "std::is_same_v<std::decay_t<const float&>, float>",
    "std::is_same_v<std::conditional_t<true, int, float>, int>", "std::is_same_v<std::remove_pointer_t<int*>, int>",
    "std::is_same_v<std::conditional_t<false, int, float>, float>", "!std::is_same_v<int, unsigned>",
    "std::is_same_v<std::enable_if_t<true, char>, char>", "std::is_integral_v<const unsigned long long>",
    "!std::is_integral_v<float>", "std::is_floating_point_v<double>", "!std::is_floating_point_v<int>",
    "std::is_signed_v<float> && std::is_signed_v<signed char>", "!std::is_signed_v<unsigned>",
    "!std::is_signed_v<Pair>",
    "std::is_unsigned_v<bool> && !std::is_unsigned_v<int>", "std::is_pointer_v<void*> && !std::is_pointer_v<int>",
    "std::is_trivially_copyable_v<Pair>", "std::is_base_of_v<Base, Derived> && !std::is_base_of_v<Derived, Base>",
    "std::is_enum<Color>::value && !std::is_enum<int>::value", "std::is_class<Pair>::value", "std::is_void_v<void>",
    "std::true_type::value && !std::false_type()", "std::is_reference<int&>::value && !std::is_reference<int>::value",
    "std::is_same_v<decltype(std::declval<int>()), int&&>", "std::is_const<const int>::value",
    "std::is_trivially_copy_assignable_v<Pair> && !std::is_trivially_copy_assignable_v<Kept>",
    "std::is_copy_constructible<Pair>::value && !std::is_copy_constructible<Kept>::value",
    "std::is_trivially_default_constructible<Pair>::value && !std::is_trivially_default_constructible_v<Kept>",
    "std::is_constructible_v<Kept, int> && !std::is_constructible_v<Kept, Pair> && !std::is_assignable_v<int, int>",
    "std::is_nothrow_move_constructible_v<Pair> && std::is_destructible_v<Kept>", "std::is_empty_v<Base>",
    "!std::is_polymorphic_v<Derived> && !std::is_abstract_v<Pair> && !std::is_final_v<Pair> && !std::is_union_v<Pair>",
    "std::is_convertible_v<int, float> && !std::is_convertible_v<Pair, int>", "std::is_standard_layout_v<Pair>",
    "std::is_same_v<std::underlying_type_t<Color>, unsigned>", "std::is_array_v<int[3]> && !std::is_array_v<int*>",
    "std::is_same_v<std::make_unsigned_t<long>, unsigned long>",
    "std::is_same_v<std::make_signed_t<char>, signed char>",
    "std::is_same_v<std::common_type_t<int, float, double>, double>", "std::is_same_v<std::decay_t<int[4]>, int*>",
    "std::is_same_v<std::remove_cvref_t<const int&>, int>", "std::is_same_v<std::remove_all_extents_t<int[2][3]>, int>",
    "std::is_same_v<std::add_pointer_t<int&>, int*>", "std::is_same_v<std::decay_t<int(float)>, int (*)(float)>",
    "std::conjunction_v<std::true_type, std::is_void<void>> && !std::disjunction_v<>",
    "std::negation_v<std::false_type>",
    "std::is_same_v<std::invoke_result_t<std::plus<>, int, double>, double>", "std::is_scalar_v<int*>",
    "std::is_lvalue_reference_v<int&> && std::is_rvalue_reference_v<int&&>",
    "std::is_null_pointer_v<decltype(nullptr)>",
    "std::plus<int>()(2, 3) == 5 && std::less<>()(1, 2.5) && !std::logical_not<bool>()(true)",
    "std::negate<float>()(2) == -2 && std::bit_xor<int>()(6, 3) == 5 && std::not_equal_to<int>()(1, 2)",
    "std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::max_digits10 == 17",
    "std::numeric_limits<float>::max_digits10 == 9 && std::numeric_limits<double>::min_exponent == -1021",
    "std::numeric_limits<int>::digits10 == 9 && std::numeric_limits<long>::digits10 == 18",
    "std::numeric_limits<bool>::digits == 1 && !std::numeric_limits<bool>::is_modulo",
    "std::numeric_limits<unsigned char>::digits == 8 && std::numeric_limits<int>::epsilon() == 0",
    "!std::numeric_limits<Pair>::is_specialized && std::numeric_limits<long>::is_integer",
    "std::numeric_limits<double>::max() == DBL_MAX && std::numeric_limits<long>::max() == LONG_MAX",
)  # fmt: skip

DECLARED = """
struct Pair { double first; float second; };
struct Kept {
  int value;
  __device__ Kept(int value) : value(value) {}
  Kept(const Kept&) = delete;
};
struct Base {};
struct Derived : Base {};
enum Color { RED };
__device__ int third() {
  std::array<int, 3> held{};
  held.fill(2);
  held[2] = 3;
  int sum = 0;
  for (int each : held) sum += each;
  return sum;
}
__device__ double copied(double x) { double y; std::memcpy(&y, &x, sizeof(x)); return y; }
__device__ int exchanged(int a, int b) { int held = std::exchange(a, b); return 10 * held + a; }
__device__ int swapped(int a, int b) { std::swap(a, b); return 10 * a + b; }
"""


def test_macros_types_and_functions_are_those_of_the_standards():
    names = [name for name, text in HOST_HEADERS.items() if b"cuda" not in text]
    source = "".join(f"#include <{name}>\n" for name in sorted(names)) + DECLARED
    source += "".join(f"static_assert({fact});\n" for fact in FACTS)
    source += "__global__ void k(double* y) {\n"
    source += "".join(f"y[{i}] = (double)({text});\n" for i, text in enumerate(VALUES)) + "}\n"
    y = np.zeros(len(VALUES))
    assert wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y).ok
    assert dict(zip(VALUES, y.tolist(), strict=True)) == {name: float(value) for name, value in VALUES.items()}


def test_what_cuda_includes_by_itself_takes_no_include():
    y = np.zeros(3, np.float32)
    source = "__global__ void k(float* y) { y[0] = M_PI; y[1] = -INFINITY; y[2] = std::min(INT_MAX, 4); }"
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y)
    assert y.tolist() == [np.float32(np.pi), -np.inf, 4]


def test_a_file_may_define_such_a_macro_before_or_after():
    source = "#define FLT_MAX 5\n#include <float.h>\n__global__ void k(float* y) { y[0] = FLT_MAX; }"
    y = np.zeros(1, np.float32)
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y)
    assert y[0] == 5


def test_headers_of_libraries_bring_the_types_of_their_functions():
    source = "#include <cublas_v2.h>\n__global__ void k(__nv_bfloat16* y, const half* x) { y[0] = __half2float(x[0]); }"
    y, x = np.zeros(1, np.uint16), np.ones(1, np.float16)
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y, x)
    assert y[0] == 0x3F80


def test_integer_types_may_be_declared_again_as_libcu_does():
    source = """
    #include <cstdint>
    using int_fast16_t = int16_t; using uint_fast32_t = uint32_t;
    using int_least64_t = int64_t; using intmax_t = int64_t;
    __global__ void k(intmax_t* y) { y[0] = INT64_MAX; }
    """
    y = np.zeros(1, np.int64)
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y)
    assert y[0] == 2**63 - 1


def test_headers_of_cuda_are_never_taken_for_host_code(tmp_path):
    text = "#pragma once\nnamespace cuda { inline int broken() { return missing; } }\n"
    for name in ("nv/target", "cuda/std/own.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = "#include <cuda/std/own.h>\n__global__ void k(int* y) { y[0] = 1; }"
    with pytest.raises(
        CompileError, match=r"^source\.cu for sm_90a: own\.h\(2\): identifier \"missing\" is undefined\n"
    ):
        wt.kernel(source, include_folders=[tmp_path], backend="emulator", arch="sm_90a")[1, 1](np.zeros(1, np.int32))


def test_members_for_the_host_of_a_class_that_the_device_uses():
    source = """
    struct Divisor {
      __host__ Divisor(int by) : by(by) {}
      __host__ __device__ int of(int x) const { return x / by; }
      __device__ __host__ int by_twice() const { return 2 * by; }
      int by;
    };
    __global__ void k(int* y, Divisor divisor) { y[0] = divisor.of(y[0]) + divisor.by_twice(); }
    """
    y = np.full(1, 33, np.int32)
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y, wt.struct(by=np.int32(4)))
    assert y[0] == 33 // 4 + 8


def test_headers_of_torch_bring_16_bit_types_and_those_of_the_standard():
    source = """
    #include "ATen/ATen.h"
    #include <torch/extension.h>
    #include <ATen/cuda/Atomic.cuh>
    __global__ void k(float* y, const __half2* x) {
      static_assert(std::is_same_v<decltype(y), float*> && std::numeric_limits<float>::digits == 24);
      y[0] = __low2float(x[0]);
    }
    torch::Tensor launch(torch::Tensor x) { AT_ASSERT(x.is_cuda()); return x; }
    """
    y = np.zeros(1, np.float32)
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y, np.array([3, 4], np.float16))
    assert y[0] == 3


@pytest.mark.parametrize("word", ["asm", "__asm__", "__asm volatile", "__asm__ __volatile__"])
def test_words_for_inline_ptx(word):
    source = f'__global__ void k(int* y) {{ int x; {word}("mov.u32 %0, 5;" : "=r"(x)); y[0] = x; }}'
    y = np.zeros(1, np.int32)
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y)
    assert y[0] == 5


GNU = {
    "__builtin_popcount(x + 0xff)": 8, "__builtin_popcountll(-1ll << 4)": 60, "__builtin_clz(1u << 20)": 11,
    "__builtin_clzl(x + 1ul)": 63, "__alignof(double)": 8, "sizeof(Tagged)": 4, "doubled(x + 3)": 6, "int(low)": -1,
    "sizeof(u_int64_t) + sizeof(ssize_t)": 16, "u_int8_t(300)": 44,
}  # fmt: skip


def test_words_and_functions_of_gnu_that_nvcc_knows():
    source = """
    struct Tagged { __extension__ union { struct { short a, b; } both; int word; }; };
    __device__ int doubled(const int& x) { typeof(x) y = x; __typeof__(y + 1) sum = 0; sum += y + x; return sum; }
    __global__ void k(double* y) {
      register int x = y[0];
      __const int one = 1;
      __signed__ char low = x - one;
      asm __volatile("" ::: "memory");
    """
    source += "".join(f"y[{i}] = {expression};\n" for i, expression in enumerate(GNU)) + "}"
    y = np.zeros(len(GNU))
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y)
    assert dict(zip(GNU, y.tolist(), strict=True)) == GNU


@pytest.mark.parametrize("header", ["cuda_runtime.h", "cuda_device_runtime_api.h"])
def test_functions_of_dependent_launches_take_no_include(header):
    """The second header declares them itself."""
    source = f"""#include <{header}>
    __global__ void k(int* y) {{
    #if __CUDA_ARCH__ >= 900
      cudaTriggerProgrammaticLaunchCompletion();
      cudaGridDependencySynchronize();
    #endif
      y[0] = __CUDA_ARCH__;
    }}"""
    for arch, counted in ("sm_90a", 900), ("sm_80", 800):
        y = np.zeros(1, np.int32)
        assert wt.kernel(source, backend="emulator", arch=arch)[1, 1](y).ok
        assert y[0] == counted


@pytest.mark.parametrize("include", ["<stdio.h>", '"assert.h"', "<cassert>"])
def test_others_are_empty(include):
    source = f"#include {include}\n__global__ void k(int* y) {{ assert(y != nullptr); y[0] = 1; }}"
    y = np.zeros(1, np.int32)
    assert wt.kernel(source, backend="emulator", arch="sm_90a")[1, 1](y).ok
    assert y[0] == 1


def test_what_is_implied_comes_once():
    assert HOST_HEADERS["math.h"] == HOST_HEADERS["cmath"] in IMPLIED
    assert all(text.startswith(b"#ifndef WARPTILE_HOST_HEADER_") for text in HOST_HEADERS.values() if text)


def test_cub_is_what_blocks_and_warps_use_of_it(tmp_path):
    for name, text in {
        "cub.cuh": "#error not with NVRTC",
        "block/block_two.cuh": "namespace cub { __device__ inline int two() { return 2; } }",
        "warp/warp_three.cuh": "namespace cub { __device__ inline int three() { return 3; } }",
        "device/device_four.cuh": "#error of the host",
    }.items():
        (tmp_path / "cub" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cub" / name).write_text(text)
    source = "#include <cub/cub.cuh>\n__global__ void k(int* y) { y[0] = 10 * cub::two() + cub::three(); }"
    y = np.zeros(1, np.int32)
    wt.kernel(source, include_folders=[tmp_path], backend="emulator", arch="sm_90a")[1, 1](y)
    assert y[0] == 23
