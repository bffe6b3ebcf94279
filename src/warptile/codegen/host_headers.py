"""What NVRTC is given for headers of the host's C and C++ libraries, which it does not have: what device code uses.

Only those that are found nowhere else are given. Names are those of the C++ standard; other headers of the host, such
as ``<vector>``, are empty, and code that uses them is host code (`warptile.codegen.host_code`). `std::move` and
`std::forward` are NVRTC's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_MACRO = re.compile(r"^#define (\w+).*$", re.MULTILINE)

_LIMITS = """
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 18446744073709551615ull
"""

_FLOAT = """
#define FLT_RADIX 2
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MIN 1.17549435e-38f
#define FLT_MAX 3.40282347e+38f
#define FLT_TRUE_MIN 1.40129846e-45f
#define FLT_EPSILON 1.19209290e-07f
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623157e+308
#define DBL_TRUE_MIN 4.9406564584124654e-324
#define DBL_EPSILON 2.2204460492503131e-16
"""

_STDINT = """
typedef signed char int_fast8_t, int_least8_t;
typedef unsigned char uint_fast8_t, uint_least8_t;
typedef short int_fast16_t, int_least16_t;
typedef unsigned short uint_fast16_t, uint_least16_t;
typedef int int_fast32_t, int_least32_t;
typedef unsigned int uint_fast32_t, uint_least32_t;
typedef long long int_fast64_t, int_least64_t, intmax_t;
typedef unsigned long long uint_fast64_t, uint_least64_t, uintmax_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-INT32_MAX - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807l
#define INT64_MIN (-INT64_MAX - 1)
#define UINT64_MAX 18446744073709551615ul
#define INTPTR_MAX INT64_MAX
#define UINTPTR_MAX UINT64_MAX
#define PTRDIFF_MAX INT64_MAX
#define SIZE_MAX UINT64_MAX
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::intptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uintptr_t;
}
"""
"""The types are those that libcu++ declares for NVRTC (``cuda/std/cstdint``), which may be included beside it."""

_STDDEF = """
#define NULL 0
#define offsetof(type, member) ((size_t)__INTADDR__(&((type*)0)->member))
typedef decltype((char*)0 - (char*)0) ptrdiff_t;
namespace std { using ::size_t; using ::ptrdiff_t; }
"""

_STRING = "namespace std { using ::memcpy; using ::memset; }\n"

_FUNCTIONS = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ilogb",
    "isfinite", "isinf", "isnan", "ldexp", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb",
    "lrint", "lround", "modf", "nearbyint", "nextafter", "pow", "remainder", "remquo", "rint", "round", "scalbn",
    "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_FLOAT_FUNCTIONS = tuple(
    f"{name}f" for name in _FUNCTIONS if name not in ("abs", "isfinite", "isinf", "isnan", "signbit")
)

_INFINITY, _NAN = "__builtin_bit_cast(float, 0x7f800000u)", "__builtin_bit_cast(float, 0x7fc00000u)"
_INFINITY_64 = "__builtin_bit_cast(double, 0x7ff0000000000000ull)"
_NAN_64 = "__builtin_bit_cast(double, 0x7ff8000000000000ull)"

_TO_DOUBLE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp2",
    "expm1", "fabs", "floor", "lgamma", "log", "log10", "log1p", "log2", "logb", "nearbyint", "rint", "round", "sin",
    "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_TO_INTEGERS = {"ilogb": "int", "lrint": "long", "lround": "long", "llrint": "long long", "llround": "long long"}
_OF_TWO = "atan2", "copysign", "fdim", "fmax", "fmin", "fmod", "hypot", "nextafter", "pow", "remainder"
_CLASSES = {"isfinite": "true", "isinf": "false", "isnan": "false", "signbit": "x < 0"}


def _overloads() -> str:
    """Functions of integers, and of two numbers of different types, which are those of doubles: ``<cmath>`` has them,
    CUDA's headers alone do not."""
    one = dict.fromkeys(_TO_DOUBLE, "double") | _TO_INTEGERS
    made = [
        f"template <typename T> __result<T, {of}> {name}(T x) {{ return {name}((double)x); }}"
        for name, of in one.items()
    ]
    made += [f"template <typename T> __result<T, bool> {name}(T x) {{ return {so}; }}" for name, so in _CLASSES.items()]
    made += [
        f"template <typename T, typename U> __mixed<T, U> {name}(T x, U y) {{ return {name}((double)x, (double)y); }}"
        for name in _OF_TWO
    ]
    return """
#include <type_traits>
template <typename T, typename R> using __result = typename std::enable_if<std::is_integral<T>::value, R>::type;
template <typename T, typename U>
using __mixed = typename std::enable_if<std::is_arithmetic<T>::value && std::is_arithmetic<U>::value &&
                                            !(std::is_same<T, U>::value && std::is_floating_point<T>::value),
                                        double>::type;
""" + "\n".join(made)


