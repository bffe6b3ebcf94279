"""What kernels print, against what the host's C library makes of it, and against an H200."""

import ctypes
import itertools
import platform

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator.ops import c_format
from warptile.errors import UninitializedRead
from warptile.launch.params import Scalar

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="compares with glibc")
FLAGS = ("", "-", "+", " ", "#", "0", "-#", "+0", " #0", "-+")
WIDTHS = (0, 1, 12)
PRECISIONS = (None, 0, 1, 4, 15)


def of_library(spec: str, argument: object) -> str:
    room = ctypes.create_string_buffer(512)
    ctypes.CDLL(None).snprintf(room, ctypes.c_size_t(512), spec.encode(), argument)
    return room.value.decode()


def specs(kind: str) -> list[tuple[str, str, int, int | None]]:
    return [
        (f"%{flags}{width or ''}{'' if exact is None else f'.{exact}'}{kind}", flags, width, exact)
        for flags, width, exact in itertools.product(FLAGS, WIDTHS, PRECISIONS)
    ]


@glibc
@pytest.mark.parametrize("kind", "eEfFgGaA")
def test_floats(kind: str) -> None:
    values = (0.0, -0.0, 1.0, -3.14159, 0.1, 1e-310, 5e-324, 1.9999999, 1e22, 255.5, float("inf"), -float("inf"))
    values = (*values, np.float64(np.nan), np.frombuffer(np.uint64(0xFFF8 << 48).tobytes())[0])
    for (spec, flags, width, exact), value in itertools.product(specs(kind), values):
        got = c_format.format_float(float(value), kind, flags, width, exact)
        assert got == of_library(spec, ctypes.c_double(value)), (spec, value)


@glibc
@pytest.mark.parametrize("kind", "diouxX")
@pytest.mark.parametrize("length", ["", "h", "hh", "l", "ll", "z"])
def test_integers(kind: str, length: str) -> None:
    for (spec, flags, width, exact), value in itertools.product(
        specs(length + kind), (0, 1, -1, 300, 70_000, -(1 << 31), 1 << 40)
    ):
        argument = ctypes.c_int64(value) if length in ("l", "ll", "z") else ctypes.c_int(value)
        got = c_format.format_integer(argument.value, kind, length or None, flags, width, exact)
        assert got == of_library(spec, argument), (spec, value)


@glibc
def test_pointers_and_text() -> None:
    for flags, width, value in itertools.product(("", "-"), (0, 4, 20), (0, 255, 1 << 40)):
        spec = f"%{flags}{width or ''}p"
        assert c_format.format_pointer(value, flags, width) == of_library(spec, ctypes.c_void_p(value))
    for flags, width, exact in itertools.product(("", "-"), (0, 4), (None, 0, 2)):
        spec = f"%{flags}{width or ''}{'' if exact is None else f'.{exact}'}s"
        assert c_format.format_text("abc", flags, width, exact) == of_library(spec, ctypes.c_char_p(b"abc"))


PRINT = r"""__global__ void k(int* out, const char* none) {
  printf("[%p|%12p|%p|%a|%.3a|%A|%s|%-7p|%a|%a|%g|%f|%x|%5.3d|%*d|%-*.*f|%q]\n", (void*)0, (void*)0, (void*)255, 1.0,
         3.14159, -0.0, none, (void*)0, 1e-310, 0.1, 1.0 / 0.0 * 0, -1.0 / 0.0, -1, 7, 4, 3, -6, 2, 1.005);
  out[0] = printf("%d%%%c", 5, 'x');
}"""


def test_a_kernel_prints_as_on_an_h200() -> None:
    out = np.zeros(1, np.int32)
    report = run_cuda(PRINT, "k", [out, Scalar("u64", 0)], block=1)
    assert report.output == (
        "[(nil)|       (nil)|0xff|0x1p+0|0x1.922p+1|-0X0P+0|(null)|(nil)  |0x0.012688b70e62bp-1022|"
        "0x1.999999999999ap-4|-nan|-inf|ffffffff|  007|   3|1.00  |%q]\n5%x"
    )
    assert out[0] == 2


def test_what_is_printed_must_have_been_written() -> None:
    text = r"""__global__ void k(int* out, int n) { __shared__ int s[32]; int l[4];
      if (threadIdx.x < 2) s[threadIdx.x] = n;
      l[n & 1] = n; __syncwarp(); if (threadIdx.x < n) printf("%d\n", WHAT); }"""
    given = [np.zeros(1, np.int32), Scalar("s32", 2)]
    assert run_cuda(text.replace("WHAT", "s[threadIdx.x]"), "k", given, outputs={0: False}).output == "2\n2\n"
    with pytest.raises(
        UninitializedRead, match=r"printf: thread \(0, 0, 0\).*prints argument 1, .*shared memory at byte"
    ):
        run_cuda(text.replace("WHAT", "s[threadIdx.x + 2]"), "k", given, outputs={0: False})
    with pytest.raises(UninitializedRead, match=r"printf: thread \(0, 0, 0\).*prints argument 2"):
        run_cuda(text.replace("%d", "%d %d").replace("WHAT", "n, l[3 - n]"), "k", given, outputs={0: False})
