"""Copies of global memory that nothing has written: no error by themselves, and none where padding is copied."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from covering import alternating
from emulation import compiled
from warptile.emulator import DEFAULT_CHECKS, EmulationReport, emulate
from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.emulator.memory.undefined_copies import UnwrittenBytes
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
struct KeyValue { int key; double value; };          // 4 bytes behind key
struct Fields { unsigned low : 3, high : 4; };       // of a word, 25 bits hold nothing
struct __align__(128) Line { int v; };               // 124 bytes, most of which are loaded alone
template <typename T> __device__ void set(T& x, int t);
template <> __device__ void set(Padded& x, int t) { x.v = t; x.c = t; }
template <> __device__ void set(Vector3& x, int t) { x.v.x = t; x.v.y = t + 1; x.v.z = t + 2; }
template <> __device__ void set(Wide& x, int t) { x.v = make_float4(t, t, t, t); }
template <> __device__ void set(Mixed& x, int t) { x.c = t; x.d = t; x.f = t; }
template <> __device__ void set(List& x, int t) { x.n = t % 7; for (int i = 0; i < x.n; ++i) x.items[i] = t; }
template <> __device__ void set(KeyValue& x, int t) { x.key = t; x.value = t; }
template <> __device__ void set(Fields& x, int t) { x.high = t / 8; x.low = t % 8; }
template <> __device__ void set(Line& x, int t) { x.v = t; }
__device__ int value(const Padded& x) { return x.v == x.c ? int(x.v) : -1; }
__device__ int value(const Vector3& x) { return x.v.x + 1 == x.v.y && x.v.x + 2 == x.v.z ? int(x.v.x) : -1; }
__device__ int value(const Wide& x) { return x.v.x == x.v.w ? int(x.v.x) : -1; }
__device__ int value(const Mixed& x) { return x.c == x.d && x.d == x.f ? int(x.d) : -1; }
__device__ int value(const List& x) { int s = 0; for (int i = 0; i < x.n; ++i) s += x.items[i]; return s; }
__device__ int value(const KeyValue& x) { return x.key == x.value ? x.key : -1; }
__device__ int value(const Fields& x) { return x.high * 8 + x.low; }
__device__ int value(const Line& x) { return x.v; }
template <typename T> __device__ __noinline__ T either(T a, T b, int t) { return t % 3 ? a : b; }

template <typename T> __global__ void fill(T* y, const T* x) { set(y[threadIdx.x], threadIdx.x); }
template <typename T> __global__ void read(int* y, const T* x) { y[threadIdx.x] = value(x[threadIdx.x ^ 1]); }
"""

