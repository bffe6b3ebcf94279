"""Copies of global memory that nothing has written: no error by themselves, and none where padding is copied."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import compiled
from warptile.emulator import DEFAULT_CHECKS, EmulationReport, emulate
from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.errors import UninitializedRead
from warptile.launch.access import Access
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec

THREADS = 64
SCHEDULES = ("latest", "earliest", "random:5")

HEAD = """#include <cuda_fp16.h>
#include <cuda_pipeline.h>
struct Padded { float v; char c; };                  // 3 bytes behind c
struct __align__(16) Vector3 { float3 v; };          // 4 bytes behind z
struct __align__(32) Wide { float4 v; };             // 16 bytes, which are loaded alone
struct Mixed { char c; double d; float f; };         // 7 bytes behind c, 4 behind f
struct List { int n; int items[7]; };                // items behind the n-th hold nothing
template <typename T> __device__ void set(T& x, int t);
template <> __device__ void set(Padded& x, int t) { x.v = t; x.c = t; }
template <> __device__ void set(Vector3& x, int t) { x.v.x = t; x.v.y = t + 1; x.v.z = t + 2; }
template <> __device__ void set(Wide& x, int t) { x.v = make_float4(t, t, t, t); }
template <> __device__ void set(Mixed& x, int t) { x.c = t; x.d = t; x.f = t; }
template <> __device__ void set(List& x, int t) { x.n = t % 7; for (int i = 0; i < x.n; ++i) x.items[i] = t; }
__device__ int value(const Padded& x) { return x.v == x.c ? int(x.v) : -1; }
__device__ int value(const Vector3& x) { return x.v.x + 1 == x.v.y && x.v.x + 2 == x.v.z ? int(x.v.x) : -1; }
__device__ int value(const Wide& x) { return x.v.x == x.v.w ? int(x.v.x) : -1; }
__device__ int value(const Mixed& x) { return x.c == x.d && x.d == x.f ? int(x.d) : -1; }
__device__ int value(const List& x) { int s = 0; for (int i = 0; i < x.n; ++i) s += x.items[i]; return s; }