_MATH = f"""
{_overloads()}
#define INFINITY ({_INFINITY})
#define NAN ({_NAN})
#define HUGE_VALF ({_INFINITY})
#define HUGE_VAL ({_INFINITY_64})
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
namespace std {{
{"".join(f"using ::{name};" for name in (*_FUNCTIONS, *_FLOAT_FUNCTIONS))}
}}
"""

_ALGORITHM = """
namespace std {
template <typename T> constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <typename T> constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <typename T> constexpr T min(initializer_list<T> list) {
  const T* least = list.begin();
  for (const T& each : list) if (each < *least) least = &each;
  return *least;
}
template <typename T> constexpr T max(initializer_list<T> list) {
  const T* largest = list.begin();
  for (const T& each : list) if (*largest < each) largest = &each;
  return *largest;
}
template <typename T> constexpr const T& clamp(const T& x, const T& a, const T& b) { return x < a ? a : b < x ? b : x; }
template <typename T> constexpr void swap(T& a, T& b) { T held = a; a = b; b = held; }
template <typename T, typename U = T> constexpr T exchange(T& a, U&& b) { T held = a; a = b; return held; }
template <typename T, size_t N> struct array;
template <typename T, typename U> struct pair { T first; U second; };
template <typename T, typename U> constexpr pair<T, U> make_pair(T a, U b) { return {a, b}; }
template <typename T, T... I> struct integer_sequence {
  typedef T value_type;
  static constexpr size_t size() { return sizeof...(I); }
};
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <typename T, size_t N, T... I> struct __counted : __counted<T, N - 1, T(N - 1), I...> {};
template <typename T, T... I> struct __counted<T, 0, I...> { typedef integer_sequence<T, I...> type; };
template <typename T, T N> using make_integer_sequence = typename __counted<T, size_t(N)>::type;
template <size_t N> using make_index_sequence = make_integer_sequence<size_t, N>;
}
"""

_ARRAY = """
namespace std {
template <typename T, size_t N> struct array {
  typedef T value_type;
  T elements[N ? N : 1];
  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
  constexpr T* data() { return elements; }
  constexpr const T* data() const { return elements; }
  constexpr T* begin() { return elements; }
  constexpr const T* begin() const { return elements; }
  constexpr T* end() { return elements + N; }
  constexpr const T* end() const { return elements + N; }
  constexpr size_t size() const { return N; }
  constexpr void fill(const T& value) { for (T& each : *this) each = value; }
};
}
"""