COPIES = {
    "from global memory": "y[t] = x[t];",
    "by memcpy": "memcpy(y + t, x + t, sizeof(T));",
    "byte by byte": (
        "auto b = reinterpret_cast<const char*>(x); auto c = reinterpret_cast<char*>(y);"
        "for (int i = t; i < int(THREADS * sizeof(T)); i += THREADS) c[i] = b[i];"
    ),
    "word by word": (
        "auto b = reinterpret_cast<const int*>(x); auto c = reinterpret_cast<int*>(y);"
        "for (int i = t; i < int(THREADS * sizeof(T) / 4); i += THREADS) c[i] = b[i];"
    ),
    "by vectors, through the read-only path": (
        "auto b = reinterpret_cast<const int4*>(x); auto c = reinterpret_cast<int4*>(y);"
        "for (int i = t; i < int(THREADS * sizeof(T) / 16); i += THREADS) c[i] = __ldg(b + i);"
    ),
    "by a function": "y[t] = either(x[t], x[THREADS - 1 - t], t); y[t] = either(x[t], y[t], 1);",
    "in a sort": (
        "__shared__ T s[THREADS]; s[t] = x[t]; __syncthreads();"
        "for (int k = 2; k <= THREADS; k *= 2) for (int j = k / 2; j > 0; j /= 2) {"
        " int p = t ^ j; if (p > t && (value(s[t]) > value(s[p])) == !(t & k)) { T r = s[t]; s[t] = s[p]; s[p] = r; }"
        " __syncthreads(); }"
        "y[t] = s[t];"
    ),
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

    def run(self, text: str, name: str, *addresses: int, blocks: int = 1, **options: object) -> EmulationReport:
        text = HEAD.replace("template <typename T> __global__ void fill", f"#define THREADS {THREADS}\n{text}\n"
                            "template <typename T> __global__ void fill")  # fmt: skip
        entry, module = compiled(text, name, "sm_90a")
        arguments = tuple(Scalar("u64", address) for address in addresses)
        spec = LaunchSpec(entry, (blocks, 1, 1), (THREADS, 1, 1), arguments)
        return emulate(module, spec, {}, arch="sm_90a", device=self.memory, **options)  # type: ignore[arg-type]


def kernel(body: str, declaration: str = "template <typename T>", types: str = "T* y, const T* x") -> str:
    return f"{declaration} __global__ void k({types}) {{ const int t = threadIdx.x; {body} }}"


SIZES = {
    "Padded": 8, "Vector3": 16, "Wide": 32, "Mixed": 24, "List": 32, "KeyValue": 16, "Fields": 4, "Line": 128,
}  # fmt: skip


GAPS = {
    "Padded": "5 to 7 of every 8", "Vector3": "12 to 15 of every 16", "Wide": "16 to 31 of every 32",
    "Mixed": "1 to 7, 20 to 23 of every 24", "KeyValue": "4 to 7 of every 16", "Fields": "1 to 3 of every 4",
    "Line": "4 to 127 of every 128",
}  # fmt: skip


def expected(kind: str) -> list[int]:
    threads = [t ^ 1 for t in range(THREADS)]
    return [t * (t % 7) for t in threads] if kind == "List" else threads


def is_copied(kind: str, way: str) -> bool:
    """Whether a struct can be copied so: ``cp.async`` copies 4, 8 or 16 bytes; what is stored from shared memory is
    undefined where it is no padding; some lists have no order."""
    if way == "by cp.async":
        return SIZES[kind] in (8, 16)
    return kind != "List" or way not in ("by bulk copies", "in a sort")


@pytest.mark.parametrize(
    ("kind", "way"), alternating([each for each in product(SIZES, COPIES) if is_copied(*each)]), ids=str
)
def test_a_struct_is_copied_with_its_padding(kind: str, way: str) -> None:
    """What is undefined of it stays so in the copy, and what is not can be used there."""
    device = Device()
    size = THREADS * SIZES[kind]
    x, y, out = device.array("x", size), device.array("y", size), device.array("out", 4 * THREADS)
    device.run("", f"fill<{kind}>", x, x)
    device.run(kernel(COPIES[way]), f"k<{kind}>", y, x)
    assert device.memory.unwritten(y, size) == device.memory.unwritten(x, size) > 0
    if kind != "List":
        found = device.memory.look_at_unwritten(y, size)
        assert found is not None
        assert not found.value
        assert found.gaps == GAPS[kind]
    device.run("", f"read<{kind}>", out, y)
    assert np.frombuffer(device.memory.read(out, 4 * THREADS), np.int32).tolist() == expected(kind)


USES = {
    "arithmetic": ("y[t] = x[t] + 1;", "st.global"),
    "a conversion": ("y[t] = reinterpret_cast<const unsigned char*>(x)[t];", "st.global"),
    "a conversion of a wider load": ("y[t] = x[t] >> 8;", "st.global"),
    "bits that are shifted": ("y[t] = x[t] * 4;", "st.global"),
    "bytes that are shifted": ("y[t] = x[t] << 8;", "st.global"),
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


def test_padding_may_hold_in_some_lanes_what_was_there_before() -> None:
    """Shared memory is used twice: of a few structs the padding was written by its first use, as something else."""
    body = (
        "__shared__ Padded s[32]; for (int i = t; i < 2 * @; i += 32) reinterpret_cast<int*>(s)[i] = t; __syncwarp();"
        "set(s[t], t); __syncwarp(); reinterpret_cast<Padded*>(y)[t] = s[t ^ 1];"
    )
    for reused in ("4", "16"):
        y = np.zeros(64, np.int32)
        assert run_on_host_array(body.replace("@", reused), y, collect=True).findings == ()
        assert y.view(np.float32)[::2].tolist() == [t ^ 1 for t in range(32)]
    with pytest.raises(UninitializedRead, match=r"shared memory at byte \d+, which nothing has written"):
        run_on_host_array(body.replace("@", "20"), y)


def test_a_tail_that_is_missing_is_no_padding() -> None:
    """Of a tile that is copied by vectors the last one is not full: lanes lack different bytes."""
    body = (
        "__shared__ alignas(16) int s[128]; for (int i = t; i < 9; i += 32) s[i] = i; __syncthreads();"
        "if (t < 3) reinterpret_cast<int4*>(y)[t] = reinterpret_cast<int4*>(s)[t];"
    )
    with pytest.raises(UninitializedRead, match=r"st.global.*thread \(2, 0, 0\).*shared memory at byte 1060"):
        run_on_host_array(body, np.zeros(128, np.int32))
    run_on_host_array(body, np.zeros(128, np.int32), checks=DEFAULT_CHECKS - {"uninitialised"})


BUGS = {
    "a scalar that is copied, in a sum": ("float v = x[t];", "y[t] = v + 1;"),
    "a branch": ("float v = x[t];", "if (v > 3) y[t] = 1; else atomicAdd(y, 1.f);"),
    "an index": ("int v = reinterpret_cast<const int*>(x)[t] & 63;", "y[v] = 1;"),
    "a sum of which the last elements are missing": (
        "float v = 0; for (int i = t; i < 100; i += THREADS) v += x[i];", "y[t] = v;",
    ),
    "a sum over a warp": (
        "float v = x[t];", "for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i); y[t] = v;",
    ),
    "a product": (
        "using namespace nvcuda; wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;"
        "wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;"
        "wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; wmma::fill_fragment(c, 0); wmma::fill_fragment(b, 1);"
        "wmma::load_matrix_sync(a, reinterpret_cast<const __half*>(x), 16);",
        "wmma::mma_sync(c, a, b, c); if (t < 32) wmma::store_matrix_sync(y, c, 16, wmma::mem_row_major);",
    ),
    "a field of bits": ("const Fields* f = reinterpret_cast<const Fields*>(x); int v = f[t].high;", "y[t] = v;"),
}  # fmt: skip


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("name", BUGS)
def test_bugs_are_found_at_their_lines(name: str, interpreted: bool) -> None:
    """Of an array of which the first 98 elements, or half of those that are read, have been written."""
    reads, uses = BUGS[name]
    device = Device()
    x, y = device.array("x", 4096), device.memory.place("y", np.zeros(1024, np.float32))
    device.memory.fill(x, bytes(4), 98 if "last" in name else 32)
    head = "#include <mma.h>\n__global__ void k(float* y, const float* x) { const int t = threadIdx.x;"
    text = f"{head}\n{reads}\n{uses}\n}}"
    report = device.run(text, "k", y, x, collect=True, interpreted=interpreted)
    assert {each.kind for each in report.findings} == {"UninitializedRead"}
    start = HEAD.split("template <typename T> __global__ void fill")[0].count("\n") + 3
    for found in report.findings:
        place = re.search(r"from global memory at x\+(\d+), which nothing has written", found.message)
        assert place is not None
        assert int(place[1]) >= (392 if "last" in name else 128)
        assert found.first is not None
        assert found.location is not None
        own = [(at.callers[-1][1] if at.callers else at.line) - start for at in (found.first, found.location)]
        assert own == [1, 2]


COPIES_OF_VALUES = {
    "all of an array": ("y[t] = x[t];", 0, 256, ""),
    "its last element": ("y[t] = x[t];", 63, 4, ""),
    "a part of every struct": ("reinterpret_cast<int2*>(y)[t] = make_int2(t, x[t]);", 0, 128, "4 to 7 of every 8"),
    "through shared memory": ("__shared__ int s[THREADS]; s[t] = x[t]; __syncthreads(); y[t] = s[t ^ 1];", 0, 256, ""),
    "by bulk copies": (COPIES["by bulk copies"].replace("T s", "int s"), 0, 256, ""),
    "a part that is chosen": ("y[t] = t < 40 ? x[t] : t;", 33, 28, ""),
    "bytes that are swapped": ("y[t] = __byte_perm(x[t], 0, 0x0123);", 8, 224, ""),
}


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("name", COPIES_OF_VALUES)
def test_values_that_are_copied_are_no_padding(name: str, interpreted: bool) -> None:
    """For the host, which is told where a kernel has read them; also of a copy of the copy, until it is written."""
    body, written, count, gaps = COPIES_OF_VALUES[name]
    device = Device()
    x, y, z = (device.array(name, 512) for name in "xyz")
    device.memory.fill(x, bytes(4), written)
    run = kernel(f"\n\n{body}", "", "int* y, const int* x")
    device.run(run, "k", y, x, interpreted=interpreted)
    device.memory.copy(z, y, 512)
    device.run(kernel("y[t] = x[t];", "", "int* y, const int* x"), "k", x, z, interpreted=interpreted)
    for place, size in ((y, 256), (z, 256), (x, 256)):
        found = device.memory.look_at_unwritten(place, size)
        assert found is not None
        assert found.copied is not None
        assert (found.count, found.value, found.gaps) == (count, True, gaps)
        assert f"from global memory at x+{4 * written}" in found.copied.read
        assert found.copied.first is not None
    (again,) = device.run(
        kernel("y[t] = x[t] * 3;", "", "int* y, const int* x"), "k", y, z, collect=True, interpreted=interpreted
    ).findings
    assert "from global memory at z+" in again.message
    assert f"where a kernel has put what was {found.copied.read}" in again.message
    device.memory.fill(z, b"\7", 256)
    assert device.memory.look_at_unwritten(z, 256) is None


def test_what_nobody_has_copied_is_only_unwritten() -> None:
    device = Device()
    x = device.array("x", 256)
    assert device.memory.look_at_unwritten(x, 64) == UnwrittenBytes(64, None, False, "")
    device.memory.fill(x, bytes(4), 16)
    assert device.memory.look_at_unwritten(x, 64) is None


@pytest.mark.parametrize("interpreted", [False, True])
def test_a_partial_vector_beside_padding_is_a_value(interpreted: bool) -> None:
    """Structs are copied by more threads than have been filled: what the host reads of them decides."""
    device = Device()
    x, y = device.array("x", 16 * THREADS), device.array("y", 16 * THREADS)
    device.run(
        "__global__ void some(KeyValue* x) { if (threadIdx.x < 40) set(x[threadIdx.x], threadIdx.x); }", "some", x
    )
    device.run(kernel("y[t] = x[t];"), "k<KeyValue>", y, x, interpreted=interpreted)
    found = [device.memory.look_at_unwritten(y, size) for size in (40 * 16, THREADS * 16)]
    assert [each and (each.count, each.value) for each in found] == [(160, False), (160 + 24 * 16, True)]


@pytest.mark.parametrize("interpreted", [False, True])
def test_fields_of_bits_are_written_one_by_one(interpreted: bool) -> None:
    """By launches of which each starts again as soon as it reads the word that it changes a part of."""
    device = Device()
    x, out = device.array("x", 4 * THREADS), device.array("out", 4 * THREADS)
    for body in ("x[t].low = t % 8;", "x[t].high = t / 8;"):
        device.run(kernel(body, "", "Fields* x"), "k", x, interpreted=interpreted)
    device.run("", "read<Fields>", out, x, interpreted=interpreted)
    assert np.frombuffer(device.memory.read(out, 4 * THREADS), np.int32).tolist() == expected("Fields")
    with pytest.raises(UninitializedRead, match=r"st.global.*global memory at x\+0, which nothing"):
        device.run(
            kernel("y[t] = *reinterpret_cast<const int*>(x + t) >> 6;", "", "int* y, const Fields* x"), "k", out, x
        )


GRID_SYNC = """
__device__ void grid_sync(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence(); atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) {}
    __threadfence();
  }
  __syncthreads();
}
__global__ void both(KeyValue* y, KeyValue* x, unsigned* arrived) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  set(x[i], i); grid_sync(arrived); y[i] = x[2 * THREADS - 1 - i];
}
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("interpreted", [False, True])
def test_structs_are_written_and_copied_by_one_launch(schedule: str, interpreted: bool) -> None:
    device = Device()
    size = 2 * THREADS * 16
    x, y, out = device.array("x", size), device.array("y", size), device.array("out", 4 * THREADS)
    arrived = device.memory.place("arrived", np.zeros(1, np.uint32))
    options = {"schedule": schedule, "interpreted": interpreted}
    assert device.run(GRID_SYNC, "both", y, x, arrived, blocks=2, collect=True, **options).findings == ()
    assert device.memory.unwritten(y, size) == 4 * 2 * THREADS
    device.run("", "read<KeyValue>", out, y, **options)
    assert np.frombuffer(device.memory.read(out, 16), np.int32).tolist() == [126, 127, 124, 125]


def test_memory_is_the_same_after_a_compiled_and_an_interpreted_launch() -> None:
    """Bytes, what is known of them, counters and findings, where padding, values and fields of bits are copied."""
    left = []
    body = (
        "int w = t; for (int i = 0; i < 2000; ++i) w = (w ^ w >> 3) * 5 + i; z[t + 64] = w;"
        "y[t] = x[t]; z[t] = v[t]; f[t].high = t / 8; f[t].low = t % 8; if (v[t] == w) z[t] = 1;"
    )
    for interpreted in (False, True):
        device = Device()
        x, y = device.array("x", 16 * THREADS), device.array("y", 16 * THREADS)
        v, z, f = (device.array(name, 8 * THREADS) for name in "vzf")
        device.memory.fill(v, bytes(4), THREADS - 3)
        device.run("", "fill<KeyValue>", x, x)
        types = "KeyValue* y, const KeyValue* x, const int* v, int* z, Fields* f"
        report = device.run(kernel(body, "", types), "k", y, x, v, z, f, collect=True, interpreted=interpreted)
        space = device.memory.space
        found = [(each.message, each.count) for each in report.findings]
        left.append((space.data.tobytes(), space.shadow.tobytes(), report.counters, report.steps, found))
    assert left[0] == left[1]
    assert len(left[0][-1]) == 1


def test_zero_fill_of_a_copy_takes_the_place_of_padding() -> None:
    device = Device()
    x, y = device.array("x", 16 * THREADS), device.array("y", 16 * THREADS)
    device.run("", "fill<Vector3>", x, x)
    copy = (
        "__shared__ Vector3 s[THREADS]; __pipeline_memcpy_async(s + t, x + t, 16, 4); __pipeline_commit();"
        "__pipeline_wait_prior(0); __syncthreads(); y[t] = s[t ^ 1];"
    )
    device.run(kernel(copy, "", "Vector3* y, const Vector3* x"), "k", y, x)
    assert device.memory.unwritten(x, 16 * THREADS) == 4 * THREADS
    assert device.memory.unwritten(y, 16 * THREADS) == 0


def test_the_host_gets_no_value_beside_others_that_nothing_has_written() -> None:
    """A vector that is put together is no struct that is copied."""
    body = (
        "__shared__ int* p; if (t == 0) p = (int*)malloc(1024); __syncthreads();"
        "reinterpret_cast<int4*>(y)[t] = make_int4(t, p[t], t, t); __syncthreads(); if (t == 0) free(p);"
    )
    with pytest.raises(UninitializedRead, match=r"st.global.v4.*global memory at malloc 1 \(.*\)\+0, which nothing"):
        run_on_host_array(body, np.zeros(128, np.int32))


def test_a_bit_that_is_set_makes_no_padding_of_the_others() -> None:
    body = "__shared__ int s[32]; if (t > 40) s[t - 40] = t; __syncthreads(); y[t] = s[t] | 1;"
    with pytest.raises(UninitializedRead, match=r"st.global.*shared memory at byte 1024, which nothing has written"):
        run_on_host_array(body, np.zeros(32, np.int32))
