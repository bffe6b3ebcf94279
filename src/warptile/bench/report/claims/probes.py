"""Small programs behind factual claims: CUDA C++ for the compiler, PTX for the emulator.

A PTX probe is the body of a kernel of one warp. It has the address of an array of 32-bit words in ``%rd0`` (named
``data``), the lane's word of it in ``%r0``, the lane in ``%r1`` and 8 KB of shared memory called ``tile``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from warptile.codegen.nvrtc import compile_source, compiler_version
from warptile.codegen.translation_unit import Source
from warptile.emulator import DEFAULT_CHECKS, EmulationReport, emulate
from warptile.errors import CompileError, EmulationError
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

ARCH = "sm_90a"
WARP = 32
WORDS = 8 * WARP
"""Words of a probe's array."""

# --- for the compiler ---

LDMATRIX = """
#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"
template <int> __global__ void probe(unsigned* d) {
    __shared__ alignas(16) unsigned tile[128];
    for (int i = threadIdx.x; i < 128; i += 32) tile[i] = d[i];
    __syncthreads();
    unsigned words[4];
    warptile::ldmatrix_x4<false>(words, warptile::shared_address(&tile[threadIdx.x * 4]));
    for (int i = 0; i < 4; ++i) d[threadIdx.x * 4 + i] = words[i];
}
"""

ILLEGAL_SHAPE = """
template <int> __global__ void probe(float* d, const unsigned* a) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
}
"""

STATIC_SHARED = """
template <int BYTES> __global__ void probe(char* d) {
    __shared__ char buffer[BYTES];
    buffer[BYTES - 1 - threadIdx.x] = d[threadIdx.x];
    __syncthreads();
    d[threadIdx.x] = buffer[BYTES - 1 - (threadIdx.x ^ 1)];
}
"""

_WGMMA = """
template <int> __global__ void probe(float* d, const unsigned* a, unsigned long long x, unsigned long long y) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%%0, %%1, %%2, %%3}, %s, 1, 1, 1, %s;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(x), "l"(y), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
}
"""
WGMMA_OPERANDS = {
    "shared, shared": _WGMMA % ("%4, %5", "0, 0"),
    "register, shared": _WGMMA % ("{%6, %7, %8, %9}, %5", "0"),
    "shared, register": _WGMMA % ("%4, {%6, %7}", "0"),
}
"""wgmma with A and B given as descriptors (operands 4 and 5) or as registers (6 and following)."""


@cache
def refusal(text: str, name: str, arch: str) -> str:
    """Why the compiler refuses a kernel; empty if it does not.

    Raises:
        CompileError: NVRTC is not installed.
    """
    compiler_version()  # or else a missing compiler would pass for a refusal
    try:
        compile_source(Source(text, name, may_serialise=True), arch, cache=None)
    except CompileError as error:
        return str(error)
    return ""


# --- for the emulator ---

_HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry probe(.param .u64 data)
{
    .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .f32 %f<16>; .reg .b64 %rd<8>;
    .shared .align 128 .b8 tile[8192];
    ld.param.u64 %rd0, [data];
    cvta.to.global.u64 %rd0, %rd0;
    mov.u32 %r1, %laneid;
    mul.wide.u32 %rd1, %r1, 4;
    add.s64 %rd1, %rd0, %rd1;
    ld.global.u32 %r0, [%rd1];
"""
HEAD_BYTES = 4 * WARP
"""What the common head loads from global memory."""

_TAIL = "\n    ret;\n}\n"


def run(
    body: str, words: NDArray[np.uint32] | None = None, checks: frozenset[str] = DEFAULT_CHECKS
) -> tuple[EmulationReport, NDArray[np.uint32]]:
    """Emulate a PTX probe.

    Args:
        body: PTX after the common head.
        words: what the array holds; zeros by default.
        checks: as of `warptile.emulator.emulate`.

    Returns:
        The report and the array afterwards.

    Raises:
        EmulationError: what the emulator reports.
    """
    data = np.zeros(WORDS, np.uint32)
    if words is not None:
        data[: len(words)] = words
    spec = LaunchSpec("probe", (1, 1, 1), (WARP, 1, 1), (Pointer("data"),))
    module = parse(_HEAD + body + _TAIL)
    report = emulate(module, spec, {"data": data}, accesses={"data": Access(writes=True)}, arch=ARCH, checks=checks)
    return report, data


def reported(body: str, words: NDArray[np.uint32] | None = None, checks: frozenset[str] = DEFAULT_CHECKS) -> str:
    """The class of the error that the emulator reports for a probe; empty if there is none."""
    try:
        run(body, words, checks)
    except EmulationError as error:
        return type(error).__name__
    return ""


@cache
def ldmatrix_wavefronts(offsets: tuple[int, ...]) -> int:
    """Shared-memory wavefronts of one 8 x 8 matrix whose rows start at these byte offsets."""
    body = """
    add.u32 %r2, %r0, tile;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];
    st.global.u32 [%rd1], %r3;"""
    words = np.resize(np.array(offsets, np.uint32), WARP)
    report, _ = run(body, words, frozenset())
    return int(report.counters["shared_load_wavefronts"])