_TYPE_TRAITS = """
namespace std {
template <typename T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return V; }
};
template <bool V> using bool_constant = integral_constant<bool, V>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;
template <typename T, typename U> struct is_same : false_type {};
template <typename T> struct is_same<T, T> : true_type {};
template <bool C, typename T, typename U> struct conditional { typedef T type; };
template <typename T, typename U> struct conditional<false, T, U> { typedef U type; };
template <bool C, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <typename T> struct remove_const { typedef T type; };
template <typename T> struct remove_const<const T> { typedef T type; };
template <typename T> struct remove_volatile { typedef T type; };
template <typename T> struct remove_volatile<volatile T> { typedef T type; };
template <typename T> struct remove_cv { typedef typename remove_volatile<typename remove_const<T>::type>::type type; };
template <typename T> struct remove_reference { typedef T type; };
template <typename T> struct remove_reference<T&> { typedef T type; };
template <typename T> struct remove_reference<T&&> { typedef T type; };
template <typename T> struct remove_pointer { typedef T type; };
template <typename T> struct remove_pointer<T*> { typedef T type; };
template <typename T> struct remove_extent { typedef T type; };
template <typename T> struct remove_extent<T[]> { typedef T type; };
template <typename T, size_t N> struct remove_extent<T[N]> { typedef T type; };
template <typename T> struct remove_all_extents { typedef T type; };
template <typename T> struct remove_all_extents<T[]> : remove_all_extents<T> {};
template <typename T, size_t N> struct remove_all_extents<T[N]> : remove_all_extents<T> {};
template <typename T> struct add_const { typedef const T type; };
template <typename T> struct add_volatile { typedef volatile T type; };
template <typename T> struct add_cv { typedef const volatile T type; };
template <typename T> struct add_pointer { typedef typename remove_reference<T>::type* type; };
template <typename T> struct add_lvalue_reference { typedef T& type; };
template <typename T> struct add_rvalue_reference { typedef T&& type; };
template <> struct add_lvalue_reference<void> { typedef void type; };
template <> struct add_rvalue_reference<void> { typedef void type; };
template <typename T> struct remove_cvref : remove_cv<typename remove_reference<T>::type> {};
template <typename T> struct type_identity { typedef T type; };
template <typename T> struct __decayed : remove_cv<T> {};
template <typename T> struct __decayed<T[]> { typedef T* type; };
template <typename T, size_t N> struct __decayed<T[N]> { typedef T* type; };
template <typename T, typename... U> struct __decayed<T(U...)> { typedef T (*type)(U...); };
template <typename T> struct decay : __decayed<typename remove_reference<T>::type> {};
template <typename T> struct is_void : is_same<void, typename remove_cv<T>::type> {};
template <typename T> struct is_const : false_type {};
template <typename T> struct is_const<const T> : true_type {};
template <typename T> struct is_pointer : false_type {};
template <typename T> struct is_pointer<T*> : true_type {};
template <typename T> struct is_volatile : false_type {};
template <typename T> struct is_volatile<volatile T> : true_type {};
template <typename T> struct is_array : false_type {};
template <typename T> struct is_array<T[]> : true_type {};
template <typename T, size_t N> struct is_array<T[N]> : true_type {};
template <typename T> struct is_lvalue_reference : false_type {};
template <typename T> struct is_lvalue_reference<T&> : true_type {};
template <typename T> struct is_rvalue_reference : false_type {};
template <typename T> struct is_rvalue_reference<T&&> : true_type {};
template <typename T> struct is_reference : false_type {};
template <typename T> struct is_reference<T&> : true_type {};
template <typename T> struct is_reference<T&&> : true_type {};
template <typename T, typename... U> struct __is_one_of : bool_constant<(is_same<T, U>::value || ...)> {};
template <typename T>
struct is_floating_point : __is_one_of<typename remove_cv<T>::type, float, double, long double> {};
template <typename T>
struct is_integral : __is_one_of<typename remove_cv<T>::type, bool, char, signed char, unsigned char, wchar_t, char16_t,
                                 char32_t, short, unsigned short, int, unsigned int, long, unsigned long, long long,
                                 unsigned long long> {};
template <typename T> struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <typename T, bool = is_arithmetic<T>::value> struct is_signed : false_type {};
template <typename T> struct is_signed<T, true> : bool_constant<(T(-1) < T(0))> {};
template <typename T, bool = is_arithmetic<T>::value> struct is_unsigned : false_type {};
template <typename T> struct is_unsigned<T, true> : bool_constant<!(T(-1) < T(0))> {};
template <typename T> struct is_enum : bool_constant<__is_enum(T)> {};
template <typename T> struct is_class : bool_constant<__is_class(T)> {};
template <typename T> struct is_union : bool_constant<__is_union(T)> {};
template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};
template <typename T> struct is_final : bool_constant<__is_final(T)> {};
template <typename T> struct is_abstract : bool_constant<__is_abstract(T)> {};
template <typename T> struct is_polymorphic : bool_constant<__is_polymorphic(T)> {};
template <typename T> struct is_aggregate : bool_constant<__is_aggregate(T)> {};
template <typename T> struct is_standard_layout : bool_constant<__is_standard_layout(T)> {};
template <typename T> struct is_trivial : bool_constant<__is_trivial(T)> {};
template <typename T> struct is_pod : bool_constant<__is_pod(T)> {};
template <typename T> struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <typename T> struct is_destructible : bool_constant<__is_destructible(T)> {};
template <typename T> struct is_trivially_destructible : bool_constant<__is_trivially_destructible(T)> {};
template <typename T> struct is_default_constructible : bool_constant<__is_constructible(T)> {};
template <typename T> struct is_copy_constructible : bool_constant<__is_constructible(T, const T&)> {};
template <typename T> struct is_move_constructible : bool_constant<__is_constructible(T, T&&)> {};
template <typename T> struct is_copy_assignable : bool_constant<__is_assignable(T&, const T&)> {};
template <typename T> struct is_move_assignable : bool_constant<__is_assignable(T&, T&&)> {};
template <typename T> struct is_trivially_default_constructible : bool_constant<__is_trivially_constructible(T)> {};
template <typename T>
struct is_trivially_copy_constructible : bool_constant<__is_trivially_constructible(T, const T&)> {};
template <typename T> struct is_trivially_move_constructible : bool_constant<__is_trivially_constructible(T, T&&)> {};
template <typename T> struct is_trivially_copy_assignable : bool_constant<__is_trivially_assignable(T&, const T&)> {};
template <typename T> struct is_trivially_move_assignable : bool_constant<__is_trivially_assignable(T&, T&&)> {};
template <typename T> struct is_nothrow_default_constructible : bool_constant<__is_nothrow_constructible(T)> {};
template <typename T> struct is_nothrow_copy_constructible : bool_constant<__is_nothrow_constructible(T, const T&)> {};
template <typename T> struct is_nothrow_move_constructible : bool_constant<__is_nothrow_constructible(T, T&&)> {};
template <typename T> struct is_nothrow_copy_assignable : bool_constant<__is_nothrow_assignable(T&, const T&)> {};
template <typename T> struct is_nothrow_move_assignable : bool_constant<__is_nothrow_assignable(T&, T&&)> {};
template <typename T, typename... U>
struct is_constructible : bool_constant<__is_constructible(T, U...)> {};
template <typename T, typename U> struct is_assignable : bool_constant<__is_assignable(T, U)> {};
template <typename T, typename... U>
struct is_trivially_constructible : bool_constant<__is_trivially_constructible(T, U...)> {};
template <typename T, typename U> struct is_trivially_assignable : bool_constant<__is_trivially_assignable(T, U)> {};
template <typename T, typename... U>
struct is_nothrow_constructible : bool_constant<__is_nothrow_constructible(T, U...)> {};
template <typename T, typename U> struct is_nothrow_assignable : bool_constant<__is_nothrow_assignable(T, U)> {};
template <typename T, typename U> struct is_base_of : bool_constant<__is_base_of(T, U)> {};
template <typename T, typename U> struct is_convertible : bool_constant<__is_convertible_to(T, U)> {};
template <typename T> struct is_null_pointer : is_same<decltype(nullptr), typename remove_cv<T>::type> {};
template <typename T>
struct is_scalar : bool_constant<is_arithmetic<T>::value || is_enum<T>::value || is_pointer<T>::value> {};
template <typename T> struct is_fundamental : bool_constant<is_arithmetic<T>::value || is_void<T>::value> {};
template <typename T> struct underlying_type { typedef __underlying_type(T) type; };
template <typename T> struct alignment_of : integral_constant<size_t, alignof(T)> {};
template <typename... T> struct conjunction : bool_constant<(bool(T::value) && ...)> {};
template <typename... T> struct disjunction : bool_constant<(bool(T::value) || ...)> {};
template <typename T> struct negation : bool_constant<!bool(T::value)> {};
template <typename T, size_t = sizeof(T)> struct __as_integers;
template <typename T> struct __as_integers<T, 1> { typedef signed char Signed; typedef unsigned char Unsigned; };
template <typename T> struct __as_integers<T, 2> { typedef short Signed; typedef unsigned short Unsigned; };
template <typename T> struct __as_integers<T, 4> { typedef int Signed; typedef unsigned int Unsigned; };
template <typename T> struct __as_integers<T, 8> { typedef long long Signed; typedef unsigned long long Unsigned; };
template <> struct __as_integers<long, 8> { typedef long Signed; typedef unsigned long Unsigned; };
template <> struct __as_integers<unsigned long, 8> : __as_integers<long> {};
template <typename T> struct make_signed { typedef typename __as_integers<T>::Signed type; };
template <typename T> struct make_unsigned { typedef typename __as_integers<T>::Unsigned type; };
template <bool C, typename T, typename U> using conditional_t = typename conditional<C, T, U>::type;
template <bool C, typename T = void> using enable_if_t = typename enable_if<C, T>::type;
template <typename T> using remove_extent_t = typename remove_extent<T>::type;
template <typename T> using remove_all_extents_t = typename remove_all_extents<T>::type;
template <typename T> using add_const_t = typename add_const<T>::type;
template <typename T> using add_volatile_t = typename add_volatile<T>::type;
template <typename T> using add_cv_t = typename add_cv<T>::type;
template <typename T> using add_pointer_t = typename add_pointer<T>::type;
template <typename T> using add_lvalue_reference_t = typename add_lvalue_reference<T>::type;
template <typename T> using add_rvalue_reference_t = typename add_rvalue_reference<T>::type;
template <typename T> using remove_cvref_t = typename remove_cvref<T>::type;
template <typename T> using type_identity_t = typename type_identity<T>::type;
template <typename T> using underlying_type_t = typename underlying_type<T>::type;
template <typename T> using make_signed_t = typename make_signed<T>::type;
template <typename T> using make_unsigned_t = typename make_unsigned<T>::type;
template <typename T> using remove_volatile_t = typename remove_volatile<T>::type;
template <typename T> using remove_const_t = typename remove_const<T>::type;
template <typename T> using remove_cv_t = typename remove_cv<T>::type;
template <typename T> using remove_reference_t = typename remove_reference<T>::type;
template <typename T> using remove_pointer_t = typename remove_pointer<T>::type;
template <typename T> using decay_t = typename decay<T>::type;
template <typename...> using void_t = void;
template <typename T, typename U> inline constexpr bool is_same_v = is_same<T, U>::value;
template <typename T> inline constexpr bool is_void_v = is_void<T>::value;
template <typename T> inline constexpr bool is_pointer_v = is_pointer<T>::value;
template <typename T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <typename T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <typename T> inline constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <typename T> inline constexpr bool is_signed_v = is_signed<T>::value;
template <typename T> inline constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <typename T> inline constexpr bool is_const_v = is_const<T>::value;
template <typename T> inline constexpr bool is_volatile_v = is_volatile<T>::value;
template <typename T> inline constexpr bool is_array_v = is_array<T>::value;
template <typename T> inline constexpr bool is_reference_v = is_reference<T>::value;
template <typename T> inline constexpr bool is_lvalue_reference_v = is_lvalue_reference<T>::value;
template <typename T> inline constexpr bool is_rvalue_reference_v = is_rvalue_reference<T>::value;
template <typename T> inline constexpr bool is_enum_v = is_enum<T>::value;
template <typename T> inline constexpr bool is_class_v = is_class<T>::value;
template <typename T> inline constexpr bool is_union_v = is_union<T>::value;
template <typename T> inline constexpr bool is_empty_v = is_empty<T>::value;
template <typename T> inline constexpr bool is_final_v = is_final<T>::value;
template <typename T> inline constexpr bool is_abstract_v = is_abstract<T>::value;
template <typename T> inline constexpr bool is_polymorphic_v = is_polymorphic<T>::value;
template <typename T> inline constexpr bool is_aggregate_v = is_aggregate<T>::value;
template <typename T> inline constexpr bool is_standard_layout_v = is_standard_layout<T>::value;
template <typename T> inline constexpr bool is_trivial_v = is_trivial<T>::value;
template <typename T> inline constexpr bool is_pod_v = is_pod<T>::value;
template <typename T> inline constexpr bool is_trivially_copyable_v = is_trivially_copyable<T>::value;
template <typename T> inline constexpr bool is_destructible_v = is_destructible<T>::value;
template <typename T> inline constexpr bool is_trivially_destructible_v = is_trivially_destructible<T>::value;
template <typename T> inline constexpr bool is_default_constructible_v = is_default_constructible<T>::value;
template <typename T> inline constexpr bool is_copy_constructible_v = is_copy_constructible<T>::value;
template <typename T> inline constexpr bool is_move_constructible_v = is_move_constructible<T>::value;
template <typename T> inline constexpr bool is_copy_assignable_v = is_copy_assignable<T>::value;
template <typename T> inline constexpr bool is_move_assignable_v = is_move_assignable<T>::value;
template <typename T>
inline constexpr bool is_trivially_default_constructible_v = is_trivially_default_constructible<T>::value;
template <typename T>
inline constexpr bool is_trivially_copy_constructible_v = is_trivially_copy_constructible<T>::value;
template <typename T>
inline constexpr bool is_trivially_move_constructible_v = is_trivially_move_constructible<T>::value;
template <typename T> inline constexpr bool is_trivially_copy_assignable_v = is_trivially_copy_assignable<T>::value;
template <typename T> inline constexpr bool is_trivially_move_assignable_v = is_trivially_move_assignable<T>::value;
template <typename T>
inline constexpr bool is_nothrow_default_constructible_v = is_nothrow_default_constructible<T>::value;
template <typename T> inline constexpr bool is_nothrow_copy_constructible_v = is_nothrow_copy_constructible<T>::value;
template <typename T> inline constexpr bool is_nothrow_move_constructible_v = is_nothrow_move_constructible<T>::value;
template <typename T> inline constexpr bool is_nothrow_copy_assignable_v = is_nothrow_copy_assignable<T>::value;
template <typename T> inline constexpr bool is_nothrow_move_assignable_v = is_nothrow_move_assignable<T>::value;
template <typename T> inline constexpr bool is_null_pointer_v = is_null_pointer<T>::value;
template <typename T> inline constexpr bool is_scalar_v = is_scalar<T>::value;
template <typename T> inline constexpr bool is_fundamental_v = is_fundamental<T>::value;
template <typename T, typename... U> inline constexpr bool is_constructible_v = is_constructible<T, U...>::value;
template <typename T, typename U> inline constexpr bool is_assignable_v = is_assignable<T, U>::value;
template <typename T, typename... U>
inline constexpr bool is_trivially_constructible_v = is_trivially_constructible<T, U...>::value;
template <typename T, typename U>
inline constexpr bool is_trivially_assignable_v = is_trivially_assignable<T, U>::value;
template <typename T, typename... U>
inline constexpr bool is_nothrow_constructible_v = is_nothrow_constructible<T, U...>::value;
template <typename T, typename U> inline constexpr bool is_nothrow_assignable_v = is_nothrow_assignable<T, U>::value;
template <typename T, typename U> inline constexpr bool is_base_of_v = is_base_of<T, U>::value;
template <typename T, typename U> inline constexpr bool is_convertible_v = is_convertible<T, U>::value;
template <typename... T> inline constexpr bool conjunction_v = conjunction<T...>::value;
template <typename... T> inline constexpr bool disjunction_v = disjunction<T...>::value;
template <typename T> inline constexpr bool negation_v = negation<T>::value;
template <typename T> typename add_rvalue_reference<T>::type declval() noexcept;
template <typename... T> struct common_type {};
template <typename... T> using common_type_t = typename common_type<T...>::type;
template <typename T> struct common_type<T> : decay<T> {};
template <typename T, typename U> struct common_type<T, U> {
  typedef decay_t<decltype(true ? declval<decay_t<T>>() : declval<decay_t<U>>())> type;
};
template <typename T, typename U, typename... V>
struct common_type<T, U, V...> : common_type<common_type_t<T, U>, V...> {};
template <typename F, typename... T> struct invoke_result {
  typedef decltype(declval<F>()(declval<T>()...)) type;
};
template <typename F, typename... T> using invoke_result_t = typename invoke_result<F, T...>::type;
template <size_t Size, size_t Align = (Size < 16 ? 8 : 16)> struct aligned_storage {
  struct type { alignas(Align) unsigned char data[Size]; };
};
template <size_t Size, size_t Align = (Size < 16 ? 8 : 16)>
using aligned_storage_t = typename aligned_storage<Size, Align>::type;
}
"""


