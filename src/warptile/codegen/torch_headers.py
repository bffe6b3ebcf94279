"""What NVRTC is given for headers of torch that are found nowhere: what kernels of torch's extensions use of them.

Names and layouts are torch's. All else, such as ``at::Tensor``, is host code (`warptile.codegen.host_code`).
"""

from __future__ import annotations

TORCH = ("ATen/", "c10/", "torch/")
"""What the names of torch's headers begin with."""

_INCLUDED = ("algorithm", "array", "cstdint", "cstring", "cuda_bf16.h", "cuda_fp16.h", "limits", "type_traits")


def _type_of_16_bits(name: str, cuda: str, infinity: int, largest: int) -> str:
    """A type of 16 bits that is CUDA's type ``cuda`` in memory. As torch's, and other than CUDA's, it becomes a float
    wherever a number of a built-in type is wanted, and products of two are of the type."""
    mixed = [(name, name)]
    for other in ("int", "float", "double"):
        mixed += (name, other), (other, name)
    operators = ""
    for sign in (*"+-*/", "<", "<=", ">", ">=", "==", "!="):
        for left, right in mixed:
            wide = next((each for each in (left, right) if each in ("float", "double")), "float")
            result = "bool" if sign[0] in "<>=!" else wide if wide in (left, right) else name
            operators += f"""
  friend __host__ __device__ {result} operator{sign}({left} a, {right} b) {{
    return {result}(({wide})a {sign} ({wide})b);
  }}"""
    for sign in "+-*/":
        operators += f"""
  __host__ __device__ {name}& operator{sign}=({name} b) {{ return *this = *this {sign} b; }}"""
    return f"""
namespace c10 {{
struct alignas(2) {name} {{
  unsigned short x;
  struct from_bits_t {{}};
  static __host__ __device__ constexpr from_bits_t from_bits() {{ return {{}}; }}
  {name}() = default;
  __host__ __device__ constexpr {name}(unsigned short bits, from_bits_t) : x(bits) {{}}
  __host__ __device__ {name}({cuda} value) : x(__builtin_bit_cast(unsigned short, value)) {{}}
  __host__ __device__ {name}(float value) : {name}({cuda}(value)) {{}}
  __host__ __device__ operator float() const {{ return (float)__builtin_bit_cast({cuda}, x); }}
  __host__ __device__ operator {cuda}() const {{ return __builtin_bit_cast({cuda}, x); }}
  __host__ __device__ {name} operator-() const {{ return {name}(x ^ 0x8000, from_bits()); }}{operators}
}};
}}
namespace std {{
template <> struct numeric_limits<c10::{name}> {{
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;
  static constexpr c10::{name} max() {{ return c10::{name}({largest}, c10::{name}::from_bits()); }}
  static constexpr c10::{name} lowest() {{ return c10::{name}({largest | 0x8000}, c10::{name}::from_bits()); }}
  static constexpr c10::{name} infinity() {{ return c10::{name}({infinity}, c10::{name}::from_bits()); }}
}};
}}
__device__ inline c10::{name} __ldg(const c10::{name}* p) {{ return __ldg((const {cuda}*)p); }}
__device__ inline c10::{name} atomicAdd(c10::{name}* p, c10::{name} value) {{
  return atomicAdd(({cuda}*)p, ({cuda})value);
}}
"""


_SIXTEEN_BITS = _type_of_16_bits("Half", "__half", 0x7C00, 0x7BFF) + _type_of_16_bits(
    "BFloat16", "__nv_bfloat16", 0x7F80, 0x7F7F
)

_TYPES = """
namespace c10 {
template <typename T> struct alignas(2 * sizeof(T)) complex {
  typedef T value_type;
  T real_ = T(0);
  T imag_ = T(0);
  constexpr complex() = default;
  __host__ __device__ constexpr complex(T real, T imag = T(0)) : real_(real), imag_(imag) {}
  __host__ __device__ constexpr T real() const { return real_; }
  __host__ __device__ constexpr T imag() const { return imag_; }
  __host__ __device__ constexpr complex& operator+=(complex b) { return *this = *this + b; }
  __host__ __device__ constexpr complex& operator-=(complex b) { return *this = *this - b; }
  __host__ __device__ constexpr complex& operator*=(complex b) { return *this = *this * b; }
  __host__ __device__ constexpr complex& operator/=(complex b) { return *this = *this / b; }
  __host__ __device__ constexpr complex operator-() const { return complex(-real_, -imag_); }
  friend __host__ __device__ constexpr complex operator+(complex a, complex b) {
    return complex(a.real_ + b.real_, a.imag_ + b.imag_);
  }
  friend __host__ __device__ constexpr complex operator-(complex a, complex b) {
    return complex(a.real_ - b.real_, a.imag_ - b.imag_);
  }
  friend __host__ __device__ constexpr complex operator*(complex a, complex b) {
    return complex(a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_);
  }
  friend __host__ __device__ constexpr complex operator/(complex a, complex b) {
    const T norm = b.real_ * b.real_ + b.imag_ * b.imag_;
    return complex((a.real_ * b.real_ + a.imag_ * b.imag_) / norm, (a.imag_ * b.real_ - a.real_ * b.imag_) / norm);
  }
  friend __host__ __device__ constexpr bool operator==(complex a, complex b) {
    return a.real_ == b.real_ && a.imag_ == b.imag_;
  }
  friend __host__ __device__ constexpr bool operator!=(complex a, complex b) { return !(a == b); }
};
template <typename T> struct scalar_value_type { typedef T type; };
template <typename T> struct scalar_value_type<complex<T>> { typedef T type; };
}
namespace std {
template <typename T> __host__ __device__ constexpr T real(const c10::complex<T>& z) { return z.real_; }
template <typename T> __host__ __device__ constexpr T imag(const c10::complex<T>& z) { return z.imag_; }
template <typename T> __host__ __device__ constexpr c10::complex<T> conj(const c10::complex<T>& z) {
  return c10::complex<T>(z.real_, -z.imag_);
}
}
namespace at {
using c10::BFloat16; using c10::complex; using c10::Half;
template <typename T> struct OpMathType { typedef T type; };
template <> struct OpMathType<Half> { typedef float type; };
template <> struct OpMathType<BFloat16> { typedef float type; };
template <typename T> using opmath_type = typename OpMathType<T>::type;
template <typename T, bool OnDevice> struct AccumulateType {
  typedef std::conditional_t<std::is_integral<T>::value, int64_t, opmath_type<T>> type;
};
template <typename T, bool OnDevice> using acc_type = typename AccumulateType<T, OnDevice>::type;
template <typename T> using acc_type_device = acc_type<T, true>;
template <typename T> constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
namespace cuda { namespace detail {
template <typename T, typename Index> struct TensorInfo {
  T* data;
  Index sizes[25];
  Index strides[25];
  int dims;
};
template <typename T, typename Index, int Dims> struct IndexToOffset {
  static __host__ __device__ Index get(Index element, const TensorInfo<T, Index>& info) {
    Index offset = 0;
    for (int i = (Dims < 0 ? info.dims : Dims) - 1; i > 0; --i) {
      offset += element % info.sizes[i] * info.strides[i];
      element /= info.sizes[i];
    }
    return offset + element * info.strides[0];
  }
};
} }
"""

