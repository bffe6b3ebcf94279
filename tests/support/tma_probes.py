"""Bulk and tensor copies as probes: kernels that make one copy each, and cases that ask where every byte goes.

A case is a launch. A load fills shared memory with `UNTOUCHED`, copies, waits (not for ever), and gives back all of
shared memory and whether the bytes came; a store gives back the memory that it wrote to, with what lies around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from random_words import stream
from tensor_probes import FLOATS
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.emulator import emulate
from warptile.emulator.async_ops.tensor_boxes import box_bytes
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import Argument, LaunchSpec
from warptile.launch.tensor_map import SWIZZLE_BYTES, TENSOR_MAP_TYPES, TensorMap
from warptile.ptx import parse

SEED = 20261122
THREADS = 64
TILE_WORDS = 3072
UNTOUCHED = 0xCDCDCDCD
GUARD_BYTES = 256
"""Behind a tensor in memory."""

Words = np.ndarray

# -- the kernels -------------------------------------------------------------------------------------------------------

_PRELUDE = f"""
struct alignas(64) Map {{ unsigned long long words[16]; }};
typedef unsigned long long u64;
__device__ __forceinline__ unsigned at(const void* p) {{ return (unsigned)__cvta_generic_to_shared(p); }}
__device__ __forceinline__ void begin(unsigned bar) {{
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }}
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}}
__device__ __forceinline__ void expect(unsigned bar, int bytes) {{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}}
__device__ __forceinline__ unsigned wait(unsigned bar) {{
  long long start = clock64();
  unsigned done = 0;
  do {{
    asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }}"
                 : "=r"(done) : "r"(bar) : "memory");
  }} while (!done && clock64() - start < 20000000);
  __syncthreads();
  return done;
}}
__device__ __forceinline__ void fill(unsigned* tile, const unsigned* image) {{
  for (int i = threadIdx.x; i < {TILE_WORDS}; i += {THREADS}) tile[i] = image ? image[i] : {UNTOUCHED}u;
}}
__device__ __forceinline__ void dump(unsigned* out, const unsigned* tile, unsigned done) {{
  for (int i = threadIdx.x; i < {TILE_WORDS}; i += {THREADS}) out[i] = tile[i];
  if (threadIdx.x == 0) out[{TILE_WORDS}] = done;
}}
__device__ __forceinline__ void finish() {{
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}}
__device__ __forceinline__ void together() {{
  asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
}}
#define SHARED __shared__ __align__(1024) unsigned tile[{TILE_WORDS}]; __shared__ __align__(8) u64 bar;
#define MAP const __grid_constant__ Map map
"""

_COORDINATES = ", ".join(f'"r"(given[{i}])' for i in range(5))
_BARRIER = "mbarrier::complete_tx::bytes"

REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"), "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",), "dec": ("u32",), "and": ("u32", "u64"), "or": ("s32", "u64"), "xor": ("u32", "u64"),
}  # fmt: skip
"""Element types that are reduced, through maps and without."""


def _tensor_kernel(rank: int, name: str, operation: str) -> str:
    where = ", ".join(f"%{3 + i}" for i in range(rank))
    if operation == "load":
        text = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.{_BARRIER} [%0], [%1, {{{where}}}], [%2];"
        body = f"""
  SHARED fill(tile, nullptr); begin(at(&bar));
  if (threadIdx.x == 0) {{
    expect(at(&bar), given[6]);
    asm volatile("{text}" :: "r"(at(tile) + given[5]), "l"(&map), "r"(at(&bar)), {_COORDINATES} : "memory");
  }}
  unsigned done = wait(at(&bar));
  dump(out, tile, done);"""
        last = "unsigned* out"
    else:
        start = f"cp.async.bulk.tensor.{rank}d.global.shared::cta"
        if operation != "store":
            start = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}"
        text = f"{start}.tile.bulk_group [%1, {{{where}}}], [%0];"
        body = f"""
  SHARED fill(tile, image);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("{text}" :: "r"(at(tile) + given[5]), "l"(&map), "r"(0), {_COORDINATES} : "memory");
    finish();
  }}"""
        last = "const unsigned* image"
    return f'extern "C" __global__ void {name}(MAP, const int* given, {last}) {{{body}\n}}\n'


def _bulk_kernel(name: str, instruction: str) -> str:
    if name == "bulk_load":
        return f"""extern "C" __global__ void {name}(const char* memory, const int* given, unsigned* out) {{
  SHARED fill(tile, nullptr); begin(at(&bar));
  if (threadIdx.x == 0) {{
    expect(at(&bar), given[6]);
    asm volatile("{instruction} [%0], [%1], %2, [%3];"
                 :: "r"(at(tile) + given[5]), "l"(memory + given[0]), "r"(given[6]), "r"(at(&bar)) : "memory");
  }}
  unsigned done = wait(at(&bar));
  dump(out, tile, done);
}}
"""
    return f"""extern "C" __global__ void {name}(char* memory, const int* given, const unsigned* image) {{
  SHARED fill(tile, image);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("{instruction} [%1], [%0], %2;"
                 :: "r"(at(tile) + given[5]), "l"(memory + given[0]), "r"(given[6]) : "memory");
    finish();
  }}
}}
"""


_MULTICAST = f"""
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(MAP, const int* given, unsigned* out) {{
  SHARED fill(tile, nullptr); begin(at(&bar));
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  bool gets = given[7] >> rank & 1;
  if (threadIdx.x == 0 && gets) expect(at(&bar), given[6]);
  together();
  if (threadIdx.x == 0 && rank == given[8])
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_BARRIER}.multicast::cluster "
                 "[%0], [%1, {{%3, %4}}], [%2], %5;" :: "r"(at(tile) + given[5]), "l"(&map), "r"(at(&bar)),
                 "r"(given[0]), "r"(given[1]), "h"((unsigned short)given[7]) : "memory");
  unsigned done = 0;
  if (gets) done = wait(at(&bar));
  together();
  dump(out + rank * {TILE_WORDS + 1}, tile, done);
}}
extern "C" __global__ void __cluster_dims__(2, 1, 1) peer(const char* memory, const int* given, unsigned* out) {{
  SHARED fill(tile, nullptr);
  for (int i = threadIdx.x; i < 1024; i += {THREADS}) tile[i] = given[9] + i;
  begin(at(&bar));
  unsigned rank, there, theirs;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0 && rank == given[8]) expect(at(&bar), given[6]);
  together();
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(tile) + given[0]), "r"(given[8]));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(at(&bar)), "r"(given[8]));
  if (threadIdx.x == 0 && rank != given[8])
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.{_BARRIER} [%0], [%1], %2, [%3];"
                 :: "r"(there), "r"(at(tile) + given[5]), "r"(given[6]), "r"(theirs) : "memory");
  unsigned done = 0;
  if (rank == given[8]) done = wait(at(&bar));
  together();
  dump(out + rank * {TILE_WORDS + 1}, tile, done);
}}
"""


def _bulk_type(name: str, element: str) -> str:
    return f"b{8 * TENSOR_MAP_TYPES[element]}" if name in ("and", "or", "xor") else element


@cache
def kernels() -> dict[str, str]:
    """Every kernel's text, by name; those of clusters come together."""
    found = {}
    for rank in range(1, 6):
        for operation in ("load", "store"):
            found[f"{operation}_{rank}d"] = _tensor_kernel(rank, f"{operation}_{rank}d", operation)
    for operation in REDUCTIONS:
        found[f"reduce_{operation}"] = _tensor_kernel(2, f"reduce_{operation}", operation)
    found["bulk_load"] = _bulk_kernel("bulk_load", f"cp.async.bulk.shared::cluster.global.{_BARRIER}")
    found["bulk_store"] = _bulk_kernel("bulk_store", "cp.async.bulk.global.shared::cta.bulk_group")
    for operation, types in REDUCTIONS.items():
        for element in types:
            half = ".noftz" if element in ("f16", "bf16") and operation == "add" else ""
            named = f"bulk_{operation}_{element}"
            found[named] = _bulk_kernel(
                named,
                "cp.reduce.async.bulk.global.shared::cta.bulk_group."
                f"{operation}{half}.{_bulk_type(operation, element)}",
            )
    found["multicast"] = _MULTICAST
    return found