def _function_objects() -> str:
    """Those of ``<functional>`` that are operators."""
    made = []
    binary = {
        "plus": "+", "minus": "-", "multiplies": "*", "divides": "/", "modulus": "%", "bit_and": "&", "bit_or": "|",
        "bit_xor": "^", "equal_to": "==", "not_equal_to": "!=", "less": "<", "less_equal": "<=", "greater": ">",
        "greater_equal": ">=", "logical_and": "&&", "logical_or": "||",
    }  # fmt: skip
    unary = {"negate": "-", "bit_not": "~", "logical_not": "!"}
    for name, sign in binary.items():
        result = "bool" if sign[0] in "=!<>" or sign in ("&&", "||") else "T"
        made.append(f"""template <typename T = void> struct {name} {{
  constexpr {result} operator()(const T& a, const T& b) const {{ return a {sign} b; }}
}};
template <> struct {name}<void> {{
  template <typename T, typename U> constexpr auto operator()(const T& a, const U& b) const {{ return a {sign} b; }}
}};
""")
    for name, sign in unary.items():
        result = "bool" if sign == "!" else "T"
        made.append(f"""template <typename T = void> struct {name} {{
  constexpr {result} operator()(const T& a) const {{ return {sign}a; }}
}};
template <> struct {name}<void> {{
  template <typename T> constexpr auto operator()(const T& a) const {{ return {sign}a; }}
}};
""")
    return f"namespace std {{\n{''.join(made)}}}\n"


