"""CUDA's own mathematical functions, executed from their PTX: hundreds of instructions have to be right together."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from emulation import run_cuda

RNG = np.random.default_rng(11)
COUNT = 256

SINGLE: dict[str, tuple[Callable[..., float], float, float, int]] = {
    "sinf(x)": (math.sin, -100, 100, 2), "cosf(x)": (math.cos, -1e6, 1e6, 2), "tanf(x)": (math.tan, -50, 50, 4),
    "expf(x)": (math.exp, -80, 80, 2), "logf(x)": (math.log, 1e-30, 1e30, 2), "erff(x)": (math.erf, -4, 4, 2),
    "tanhf(x)": (math.tanh, -8, 8, 2), "cbrtf(x)": (lambda x: math.copysign(abs(x) ** (1 / 3), x), -1e9, 1e9, 2),
    "atanf(x)": (math.atan, -9, 9, 2), "lgammaf(x)": (math.lgamma, 3, 90, 6),
    "rsqrtf(x)": (lambda x: x**-0.5, 0.1, 9, 2),
    "1.0f / x": (lambda x: 1 / x, -9, 9, 0.5), "sqrtf(x)": (math.sqrt, 0, 9, 0.5),
    "exp2f(x)": (lambda x: 2**x, -90, 90, 2),
    "log1pf(x)": (math.log1p, -0.9, 9, 2), "asinhf(x)": (math.asinh, -99, 99, 3), "roundf(x)": (
        lambda x: math.copysign(math.floor(abs(x) + 0.5), x), -99, 99, 0), "truncf(x)": (math.trunc, -99, 99, 0),
}  # fmt: skip
"""Expression in x -> function, range of x, error in units in the last place that CUDA documents."""

DOUBLE: dict[str, tuple[Callable[..., float], float, float, int]] = {
    "sin(x)": (math.sin, -1e5, 1e5, 2), "cos(x)": (math.cos, -1e5, 1e5, 2), "exp(x)": (math.exp, -600, 600, 1),
    "log(x)": (math.log, 1e-300, 1e300, 1), "erf(x)": (math.erf, -5, 5, 2), "tanh(x)": (math.tanh, -9, 9, 2),
    "1.0 / x": (lambda x: 1 / x, -9, 9, 0.5), "sqrt(x)": (math.sqrt, 0, 9, 0.5),
    "rsqrt(x)": (lambda x: 1 / math.sqrt(x), 0.1, 9, 2),
    "x / 3.7": (lambda x: x / 3.7, -9e9, 9e9, 0.5), "pow(x, 1.7)": (lambda x: x**1.7, 0.01, 1e9, 2),
}  # fmt: skip


def spacing(values: np.ndarray, dtype: type) -> np.ndarray:
    return np.spacing(np.abs(values).astype(dtype)).astype(np.float64)


@pytest.mark.parametrize(("table", "cuda", "dtype"), [(SINGLE, "float", np.float32), (DOUBLE, "double", np.float64)])
def test_functions_stay_within_their_documented_errors(table, cuda, dtype) -> None:
    lines = "\n".join(f"{{ {cuda} x = in[{i * COUNT} + t]; out[{i * COUNT} + t] = {e}; }}" for i, e in enumerate(table))
    source = f'extern "C" __global__ void k({cuda}* out, const {cuda}* in) {{ int t = threadIdx.x; {lines} }}'
    inputs = np.concatenate([RNG.uniform(low, high, COUNT) for _, low, high, _ in table.values()]).astype(dtype)
    out = np.zeros_like(inputs)
    run_cuda(source, "k", [out, inputs], block=COUNT)
    for i, (expression, (function, _, _, bound)) in enumerate(table.items()):
        part = slice(i * COUNT, (i + 1) * COUNT)
        exact = np.array([function(float(x)) for x in inputs[part]], dtype=np.float64)
        slack = 0.01 if dtype is np.float32 else 1.0  # the oracle of a double is itself a double
        error = np.abs(out[part].astype(np.float64) - exact) / spacing(exact, dtype)
        assert (error <= bound + slack).all(), (expression, error.max())


INTEGER = r"""
extern "C" __global__ void k(long long* out, const long long* in) {
  int t = threadIdx.x;
  long long a = in[t], b = in[256 + t];
  int s = (int)a, r = (int)b;
  long long results[] = {
      a / b, a % b, (long long)((unsigned long long)a / (unsigned long long)b), (long long)__umul64hi(a, b),
      a * b, __mul64hi(a, b), s / r, s % r, (unsigned)s / 7u, s / -13, __clzll(a), __popcll(a), __ffsll(b),
      (long long)__brevll(a), a >> (r & 63), __byte_perm(s, r, 0x7250), __funnelshift_l(s, r, s), __vabsdiffu4(s, r),
      (long long)__ll2double_rn(a), __double2int_rz(b * 1e-12), __float2uint_rn((float)(s & 0xFFFF) + 0.5f),
      __dp4a(s, r, 5), max(s, r), llabs(b), (short)s, (unsigned char)r};
  for (int i = 0; i < 26; ++i) out[i * 256 + t] = results[i];
}
"""


def test_integers_of_every_width() -> None:
    values = RNG.integers(-(2**63), 2**63, 512, dtype=np.int64) >> RNG.integers(0, 62, 512)
    values[256:][values[256:] == 0] = 5
    values[256:][(values[256:] & 0xFFFFFFFF) == 0] += 3
    out = np.zeros(26 * 256, dtype=np.int64)
    run_cuda(INTEGER, "k", [out, values], block=256)

    def s(value: int, bits: int) -> int:
        value %= 1 << bits
        return value - (1 << bits) if value >> (bits - 1) else value

    def quotient(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    for t in range(256):
        a, b = int(values[t]), int(values[256 + t])
        ua, ub, x, y = a % 2**64, b % 2**64, s(a, 32), s(b, 32)
        ux, uy = x % 2**32, y % 2**32
        product = ua * ub
        both = ux | uy << 32
        source_bytes = both.to_bytes(8, "little")
        byte_pairs = list(zip(source_bytes[:4], source_bytes[4:], strict=True))
        expected = [
            quotient(a, b), a - b * quotient(a, b), s(ua // ub, 64), s(product >> 64, 64), s(product, 64), a * b >> 64,
            quotient(x, y), x - y * quotient(x, y), ux // 7, quotient(x, -13), 64 - ua.bit_length(), ua.bit_count(),
            (ub & -ub).bit_length(), s(int(f"{ua:064b}"[::-1], 2), 64), a >> (y & 63),
            int.from_bytes(bytes(source_bytes[i] for i in (0, 5, 2, 7)), "little"), (both << (x & 31) >> 32) % 2**32,
            int.from_bytes(bytes(abs(p - q) for p, q in byte_pairs), "little"),
            min(int(float(a)), 2**63 - 1), s(max(min(int(b * 1e-12), 2**31 - 1), -(2**31)), 32),
            round((x & 0xFFFF) + 0.5), s(5 + sum(s(p, 8) * s(q, 8) for p, q in byte_pairs), 32),
            max(x, y), abs(b), s(x, 16), y & 0xFF,
        ]  # fmt: skip
        assert out.reshape(26, 256)[:, t].tolist() == expected, (t, a, b)