template <typename T> __global__ void fill(T* y, const T* x) { set(y[threadIdx.x], threadIdx.x); }
template <typename T> __global__ void read(int* y, const T* x) { y[threadIdx.x] = value(x[threadIdx.x ^ 1]); }
"""

COPIES = {
    "from global memory": "y[t] = x[t];",
    "through registers that lanes exchange": (
        "T r = x[t]; int* w = reinterpret_cast<int*>(&r);"
        "for (int i = 0; i < int(sizeof(T) / 4); ++i) w[i] = __shfl_xor_sync(~0u, w[i], 0); y[t] = r;"
    ),
    "one of two": "T r = t % 3 ? x[t] : x[THREADS - 1 - t]; if (t % 3 == 0) r = x[t]; y[t] = r;",
    "through local memory": "T l[4]; for (int i = 0; i < 4; ++i) l[(t + i) % 4] = x[t]; y[t] = l[t / 7 % 4];",
    "through shared memory": (
        "__shared__ T s[THREADS]; s[t] = x[t]; __syncthreads(); T r = s[t ^ 1]; __syncthreads(); s[t ^ 1] = r;"
        "__syncthreads(); y[t] = s[t];"
    ),
    "by cp.async": (
        "__shared__ T s[THREADS]; __pipeline_memcpy_async(s + t, x + t, sizeof(T)); __pipeline_commit();"
        "__pipeline_wait_prior(0); __syncthreads(); T r = s[t ^ 1]; y[t ^ 1] = r;"
    ),
    "by bulk copies": (
        "__shared__ alignas(128) T s[THREADS]; __shared__ alignas(8) unsigned long long b;"
        "unsigned at = __cvta_generic_to_shared(s), bar = __cvta_generic_to_shared(&b), all = sizeof(s), ok = 0;"
        'if (t == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;"'
        ' :: "r"(bar) : "memory");'
        'asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(all) : "memory");'
        'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"'
        ' :: "r"(at), "l"(x), "r"(all), "r"(bar) : "memory"); }'
        "__syncthreads();"
        'while (!ok) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;'
        ' selp.u32 %0, 1, 0, p;}" : "=r"(ok) : "r"(bar) : "memory");'
        'if (t == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;'
        ' cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" :: "l"(y), "r"(at), "r"(all) : "memory");'
    ),
}  # fmt: skip


class Device:
    """Device memory, and launches of kernels of two arrays in it."""

    def __init__(self) -> None:
        self.memory = DeviceMemory()

    def array(self, name: str, size: int) -> int:
        return self.memory.allocate(name, size)

    def run(self, text: str, name: str, *addresses: int, **options: object) -> EmulationReport:
        text = HEAD.replace("template <typename T> __global__ void fill", f"#define THREADS {THREADS}\n{text}\n"
                            "template <typename T> __global__ void fill")  # fmt: skip
        entry, module = compiled(text, name, "sm_90a")
        arguments = tuple(Scalar("u64", address) for address in addresses)
        spec = LaunchSpec(entry, (1, 1, 1), (THREADS, 1, 1), arguments)
        return emulate(module, spec, {}, arch="sm_90a", device=self.memory, **options)  # type: ignore[arg-type]


def kernel(body: str, declaration: str = "template <typename T>", types: str = "T* y, const T* x") -> str:
    return f"{declaration} __global__ void k({types}) {{ const int t = threadIdx.x; {body} }}"


SIZES = {"Padded": 8, "Vector3": 16, "Wide": 32, "Mixed": 24, "List": 32}


def expected(kind: str) -> list[int]:
    threads = [t ^ 1 for t in range(THREADS)]
    return [t * (t % 7) for t in threads] if kind == "List" else threads


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("way", COPIES)
def test_a_struct_is_copied_with_its_padding(kind: str, way: str) -> None:
    """What is undefined of it stays so in the copy, and what is not can be used there."""
    if way == "by cp.async" and SIZES[kind] not in (8, 16):
        pytest.skip("cp.async copies 4, 8 or 16 bytes")
    if kind == "List" and way == "by bulk copies":
        pytest.skip("what is stored from shared memory to global memory is undefined where it is no padding")
    device = Device()
    size = THREADS * SIZES[kind]
    x, y, out = device.array("x", size), device.array("y", size), device.array("out", 4 * THREADS)
    device.run("", f"fill<{kind}>", x, x)
    device.run(kernel(COPIES[way]), f"k<{kind}>", y, x)
    assert device.memory.unwritten(y, size) == device.memory.unwritten(x, size) > 0
    device.run("", f"read<{kind}>", out, y)
    assert np.frombuffer(device.memory.read(out, 4 * THREADS), np.int32).tolist() == expected(kind)


USES = {
    "arithmetic": ("y[t] = x[t] + 1;", "st.global"),
    "a conversion": ("y[t] = reinterpret_cast<const unsigned char*>(x)[t];", "st.global"),
    "a conversion of a wider load": ("y[t] = x[t] >> 8;", "st.global"),
    "masked bits": ("y[t] = x[t] & 0xFF;", "st.global"),
    "a float": ("y[t] = __half2float(reinterpret_cast<const __half*>(x)[t]);", "st.global"),
    "one of two that nobody can choose": ("y[t] = x[t] ? t : 7;", "st.global"),
    "a branch": ("if (x[t] > 3) y[t] = 1; else atomicAdd(y, 2);", "@%p1 bra"),
    "an address": ("y[x[t] & 63] = 1;", "st.global"),
    "an atomic operand": ("atomicAdd(y + t, x[t]);", "red|atom"),
    "an atomic on it": ("atomicAdd(const_cast<int*>(x) + t, 1);", "red|atom"),
    "a vector of which one part is computed": (
        "int4 v = reinterpret_cast<const int4*>(x)[t / 4]; if (t == 0) { v.y = 1; v.z = 2; v.w = 3; v.x *= 5;"
        "*reinterpret_cast<int4*>(y) = v; }",
        "st.global",
    ),
    "through shared memory": ("__shared__ int s[THREADS]; s[t] = x[t]; __syncthreads(); y[t] = s[t ^ 1] * 3;", "st"),
    "through local memory": ("int l[4] = {}; l[t & 3] = x[t]; y[t] = l[t & 1] + l[(t + 1) & 3];", "st.global"),
    "by cp.async": (
        "__shared__ int s[THREADS]; __pipeline_memcpy_async(s + t, x + t, 4); __pipeline_commit();"
        "__pipeline_wait_prior(0); __syncthreads(); y[t] = s[t ^ 1] + 1;",
        "st.global",
    ),
    "a reduction": ("int w = x[t]; for (int i = 16; i; i /= 2) w += __shfl_xor_sync(~0u, w, i); y[t] = w;", "st"),
    "a vote": ("y[t] = __any_sync(~0u, x[t]);", "st.global|setp"),
    "a shuffle from a lane that it names": ("y[t] = __shfl_sync(~0u, t, x[t] & 31);", "st.global"),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", USES)
def test_what_depends_on_it_is_an_error_that_names_the_read(name: str, schedule: str) -> None:
    """As in a program whose input was allocated and never copied to the device."""
    body, instruction = USES[name]
    device = Device()
    x, y = device.array("x", 4 * THREADS), device.memory.place("y", np.zeros(THREADS, np.int32))
    pattern = rf"^({instruction}).*global memory at x\+\d+, which nothing has written"
    with pytest.raises(UninitializedRead, match=pattern) as raised:
        device.run(kernel(body, "", "int* y, const int* x"), "k", y, x, schedule=schedule)
    if name != "an atomic on it":
        first, location = raised.value.first, raised.value.location
        assert first is not None
        assert location is not None
        assert first.callers[-1:] in ((), (("kernel.cu", location.line),))
        assert first.ptx_line <= location.ptx_line


@pytest.mark.parametrize("interpreted", [False, True])
def test_what_is_written_is_not_reported_again(interpreted: bool) -> None:
    """A use is one finding, of both lines; what it has written counts as written from then on."""
    device = Device()
    x, y, z = (device.array(name, 8 * THREADS) for name in "xyz")
    twice = kernel("int w = x[t];\n y[t] = w + 1;\n y[t + 64] = w * 3;", "", "int* y, const int* x")
    report = device.run(twice, "k", y, x, collect=True, interpreted=interpreted)
    lines = [(each.first.line, each.location.line) for each in report.findings if each.first and each.location]
    assert len(lines) == len(report.findings) == 2
    assert len({first for first, _ in lines}) == 1
    assert device.run(twice, "k", z, y, collect=True, interpreted=interpreted).findings == ()


@pytest.mark.parametrize("interpreted", [False, True])
def test_compiled_and_interpreted_launches_find_the_same(interpreted: bool) -> None:
    """Where some of many threads read what nothing has written, in a loop that is worth compiling."""
    device = Device()
    x, y = device.array("x", 4 * THREADS), device.array("y", 8 * THREADS)
    device.memory.fill(x, bytes(4), THREADS - 3)
    body = "int w = t; for (int i = 0; i < 2000; ++i) w = (w ^ w >> 3) * 5 + i; y[t] = x[t]; y[t + 64] = w + x[t];"
    report = device.run(kernel(body, "", "int* y, const int* x"), "k", y, x, collect=True, interpreted=interpreted)
    assert [(each.kind, each.count) for each in report.findings] == [("UninitializedRead", 1)]
    assert device.memory.unwritten(y, 4 * THREADS) == device.memory.unwritten(y, 8 * THREADS) == 12


def run_on_host_array(body: str, y: np.ndarray, **options: object) -> EmulationReport:
    entry, module = compiled(HEAD + f"__global__ void h(int* y) {{ const int t = threadIdx.x; {body} }}", "h", "sm_90a")
    spec = LaunchSpec(entry, (1, 1, 1), (32, 1, 1), (Pointer("y"),))
    accesses = {"y": Access(writes=True)}
    return emulate(module, spec, {"y": y}, accesses=accesses, arch="sm_90a", **options)  # type: ignore[arg-type]


def test_what_the_host_reads_must_have_been_written_but_for_padding() -> None:
    """An array of the caller gets whole values, though a kernel may copy structs into it."""
    allocate = "__shared__ int4* p; if (t == 0) p = (int4*)malloc(32 * 16); __syncthreads(); p[t].x = t; p[t].z = 5;"
    free = "__syncthreads(); if (t == 0) free(p);"
    y = np.zeros(128, np.int32)
    report = run_on_host_array(f"{allocate} reinterpret_cast<int4*>(y)[t] = p[t]; {free}", y, collect=True)
    assert report.findings == ()
    assert y.reshape(32, 4)[:, 0].tolist() == list(range(32))
    with pytest.raises(UninitializedRead, match=r"st.global.*global memory at malloc 1 \(.*\)\+4, which nothing"):
        run_on_host_array(f"{allocate} y[t] = p[t].y; {free}", y)


OWN = {
    "shared memory": "__shared__ T s[32]; set(s[t], t); __syncthreads(); T r = s[t ^ 1];",
    "local memory": "T l[4]; for (int i = 0; i < y[0] + 4; ++i) set(l[i], (t ^ 1) - 2 + i); T r = l[y[0] + 2];",
}


@pytest.mark.parametrize("kind", ["Padded", "Vector3", "Mixed"])
@pytest.mark.parametrize("where", OWN)
def test_structs_of_shared_and_local_memory_are_copied_with_their_padding(where: str, kind: str) -> None:
    y = np.zeros(32 * SIZES[kind] // 4, np.int32)
    body = f"using T = {kind}; {OWN[where]} __syncthreads(); reinterpret_cast<T*>(y)[t] = r;"
    assert run_on_host_array(body, y, collect=True).findings == ()
    if kind == "Vector3":
        assert y.view(np.float32).reshape(32, 4)[:, 0].tolist() == expected(kind)[:32]


def test_a_tail_that_is_missing_is_no_padding() -> None:
    """Of a tile that is copied by vectors the last one is not full: lanes lack different bytes."""
    body = (
        "__shared__ alignas(16) int s[128]; for (int i = t; i < 9; i += 32) s[i] = i; __syncthreads();"
        "if (t < 3) reinterpret_cast<int4*>(y)[t] = reinterpret_cast<int4*>(s)[t];"
    )
    with pytest.raises(UninitializedRead, match=r"st.global.*thread \(2, 0, 0\).*shared memory at byte 1060"):
        run_on_host_array(body, np.zeros(128, np.int32))
    run_on_host_array(body, np.zeros(128, np.int32), checks=DEFAULT_CHECKS - {"uninitialised"})