_INTEGERS = {
    "bool": ("false", "true"),
    "char": ("CHAR_MIN", "CHAR_MAX"), "signed char": ("SCHAR_MIN", "SCHAR_MAX"), "unsigned char": ("0", "UCHAR_MAX"),
    "short": ("SHRT_MIN", "SHRT_MAX"), "unsigned short": ("0", "USHRT_MAX"), "int": ("INT_MIN", "INT_MAX"),
    "unsigned int": ("0", "UINT_MAX"), "long": ("LONG_MIN", "LONG_MAX"), "unsigned long": ("0", "ULONG_MAX"),
    "long long": ("LLONG_MIN", "LLONG_MAX"), "unsigned long long": ("0", "ULLONG_MAX"),
}  # fmt: skip


def _limits_of(type_name: str, functions: Mapping[str, str], constants: Mapping[str, str]) -> str:
    held = "".join(
        f"  static constexpr {type_name} {name}() {{ return {value}; }}\n" for name, value in functions.items()
    )
    held += "".join(
        f"  static constexpr {'bool' if name.startswith(('is_', 'has_')) else 'int'} {name} = {value};\n"
        for name, value in constants.items()
    )
    return f"template <> struct numeric_limits<{type_name}> : __limits<{type_name}> {{\n{held}}};\n"


