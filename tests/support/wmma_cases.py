"""WMMA kernels written with <mma.h> for every shape and type, and inputs that show how they add."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from warptile.emulator import DEFAULT_CHECKS, emulate
from warptile.isa import wmma
from warptile.launch.access import Access
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec

CUDA_TYPES = {
    "f16": "half", "bf16": "__nv_bfloat16", "tf32": "wmma::precision::tf32", "f64": "double", "s8": "signed char",
    "u8": "unsigned char", "s4": "wmma::experimental::precision::s4", "u4": "wmma::experimental::precision::u4",
    "b1": "wmma::experimental::precision::b1", "f32": "float", "s32": "int",
}  # fmt: skip
STORAGE = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64, "s8": np.int8,
    "u8": np.uint8, "s4": np.uint8, "u4": np.uint8, "b1": np.uint8, "f32": np.float32, "s32": np.int32,
}  # fmt: skip
"""What an array of the type is in NumPy; types below a byte are packed along k, lowest bits first."""

HEADER = """
#include <mma.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
using namespace nvcuda;
template <typename F> __device__ void dump(const F& fragment, unsigned* out) {
  constexpr int words = sizeof(fragment.x) / 4;
  const unsigned* raw = reinterpret_cast<const unsigned*>(&fragment.x);
  for (int i = 0; i < words; i++) out[(blockIdx.x * 32 + threadIdx.x) * words + i] = raw[i];
}
__device__ void stage(char* to, const char* from, int bytes) {
  for (int i = threadIdx.x; i < bytes; i += 32) to[i] = from[i];
  __syncwarp();
}
"""

KERNEL = """
extern "C" __global__ void {name}(const char* a, const char* b, const char* c, char* d, unsigned* fa, unsigned* fb,
                                  unsigned* fc, int a_bytes, int b_bytes, int c_bytes, int d_bytes) {{
  a += blockIdx.x * a_bytes; b += blockIdx.x * b_bytes; c += blockIdx.x * c_bytes; d += blockIdx.x * d_bytes;
  wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {ab}, wmma::{a_layout}_major> x;
  wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {ab}, wmma::{b_layout}_major> y;
  wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {ct}> z;
  wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {dt}> w;
  {load}
  dump(x, fa); dump(y, fb); dump(z, fc);
  {multiply}
  {store}
}}
"""

GLOBAL_LOADS = """
  wmma::load_matrix_sync(x, (const {storage}*)a, {lda});
  wmma::load_matrix_sync(y, (const {storage}*)b, {ldb});
  wmma::load_matrix_sync(z, (const {ct}*)c, {ldc}, wmma::mem_{c_layout}_major);
"""
SHARED_LOADS = """
  __shared__ __align__(128) char sa[{a_size}], sb[{b_size}], sc[{c_size}], sd[{d_size}];
  stage(sa, a, {a_size}); stage(sb, b, {b_size}); stage(sc, c, {c_size});
  wmma::load_matrix_sync(x, (const {storage}*)sa, {lda});
  wmma::load_matrix_sync(y, (const {storage}*)sb, {ldb});
  wmma::load_matrix_sync(z, (const {ct}*)sc, {ldc}, wmma::mem_{c_layout}_major);
"""
GLOBAL_STORE = "wmma::store_matrix_sync(({dt}*)d, w, {ldd}, wmma::mem_{d_layout}_major);"
SHARED_STORE = """
  stage(sd, d, {d_size});
  wmma::store_matrix_sync(({dt}*)sd, w, {ldd}, wmma::mem_{d_layout}_major);
  __syncwarp(); stage(d, sd, {d_size});