def translation_unit() -> Source:
    """All kernels."""
    return Source(_PRELUDE + "\n".join(kernels().values()), "load_1d", may_spill=True)


# -- the cases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One launch.

    Attributes:
        name: of the case.
        kernel: of `kernels`, or "peer".
        tensor: the map, of operand "memory"; None for copies without.
        coordinates: of the box; of copies without a map, where in memory.
        shared: byte of the tile in shared memory.
        size: bytes that are expected, or copied without a map.
        memory: contents of the tensor's memory: see `contents`.
        image: contents of shared memory before a store.
        mask: of blocks that get a tile.
        rank: of the block that starts a copy to several, or that gets one from its peer.
        bytes: of memory, without a map.
    """

    name: str
    kernel: str
    tensor: TensorMap | None
    coordinates: tuple[int, ...]
    shared: int = 0
    size: int = 0
    memory: str = "counted"
    image: str = "counted higher"
    mask: int = 0
    rank: int = 0
    bytes: int = 4096

    @property
    def stores(self) -> bool:
        """Whether the answer is memory."""
        return self.kernel not in ("multicast", "peer", "bulk_load") and not self.kernel.startswith("load")

    @property
    def blocks(self) -> int:
        """Of the launch: one cluster."""
        return 2 if self.kernel in ("multicast", "peer") else 1

    def operands(self) -> dict[str, np.ndarray]:
        """Memory before the launch."""
        given = np.zeros(10, np.int32)
        given[: len(self.coordinates)] = self.coordinates
        given[5:9] = self.shared, self.size, self.mask, self.rank
        given[9] = 0x01000000
        size = -(-(_end(self.tensor) if self.tensor is not None else self.bytes) // 16) * 16 + GUARD_BYTES
        found = {"memory": contents(self.memory, self.name, size // 4), "given": given}
        if self.stores:
            return {**found, "image": contents(self.image, f"{self.name} image", TILE_WORDS)}
        return {**found, "out": np.full(self.blocks * (TILE_WORDS + 1), 0xDEADBEEF, np.uint32)}

    def launch(self) -> LaunchSpec:
        """What to launch."""
        first: Argument = self.tensor if self.tensor is not None else Pointer("memory")
        arguments = (first, Pointer("given"), Pointer("image" if self.stores else "out"))
        return LaunchSpec(self.kernel, (self.blocks, 1, 1), (THREADS, 1, 1), arguments, (self.blocks, 1, 1))

    @property
    def answer(self) -> str:
        """The operand that holds it."""
        return "memory" if self.stores else "out"

    def emulated(self) -> Words:
        """What the emulator answers."""
        operands = self.operands()
        emulate(
            _module(), self.launch(), operands, accesses={self.answer: Access(writes=True)}, arch="sm_90a",
            checks=frozenset({"uninitialised"}),
        )  # fmt: skip
        return operands[self.answer]


@cache
def _module():
    return parse(compile_source(translation_unit(), "sm_90a").ptx)


def _end(tensor: TensorMap) -> int:
    """Bytes from the operand's start to the end of the tensor."""
    size = tensor.dims[0] * tensor.element_bytes
    for extent, stride in zip(tensor.dims[1:], tensor.strides_bytes, strict=True):
        size += (extent - 1) * stride
    return tensor.offset_bytes + size