_ACCESSORS = """
template <typename T> struct DefaultPtrTraits { typedef T* PtrType; };
template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
struct TensorAccessor {
  typedef typename Traits<T>::PtrType PtrType;
  PtrType data_;
  const Index* sizes_;
  const Index* strides_;
  __host__ __device__ TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  __host__ __device__ Index size(Index i) const { return sizes_[i]; }
  __host__ __device__ Index stride(Index i) const { return strides_[i]; }
  __host__ __device__ PtrType data() const { return data_; }
  __host__ __device__ decltype(auto) operator[](Index i) const {
    PtrType at = data_ + strides_[0] * i;
    if constexpr (N > 1) return TensorAccessor<T, N - 1, Traits, Index>(at, sizes_ + 1, strides_ + 1);
    else return (*at);
  }
};
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
struct GenericPackedTensorAccessor {
  typedef typename Traits<T>::PtrType PtrType;
  PtrType data_;
  Index sizes_[N];
  Index strides_[N];
  __host__ __device__ Index size(Index i) const { return sizes_[i]; }
  __host__ __device__ Index stride(Index i) const { return strides_[i]; }
  __host__ __device__ PtrType data() const { return data_; }
  __host__ __device__ decltype(auto) operator[](Index i) const {
    PtrType at = data_ + strides_[0] * i;
    if constexpr (N > 1) return TensorAccessor<T, N - 1, Traits, Index>(at, sizes_ + 1, strides_ + 1);
    else return (*at);
  }
};
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, Index>;
"""

_ATOMICS = """
namespace native {
template <typename T, typename Index>
__device__ void fastAtomicAdd(T* tensor, Index index, const Index count, T value, bool fast) {
  atomicAdd(tensor + index, value);
}
}
}
namespace torch { using namespace at; }
template <typename T> __device__ T gpuAtomicAdd(T* p, T value) { return atomicAdd(p, value); }
template <typename T> __device__ c10::complex<T> gpuAtomicAdd(c10::complex<T>* p, c10::complex<T> value) {
  return c10::complex<T>(atomicAdd(&p->real_, value.real_), atomicAdd(&p->imag_, value.imag_));
}
__device__ inline int64_t gpuAtomicAdd(int64_t* p, int64_t value) {
  return atomicAdd((unsigned long long*)p, (unsigned long long)value);
}
template <typename T> __device__ void gpuAtomicAddNoReturn(T* p, T value) { gpuAtomicAdd(p, value); }
"""

_LANES = """
#define C10_WARP_SIZE 32
template <typename T> __device__ T WARP_SHFL(T x, int lane, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_sync(mask, x, lane, width);
}
template <typename T> __device__ T WARP_SHFL_XOR(T x, int lanes, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_xor_sync(mask, x, lanes, width);
}
template <typename T> __device__ T WARP_SHFL_UP(T x, unsigned delta, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_up_sync(mask, x, delta, width);
}
template <typename T> __device__ T WARP_SHFL_DOWN(T x, unsigned delta, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_down_sync(mask, x, delta, width);
}
__device__ inline unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) {
  return __ballot_sync(mask, predicate);
}
__device__ inline unsigned ACTIVE_MASK() { return __activemask(); }
__device__ inline void WARP_SYNC(unsigned mask = 0xffffffff) { __syncwarp(mask); }
"""

_MACROS = """
#define C10_ALWAYS_INLINE __forceinline__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_HOST_DEVICE __host__ __device__
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_RESTRICT __restrict__
#define C10_UNUSED
#define CUDA_KERNEL_ASSERT(condition) assert(condition)
#define CUDA_KERNEL_LOOP_TYPE(i, n, Index) \\
  for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (Index)blockDim.x * gridDim.x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int64_t)
"""

_GUARD = "WARPTILE_TORCH_HEADER"

TORCH_TYPES = "\n".join(
    [
        f"#ifndef {_GUARD}",
        f"#define {_GUARD}",
        *(f"#include <{name}>" for name in _INCLUDED),
        _SIXTEEN_BITS + _TYPES + _ACCESSORS + _ATOMICS + _LANES + _MACROS,
        "#endif\n",
    ]
).encode()
"""The text of each header of torch."""