"""


@dataclass(frozen=True)
class Case:
    """One kernel: a block is one warp that multiplies one tile of a stack."""

    shape: wmma.WmmaShape
    c: str
    d: str
    a_layout: str
    b_layout: str
    c_layout: str
    shared: bool
    operation: str | None = None

    @property
    def name(self) -> str:
        """Of the kernel."""
        place = "shared" if self.shared else "global"
        bits = f"_{self.operation}" if self.operation else ""
        s = self.shape
        return f"{s.type}_{s.name}{bits}_{self.c}_{self.d}_{self.a_layout}_{self.b_layout}_{self.c_layout}_{place}"

    def matrix(self, which: str) -> tuple[int, int, str, str]:
        """Rows, columns, layout and element type of a, b, c or d."""
        rows, columns = self.shape.extent("c" if which == "d" else which)
        layout = {"a": self.a_layout, "b": self.b_layout, "c": self.c_layout, "d": self.d_layout}[which]
        return rows, columns, layout, {"c": self.c, "d": self.d}.get(which, self.shape.type)

    @property
    def d_layout(self) -> str:
        """D is stored the other way round than C is loaded."""
        return "col" if self.c_layout == "row" else "row"

    def leading_dimension(self, which: str) -> int:
        """In elements: the fast axis, padded by 16 bytes so that rows have gaps."""
        rows, columns, layout, element = self.matrix(which)
        return (columns if layout == "row" else rows) + 128 // wmma.ELEMENT_BITS[element]

    def tile_bytes(self, which: str) -> int:
        """Of one tile of a stack, padding included, rounded up to 128 bytes."""
        rows, columns, layout, element = self.matrix(which)
        slow = rows if layout == "row" else columns
        return -(-slow * self.leading_dimension(which) * wmma.ELEMENT_BITS[element] // 8 // 128) * 128

    def source(self) -> str:
        """The kernel in CUDA C++."""
        s = self.shape
        types = {"ab": CUDA_TYPES[s.type], "ct": CUDA_TYPES[self.c], "dt": CUDA_TYPES[self.d]}
        storage = {"tf32": "float", "s4": "void", "u4": "void", "b1": "void"}.get(s.type, types["ab"])
        values = {f"ld{m}": self.leading_dimension(m) for m in "abcd"} | {
            f"{m}_size": self.tile_bytes(m) for m in "abcd"
        }
        fields = {
            **types, **values, "storage": storage, "m": s.m, "n": s.n, "k": s.k, "name": self.name,
            "a_layout": self.a_layout, "b_layout": self.b_layout, "c_layout": self.c_layout, "d_layout": self.d_layout,
        }  # fmt: skip
        multiply = "wmma::mma_sync(w, x, y, z);"
        if self.operation:
            bit = {"xor": "bmmaBitOpXOR", "and": "bmmaBitOpAND"}[self.operation]
            multiply = (
                f"wmma::bmma_sync(w, x, y, z, wmma::experimental::{bit}, wmma::experimental::bmmaAccumulateOpPOPC);"
            )
        load = (SHARED_LOADS if self.shared else GLOBAL_LOADS).format(**fields)
        store = (SHARED_STORE if self.shared else GLOBAL_STORE).format(**fields)
        return KERNEL.format(**fields, load=load, store=store, multiply=multiply)


def cases(capability: int, *, thorough: bool) -> list[Case]:
    """Every shape, type and pair of accumulators, in global and in shared memory.

    The layouts of A, B and C take turns; ``thorough`` adds every layout of A and B to each.
    """
    found = []
    for shape in wmma.SHAPES:
        if shape.capability > capability:
            continue
        operations = [name for name, since in shape.operations if since <= capability] or [None]
        pairs = [(c, d) for c in shape.accumulators for d in shape.accumulators]
        for number, (operation, (c, d)) in enumerate((o, p) for o in operations for p in pairs):
            for shared in (False, True):
                turns = range(len(shape.layouts)) if thorough else [(number + 2 * shared) % len(shape.layouts)]
                for turn in turns:
                    c_layout = ("row", "col")[(turn + number + shared) % 2]
                    found.append(Case(shape, c, d, *shape.layouts[turn], c_layout, shared, operation))
    return found


def translation_unit(chosen: list[Case]) -> str:
    """All kernels together."""
    return HEADER + "".join(case.source() for case in chosen)


# -- arrays ----------------------------------------------------------------------------------------------------


def pack(case: Case, which: str, values: np.ndarray, filler: int = 0x55) -> np.ndarray:
    """A stack (n, rows, columns) of values as the bytes of n tiles, `filler` in the padding."""
    _, _, layout, element = case.matrix(which)
    bits = wmma.ELEMENT_BITS[element]
    if layout == "col":
        values = values.swapaxes(1, 2)
    slow = values.shape[1]
    if bits < 8:
        bit = np.arange(bits, dtype=np.uint8)
        stream = (values.astype(np.int64)[..., None] >> bit & 1).astype(np.uint8)
        raw = np.packbits(stream.reshape(len(values), slow, -1), axis=-1, bitorder="little")
    else:
        raw = np.ascontiguousarray(values.astype(STORAGE[element])).view(np.uint8).reshape(len(values), slow, -1)
    tiles = np.full((len(values), case.tile_bytes(which)), filler, np.uint8)
    pitch = case.leading_dimension(which) * bits // 8
    for row in range(slow):
        tiles[:, row * pitch : row * pitch + raw.shape[2]] = raw[:, row]
    return tiles


def unpack(case: Case, which: str, tiles: np.ndarray) -> np.ndarray:
    """The values of a stack of tiles of C or D."""
    rows, columns, layout, element = case.matrix(which)
    storage = np.dtype(STORAGE[element])
    slow, fast = (rows, columns) if layout == "row" else (columns, rows)
    pitch = case.leading_dimension(which) * storage.itemsize
    lines = [tiles[:, row * pitch : row * pitch + fast * storage.itemsize] for row in range(slow)]
    values = np.ascontiguousarray(np.stack(lines, axis=1)).view(storage)
    return values if layout == "row" else values.swapaxes(1, 2)


FLOAT_KINDS = ("normal", "exponents", "cancellation", "subnormal", "zeros", "special", "overflow")
INTEGER_KINDS = ("random", "extreme")


def kinds(case: Case) -> tuple[str, ...]:
    """Of inputs that make sense for the type."""
    if case.shape.type == "tf32":
        return (*FLOAT_KINDS, "ignored")
    return FLOAT_KINDS if case.shape.type in ("f16", "bf16", "f64") else INTEGER_KINDS


def inputs(case: Case, kind: str, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Stacks of A, B and C, float64 or int64, representable in their types."""
    random = np.random.default_rng([seed, sum(map(ord, case.shape.type + kind))])
    values = {}
    for which in "abc":
        rows, columns, _, element = case.matrix(which)
        range_of = "f16" if which == "c" and "f16" in (case.c, case.d) else element
        # "ignored" leaves bits of f32 in A and B that tf32 does not have.
        stored_as = "f32" if kind == "ignored" else element
        values[which] = _round(_fill(random, kind, (count, rows, columns), range_of), stored_as)
    if kind == "cancellation":
        half = values["a"].shape[2] // 2
        values["a"][:, :, half:] = -values["a"][:, :, :half]
        near = 1 + random.integers(-2, 3, values["b"][:, :half].shape) / 256
        values["b"][:, half:] = _round(values["b"][:, :half] * near, case.shape.type)
        values["c"] = _round(values["c"] * 1e-3, case.c)
    return values