def contents(kind: str, name: str, count: int) -> Words:
    """Words of memory: "counted" from 1, "counted higher", "random", or numbers of a floating-point type."""
    if kind.startswith("counted"):
        return np.arange(1, count + 1, dtype=np.uint32) + np.uint32(0x100000 if kind.endswith("higher") else 0)
    if kind.startswith("ends of "):
        return _ends(kind.removeprefix("ends of "), name, 4 * count)
    words = (stream(SEED, name, shape=count) >> np.uint64(32)).astype(np.uint32)
    if kind == "random":
        return words
    return _floats("f32" if kind == "tf32" else kind, name, 4 * count)


def _ends(kind: str, name: str, size: int) -> Words:
    """Zeros, ones, subnormal numbers, infinities and NaN, quiet or not, in every pair."""
    bits, exponent_bits, fraction_bits, _ = FLOATS[kind]
    top, least = (1 << exponent_bits) - 1, 1 << (fraction_bits - 1)
    sizes = [0, 1, least, ((1 << (exponent_bits - 1)) - 1) << fraction_bits, top << fraction_bits]
    sizes += [(top << fraction_bits) + part for part in (1, least, least + 3, 2 * least - 1)]
    choice = stream(SEED, name, shape=size * 8 // bits)
    codes = np.array(sizes, np.uint64)[(choice >> np.uint64(8)) % np.uint64(len(sizes))]
    codes |= (choice & np.uint64(1)) << np.uint64(bits - 1)
    return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view(np.uint32)


def _floats(kind: str, name: str, size: int) -> Words:
    bits, exponent_bits, fraction_bits, _ = FLOATS[kind]
    count = size * 8 // bits
    choice = stream(SEED, name, "choice", shape=count)
    fraction = stream(SEED, name, "fraction", shape=count) >> np.uint64(64 - fraction_bits)
    top, bias = (1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1
    sign, pick, coin, near = (choice >> np.uint64(shift) & np.uint64(0xFF) for shift in (0, 8, 16, 24))
    field = np.uint64(bias - 4) + near % np.uint64(8)
    field = np.where(pick % 16 == 0, 0, field)  # zeros and subnormal numbers
    field = np.where(pick % 16 == 1, near % np.uint64(4), field)
    field = np.where(pick % 16 == 2, top, field)  # infinities and NaN
    field = np.where(pick % 16 == 3, top - 1, field)
    # Fractions of a few ones at either end: ties, infinities, zeros, the largest numbers.
    ends = np.array([0, 1, (1 << fraction_bits) - 1, (1 << fraction_bits) - 2], np.uint64)
    fraction = np.where(coin % 8 < 2, ends[(coin // 8 % 4).astype(np.intp)], fraction)
    if kind == "f32":  # the 13 bits that tf32 lacks
        low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint64)
        mixed = fraction & ~np.uint64(0x1FFF) | low[(coin // 8 % 6).astype(np.intp)]
        fraction = np.where(coin % 8 == 2, mixed, fraction)
        fraction = np.where(coin % 8 == 3, low[(coin // 8 % 6).astype(np.intp)], fraction)
    codes = (
        (sign & np.uint64(1)) << np.uint64(bits - 1) | field.astype(np.uint64) << np.uint64(fraction_bits) | fraction
    )
    return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view(np.uint32)


_BOX_OUTER = (5, 3, 2, 2)
_DIMS_OUTER = (7, 5, 3, 2)


def _map(
    rank: int, dtype: str, swizzle: str, *, inner_bytes: int = 0, row_bytes: int = 200, outer: Sequence[int] = (),
    dims: Sequence[int] = (), steps: tuple[int, ...] = (), fill: str = "zero", offset: int = 32,
) -> TensorMap:  # fmt: skip
    """A map of rows of ``row_bytes`` (or, of wide types, so many that it fits), in longer rows."""
    size = TENSOR_MAP_TYPES[dtype]
    inner = (inner_bytes or SWIZZLE_BYTES[swizzle] or 48) // size
    extents = (row_bytes // size, *(dims or _DIMS_OUTER)[: rank - 1])
    strides: list[int] = []
    for extent in extents[:-1]:
        strides.append(strides[-1] * extent + 16 if strides else row_bytes // 16 * 16 + 32)
    return TensorMap(
        "memory", dtype, extents, tuple(strides), (inner, *(outer or _BOX_OUTER)[: rank - 1]), steps, swizzle,
        oob_fill=fill, offset_bytes=offset,
    )  # fmt: skip


def _load(name: str, tensor: TensorMap, coordinates: Sequence[int], **more: object) -> Case:
    rank = len(tensor.dims)
    return Case(name, f"load_{rank}d", tensor, tuple(coordinates), size=box_bytes(tensor), **more)


def _store(name: str, tensor: TensorMap, coordinates: Sequence[int], **more: object) -> Case:
    return Case(name, f"store_{len(tensor.dims)}d", tensor, tuple(coordinates), **more)


PLAIN_TYPES = tuple(each for each in TENSOR_MAP_TYPES if each != "tf32")


def _places(tensor: TensorMap, *, negative: bool) -> Iterator[tuple[int, ...]]:
    """Coordinates inside the tensor, over its ends, and below zero."""
    rank, chunk = len(tensor.dims), 16 // tensor.element_bytes
    yield (2 * chunk, 1, 1, 1, 0)[:rank]
    yield (tensor.dims[0] // chunk * chunk - chunk, *(d - 2 for d in tensor.dims[1:]))
    if negative:
        yield (-chunk, -2, -1, -1, -1)[:rank]


def _ranks() -> Iterator[Case]:
    """One to five dimensions, every swizzle, every type: inside, over the ends, below zero."""
    types = iter(PLAIN_TYPES * 20)
    for rank, swizzle, _ in product(range(1, 6), SWIZZLE_BYTES, range(2)):
        dtype = next(types)
        tensor = _map(rank, dtype, swizzle)
        for number, place in enumerate(_places(tensor, negative=True)):
            named = f"{rank}d {dtype} {swizzle} at {place}"
            yield _load(named, tensor, place, memory="counted" if number else "random")
        for place in _places(tensor, negative=False):
            yield _store(f"{rank}d {dtype} {swizzle} at {place} stored", tensor, place)


def _fills() -> Iterator[Case]:
    """Elements outside: zeros, and NaN of every floating-point type."""
    for dtype, fill in product(TENSOR_MAP_TYPES, ("zero", "nan")):
        if fill == "nan" and dtype[0] not in "fbt":
            continue
        for swizzle in ("none", "128B"):
            tensor = _map(2, dtype, swizzle, fill=fill)
            for place in _places(tensor, negative=True):
                yield _load(f"{dtype} {swizzle} {fill} at {place}", tensor, place, memory="tf32")
            far = (512, 2)
            yield _load(f"{dtype} {swizzle} {fill} at {far}", tensor, far, memory="tf32")


def _short() -> Iterator[Case]:
    """Rows of the box that are shorter than those that are permuted; boxes at any multiple of 128 bytes."""
    for swizzle in ("32B", "64B", "128B"):
        for inner in range(16, SWIZZLE_BYTES[swizzle], 16):
            for rank in (1, 2, 3):
                tensor = _map(rank, "u16", swizzle, inner_bytes=inner, outer=(9, 3), dims=(16, 5))
                yield _load(f"{swizzle} rows of {inner} bytes, {rank}d", tensor, (8, 1, 1)[:rank])
                if rank == 2:
                    yield _load(f"{swizzle} rows of {inner} bytes, {rank}d, at 384", tensor, (8, 1), shared=384)
                    yield _store(f"{swizzle} rows of {inner} bytes, {rank}d stored", tensor, (8, 1))
                    yield _store(f"{swizzle} rows of {inner} bytes over the end stored", tensor, (88, 10), shared=128)
    for swizzle, shared in product(("none", "32B", "64B", "128B"), range(128, 1152, 128)):
        tensor = _map(2, "bf16", swizzle, outer=(9,), dims=(16,))
        yield _load(f"{swizzle} at {shared} of shared memory", tensor, (8, 1), shared=shared)
        if shared in (128, 640):
            yield _store(f"{swizzle} at {shared} of shared memory stored", tensor, (8, 1), shared=shared)


def _strides() -> Iterator[Case]:
    """Every n-th element of a dimension."""
    for steps in ((1, 2), (1, 3), (1, 8), (2, 1), (3, 2), (4, 4), (8, 1)):
        for dtype, swizzle in (("u16", "none"), ("f32", "64B"), ("u8", "128B")):
            tensor = _map(2, dtype, swizzle, outer=(9,), dims=(20,), steps=steps)
            for place in ((16, 3), (96, 15), (-16, -4)):
                yield _load(f"{dtype} {swizzle} steps {steps} at {place}", tensor, place)
            for place in ((16, 3), (32, 15)):
                yield _store(f"{dtype} {swizzle} steps {steps} at {place} stored", tensor, place)
    for steps in ((1, 1, 2), (1, 2, 3), (2, 3, 4), (1, 5, 1)):
        tensor = _map(3, "f16", "32B", outer=(7, 6), dims=(9, 8), steps=steps)
        for place in ((16, 1, 1), (80, 5, 6), (-16, -3, -2)):
            yield _load(f"f16 32B steps {steps} at {place}", tensor, place)
        yield _store(f"f16 32B steps {steps} stored", tensor, (16, 4, 5))


def _edges() -> Iterator[Case]:
    """Stores that are partly outside: rows that end within 16 bytes, whole rows, everything."""
    for dtype in PLAIN_TYPES:
        size = TENSOR_MAP_TYPES[dtype]
        for row_bytes in dict.fromkeys((200, 208, 216, 204 // size * size, 201 // size * size)):
            tensor = _map(2, dtype, "none", row_bytes=row_bytes, inner_bytes=64)
            for byte, row in ((160, 0), (192, 4), (176, 5)):
                yield _store(f"{dtype} rows of {row_bytes} at byte {byte}, row {row}", tensor, (byte // size, row))
    tensor = _map(3, "bf16", "128B")
    for place in ((96, 1, 1), (0, 7, 0), (0, 0, 5), (104, 0, 0), (1024, 100, 100), (0, 6, 4)):
        yield _store(f"bf16 128B at {place}", tensor, place)


def _tf32() -> Iterator[Case]:
    """Whether copies of tf32 round."""
    for swizzle in ("none", "128B"):
        tensor = _map(2, "tf32", swizzle, row_bytes=512, inner_bytes=128, outer=(16,), dims=(8,))
        for place in ((0, 0), (32, 0), (64, 0), (96, 0), (112, -2)):
            yield _load(f"tf32 {swizzle} at {place}", tensor, place, memory="tf32")
        for place in ((0, 0), (64, 0), (112, 3)):
            yield _store(f"tf32 {swizzle} at {place} stored", tensor, place, image="tf32")
    for dtype in ("f16", "bf16", "f32", "f64"):
        tensor = _map(2, dtype, "none", row_bytes=512, inner_bytes=128, outer=(8,), dims=(8,))
        yield _load(f"{dtype} of every sort", tensor, (0, 0), memory=dtype)
        yield _store(f"{dtype} of every sort stored", tensor, (0, 0), image=dtype)


def _reductions() -> Iterator[Case]:
    """Through a map, over its ends, and without."""
    for operation, types in REDUCTIONS.items():
        for dtype in types:
            data = dtype if dtype in FLOATS else "random"
            tensor = _map(2, dtype, "none", row_bytes=512, inner_bytes=128, outer=(16,), dims=(16,))
            for place in ((0, 0), (tensor.dims[0] * 7 // 8, 10)):
                named = f"{operation} {dtype} at {place}"
                yield Case(named, f"reduce_{operation}", tensor, place, memory=data, image=data)
            named = f"{operation} {dtype} without a map"
            yield Case(
                named, f"bulk_{operation}_{dtype}", None, (64,), shared=32, size=3072, memory=data, image=data
            )  # fmt: skip
            if dtype in FLOATS:
                data = f"ends of {dtype}"
                named = f"{operation} {dtype} of zeros, infinities and NaN"
                yield Case(named, f"reduce_{operation}", tensor, (0, 0), memory=data, image=data)


def _bulk() -> Iterator[Case]:
    """Copies without a map."""
    for size in (16, 48, 128, 1008, 4096):
        for start, shared in ((0, 0), (16, 48), (112, 1024)):
            named = f"{size} bytes from {start} at {shared}"
            yield Case(named, "bulk_load", None, (start,), shared=shared, size=size, bytes=8192)
            yield Case(f"{named} stored", "bulk_store", None, (start,), shared=shared, size=size, bytes=8192)


def _clusters() -> Iterator[Case]:
    """To several blocks, and from block to block."""
    tensor = _map(2, "bf16", "128B")
    for mask, rank, place in product((1, 2, 3), (0, 1), ((8, 1), (96, 4))):
        yield Case(
            f"mask {mask} from {rank} at {place}", "multicast", tensor, place, shared=1024 * rank,
            size=box_bytes(tensor), mask=mask, rank=rank,
        )  # fmt: skip
    for rank, size in product((0, 1), (16, 1024)):
        yield Case(f"{size} bytes to block {rank}", "peer", None, (4096 + 64,), shared=48, size=size, rank=rank)


SUITES: dict[str, tuple[Case, ...]] = {
    "ranks": tuple(_ranks()),
    "fills": tuple(_fills()),
    "short": tuple(_short()),
    "strides": tuple(_strides()),
    "edges": tuple(_edges()),
    "tf32": tuple(_tf32()),
    "reductions": tuple(_reductions()),
    "bulk": tuple(_bulk()),
    "clusters": tuple(_clusters()),
}
"""All cases that the hardware should take, by what they are for."""


def _odd() -> Iterator[Case]:
    tensor = _map(2, "bf16", "none", inner_bytes=64)
    yield _load("load at an innermost coordinate of 2 bytes", tensor, (1, 0))
    yield _load("load at an innermost coordinate of 8 bytes", tensor, (4, 0))
    yield _load("load at an innermost coordinate of -8 bytes", tensor, (-4, 0))
    yield _store("store at an innermost coordinate of 8 bytes", tensor, (4, 0))
    yield _store("store at a negative innermost coordinate", tensor, (-8, 0))
    yield _store("store at a negative row", tensor, (0, -1))
    yield _load("load to byte 16 of shared memory", tensor, (0, 0), shared=16)
    yield _load("load to byte 64 of shared memory", tensor, (0, 0), shared=64)
    yield _store("store from byte 64 of shared memory", tensor, (0, 0), shared=64)
    yield Case("bulk copy of 24 bytes", "bulk_load", None, (0,), size=24)
    yield Case("bulk copy from byte 8", "bulk_load", None, (8,), size=32)
    yield Case("bulk copy to byte 8 of shared memory", "bulk_load", None, (0,), shared=8, size=32)
    yield Case("bulk copy of no bytes", "bulk_load", None, (0,), size=0)
    yield Case("map of another rank", "load_3d", tensor, (0, 0, 0), size=box_bytes(tensor))
    yield Case(
        "multicast to a block that is not there", "multicast", tensor, (0, 0), size=box_bytes(tensor), mask=5
    )  # fmt: skip
    for operation, dtype in (
        ("add", "tf32"),
        ("add", "s64"),
        ("min", "f32"),
        ("and", "f16"),
        ("inc", "u64"),
        ("or", "s64"),
        ("and", "f32"),
        ("xor", "f64"),
        ("and", "u16"),
        ("inc", "s32"),
        ("min", "f64"),
    ):
        odd = _map(2, dtype, "none", row_bytes=512, inner_bytes=128, outer=(4,), dims=(16,))
        data = dtype if dtype in FLOATS else "random"
        yield Case(f"{operation} of {dtype}", f"reduce_{operation}", odd, (0, 0), memory=data, image=data)


ODD = {case.name: case for case in _odd()}
"""Cases that may end in an error: each needs a process of its own."""

Run = Callable[[Case], Words]