def _limits_of_integer(type_name: str, least: str, largest: str) -> str:
    functions = {"min": least, "lowest": least, "max": largest}
    digits = f"(sizeof({type_name}) == 1 && ({type_name})2 == 1 ? 1 : 8 * (int)sizeof({type_name}) - is_signed)"
    constants = {
        "is_integer": "true", "is_exact": "true", "is_signed": f"({type_name})-1 < 0",
        "digits": digits, "digits10": "digits * 643 / 2136", "is_modulo": "digits > 1 && !is_signed",
    }  # fmt: skip
    return _limits_of(type_name, functions, constants)


def _limits_of_float(type_name: str, prefix: str, infinity: str, nan: str, exponent: int) -> str:
    functions = {
        "min": f"{prefix}_MIN", "lowest": f"-{prefix}_MAX", "max": f"{prefix}_MAX", "epsilon": f"{prefix}_EPSILON",
        "round_error": "0.5f", "denorm_min": f"{prefix}_TRUE_MIN", "infinity": infinity, "quiet_NaN": nan,
    }  # fmt: skip
    constants = {
        "is_signed": "true", "is_iec559": "true", "has_infinity": "true", "has_quiet_NaN": "true",
        "digits": f"{prefix}_MANT_DIG", "digits10": f"{prefix}_DIG", "max_digits10": "2 + digits * 643 / 2136",
        "max_exponent": str(exponent), "min_exponent": str(3 - exponent),
    }  # fmt: skip
    return _limits_of(type_name, functions, constants)