def _fill(random: np.random.Generator, kind: str, shape: tuple[int, ...], element: str) -> np.ndarray:
    if kind == "random" or kind == "extreme":
        limits = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15), "b1": (0, 1),
                  "s32": (-(2**31), 2**31 - 1)}[element]  # fmt: skip
        if kind == "extreme":
            return random.choice(np.array(limits, np.int64), shape)
        low, high = (-(10**6), 10**6) if element == "s32" else limits
        return random.integers(low, high + 1, shape)
    values = random.standard_normal(shape)
    narrow = element == "f16"
    if kind == "exponents":
        spread = {"f16": 12, "f64": 200}.get(element, 40)
        values *= 2.0 ** random.integers(-spread, spread // 2, shape)
    elif kind == "subnormal":
        exponent = {"f16": -14, "f64": -1022}.get(element, -126)
        low = random.integers(exponent - 10, exponent + 3, shape)
        values = np.ldexp(values, np.where(random.random(shape) < 0.5, low, 0))
    elif kind == "zeros":
        values *= random.random(shape) < 0.3
        values[0] = -0.0
    elif kind == "special":
        chosen = random.random(shape) < 0.02
        values[chosen] = random.choice(np.array([np.inf, -np.inf, np.nan, 0.0]), int(chosen.sum()))
    elif kind == "overflow":
        values *= 2.0 ** {"f16": 11, "f64": 510}.get(element, 63)
        values = np.where(random.random(shape) < 0.5, values, values * (2.0**3 if narrow else 2.0**-20))
    return values


def _round(values: np.ndarray, element: str) -> np.ndarray:
    """To the nearest values that the type has (of tf32, those whose ignored bits are zero)."""
    if values.dtype == np.int64:
        return values
    with np.errstate(all="ignore"):
        stored = values.astype(STORAGE[element])
        if element == "tf32":
            raw = stored.view(np.uint32) & np.uint32(0xFFFFE000)
            stored = raw.view(np.float32)
        return stored.astype(np.float64)


def operands(case: Case, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The kernel's buffers: tiles of A, B and C, room for D and for the dumped fragments."""
    count = len(values["a"])
    found = {which: pack(case, which, values[which]) for which in "abc"}
    found["d"] = np.full((count, case.tile_bytes("d")), 0x55, np.uint8)
    for which, element in (("a", case.shape.type), ("b", case.shape.type), ("c", case.c)):
        # Dumped by way of the C++ fragment, which has as many bytes as the registers.
        size = case.shape.fragment(which, element, 90).bytes
        found[f"f{which}"] = np.zeros((count, 32, size), np.uint8)
    return found


OUTPUTS = ("d", "fa", "fb", "fc")


def launch(case: Case, count: int) -> LaunchSpec:
    """One block a tile."""
    names = ("a", "b", "c", "d", "fa", "fb", "fc")
    sizes = tuple(Scalar("s32", case.tile_bytes(which)) for which in "abcd")
    return LaunchSpec(case.name, (count, 1, 1), (32, 1, 1), (*(Pointer(name) for name in names), *sizes))


def run_emulated(module, case: Case, buffers: dict[str, np.ndarray], arch: str):
    """Run one case on the emulator; the buffers' outputs are changed in place. Some cases overflow on purpose."""
    accesses = {name: Access(writes=True) for name in OUTPUTS}
    checks = DEFAULT_CHECKS - {"overflow"}
    return emulate(module, launch(case, len(buffers["a"])), buffers, accesses=accesses, arch=arch, checks=checks)