_NUMERIC_LIMITS = f"""
#include <limits.h>
#include <float.h>
namespace std {{
template <typename T> struct numeric_limits {{
  static constexpr bool is_specialized = false, is_signed = false, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = false, has_quiet_NaN = false, is_iec559 = false, is_bounded = false;
}};
template <typename T> struct __limits {{
  static constexpr bool is_specialized = true, is_bounded = true, is_integer = false, is_exact = false;
  static constexpr bool is_iec559 = false, is_modulo = false, has_infinity = false, has_quiet_NaN = false;
  static constexpr int radix = 2, max_digits10 = 0, max_exponent = 0, min_exponent = 0;
  static constexpr T epsilon() {{ return T(); }}
  static constexpr T round_error() {{ return T(); }}
  static constexpr T denorm_min() {{ return T(); }}
  static constexpr T infinity() {{ return T(); }}
  static constexpr T quiet_NaN() {{ return T(); }}
}};
{"".join(_limits_of_integer(name, *bounds) for name, bounds in _INTEGERS.items())}
{_limits_of_float("float", "FLT", _INFINITY, _NAN, 128)}{_limits_of_float("double", "DBL", _INFINITY_64, _NAN_64, 1024)}
}}
"""

_LIBRARY_TYPES = """
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>
"""
"""What the headers of cuBLAS and other libraries include, and code relies on."""

_TEXTS = {
    ("limits.h", "climits"): _LIMITS,
    ("float.h", "cfloat"): _FLOAT,
    ("stdint.h", "cstdint", "inttypes.h", "cinttypes"): _STDINT,
    ("stddef.h", "cstddef"): _STDDEF,
    ("stdlib.h", "cstdlib"): _STDDEF + "#define EXIT_SUCCESS 0\n#define EXIT_FAILURE 1\n#define RAND_MAX 2147483647\n",
    ("math.h", "cmath"): _MATH,
    ("algorithm", "utility"): _ALGORITHM,
    ("array",): _ARRAY,
    ("string.h", "cstring"): _STRING,
    ("type_traits",): _TYPE_TRAITS,
    ("functional",): _function_objects(),
    ("limits",): _NUMERIC_LIMITS,
    ("cublas_v2.h", "cublasLt.h", "cublas.h", "cudnn.h", "cufft.h", "cusparse.h", "cusolverDn.h"): _LIBRARY_TYPES,
    ("assert.h", "cassert", "stdio.h", "cstdio", "time.h", "ctime"): "",
}


def _guarded(number: int, text: str) -> bytes:
    """A text that counts once, and whose macros give way to those of others."""
    guard = f"WARPTILE_HOST_HEADER_{number}"
    text = _MACRO.sub(r"#ifndef \1\n\g<0>\n#endif", text)
    return f"#ifndef {guard}\n#define {guard}\n{text}#endif\n".encode()


HOST_HEADERS: Mapping[str, bytes] = {
    name: _guarded(number, text) if text else b""
    for number, (names, text) in enumerate(_TEXTS.items())
    for name in names
}
"""The text of each header; a program may include several of one text."""

_DEVICE_RUNTIME = b"""
template <typename...> static inline __device__ void cudaGridDependencySynchronize() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
template <typename...> static inline __device__ void cudaTriggerProgrammaticLaunchCompletion() {
  asm volatile("griddepcontrol.launch_dependents;");
}
"""
"""What of the device's runtime kernels call. Templates, so that the functions of ``cuda_device_runtime_api.h`` go
before them in a file that includes it, and files compile for architectures that lack the instructions."""

IMPLIED = b"".join(HOST_HEADERS[name] for name in ("math.h", "limits.h", "stddef.h", "utility", "type_traits"))
IMPLIED += _DEVICE_RUNTIME
"""What nvcc includes before every file, by ``cuda_runtime.h``."""

CUB = "cub/cub.cuh"
"""CUB refuses this header under NVRTC, because of its functions of the host."""


def cub_parts(folders: Sequence[Path]) -> dict[str, bytes]:
    """`CUB` with what device code uses of it, the algorithms of blocks and warps; nothing where there is no CUB.

    Args:
        folders: where headers are looked for.
    """
    found = next((folder / CUB for folder in folders if (folder / CUB).is_file()), None)
    if found is None:
        return {}
    parts = [each for room in ("block", "warp") for each in (found.parent / room).glob(f"{room}_*.cuh")]
    return {CUB: "".join(f"#include <cub/{each.parent.name}/{each.name}>\n" for each in sorted(parts)).encode()}


_THRUST_ON_DEVICE = (
    "addressof",
    "advance",
    "distance",
    "functional",
    "pair",
    "swap",
    "tuple",
    "version",
    "zip_function",
)
"""Headers of Thrust that NVRTC compiles, besides those in folders."""

_THRUST_PARTS = {
    "thrust/complex.h": b"""
#include <cuda/std/complex>
namespace thrust {
using ::cuda::std::complex; using ::cuda::std::abs; using ::cuda::std::arg; using ::cuda::std::norm;
using ::cuda::std::conj; using ::cuda::std::proj; using ::cuda::std::polar; using ::cuda::std::exp;
using ::cuda::std::log; using ::cuda::std::log10; using ::cuda::std::pow; using ::cuda::std::sqrt;
using ::cuda::std::sin; using ::cuda::std::cos; using ::cuda::std::tan; using ::cuda::std::sinh;
using ::cuda::std::cosh; using ::cuda::std::tanh; using ::cuda::std::asin; using ::cuda::std::acos;
using ::cuda::std::atan; using ::cuda::std::asinh; using ::cuda::std::acosh; using ::cuda::std::atanh;
}
""",
    "thrust/extrema.h": b"""
#include <cuda/std/__algorithm/max.h>
#include <cuda/std/__algorithm/min.h>
namespace thrust { using ::cuda::std::max; using ::cuda::std::min; }
""",
}
"""What of headers of Thrust that NVRTC refuses device code uses."""


def headers_of_host_algorithms(folders: Sequence[Path]) -> dict[str, bytes]:
    """The headers of CUB and Thrust whose functions are called on the host, which NVRTC refuses: what is left of them.

    Args:
        folders: where headers are looked for.
    """
    made: dict[str, bytes] = {}
    for folder in folders:
        names = [f"cub/device/{each.name}" for each in (folder / "cub/device").glob("*.cuh")]
        names += [
            f"thrust/{each.name}" for each in (folder / "thrust").glob("*.h") if each.stem not in _THRUST_ON_DEVICE
        ]
        if names:
            names += ["cub/util_allocator.cuh", "thrust/system/cuda/execution_policy.h"]
        made |= {name: _THRUST_PARTS.get(name, b"") for name in names}
    return made
