"""Asynchronous operations, one at a time: what Nsight Compute and the emulator count of each is held side by side.

`PATTERNS` lists launches of the kernels in tests/gpu/ncu_hopper_patterns.cu, and of kernels with one `wgmma` that are
written here. Operand "G" is global memory of `GLOBAL_BYTES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warptile.isa import wgmma
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import Argument, LaunchSpec
from warptile.launch.tensor_map import TensorMap

SOURCE = Path(__file__).parents[1] / "gpu" / "ncu_hopper_patterns.cu"
GLOBAL_BYTES = 1 << 20
SHARED_BYTES = 80 * 1024
ROW_BYTES = 1024
"""Of the tensors: 1024 rows of 1024 bytes."""

METRICS = {
    "tensor_instructions": "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "tensor_operand_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "tma_load_sectors": "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",
    "tma_store_sectors": "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",
    "tma_reduce_sectors": "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum",
    "shared_store_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum",
}
"""Counters of the emulator that are compared, and which of Nsight Compute's metrics each is."""


@dataclass(frozen=True)
class Pattern:
    """One launch.

    Attributes:
        name: unique.
        kernel: an instantiation, as C++ spells it.
        arguments: of the kernel.
        threads: of a block.
        blocks: of the one cluster.
        text: what the kernel adds to the source.
        facts: what is known of it by arithmetic, for who reads the counts.
    """

    name: str
    kernel: str
    arguments: tuple[Argument, ...] = ()
    threads: int = 1
    blocks: int = 1
    text: str = ""
    facts: dict[str, int] = field(default_factory=dict)

    def spec(self, entry: str) -> LaunchSpec:
        """The launch, of the compiled kernel called ``entry``."""
        size = (self.blocks, 1, 1)
        return LaunchSpec(
            entry, size, (self.threads, 1, 1), self.arguments, cluster=size, dynamic_shared_bytes=SHARED_BYTES
        )


# -- copies ------------------------------------------------------------------------------------------------------------

_SHORT = {"none": "", "32B": " sw32", "64B": " sw64", "128B": " sw128"}


def tensor(dtype: str, box: tuple[int, ...], swizzle: str = "none", **more: str) -> TensorMap:
    """Rows of `ROW_BYTES`; a third dimension counts bands of 64 rows."""
    bytes_ = {"bf16": 2, "f32": 4, "u8": 1}[dtype]
    dims, strides = (ROW_BYTES // bytes_, 1024), (ROW_BYTES,)
    if len(box) == 3:
        dims, strides = (dims[0], 64, 16), (ROW_BYTES, 64 * ROW_BYTES)
    return TensorMap("G", dtype, dims, strides, box, swizzle=swizzle, **more)  # type: ignore[arg-type]


def _moved(each: TensorMap) -> int:
    size = each.element_bytes
    for extent in each.box:
        size *= extent
    return size


def _ints(*values: int) -> tuple[Scalar, ...]:
    return tuple(Scalar("s32", value) for value in values)


def _load(each: TensorMap, x: int = 0, y: int = 0, *, repeat: int = 1, note: str = "") -> Pattern:
    box = "x".join(map(str, each.box))
    name = f"load {each.dtype} {box}{_SHORT[each.swizzle]}{f' at {x},{y}' if x or y else ''}{note}"
    size = _moved(each)
    return Pattern(
        name + (f" {repeat} times" if repeat > 1 else ""),
        f"hopper_load<{len(each.box)}, {repeat}>",
        (each, *_ints(x, y, size)),
        facts={"box_bytes": size * repeat},
    )


def _multicast(issuers: int) -> Pattern:
    each = tensor("bf16", (64, 64), "128B")
    arguments = (each, *_ints(0, 0, _moved(each)))
    facts = {"box_bytes": issuers * _moved(each)}
    return Pattern(f"multicast by {issuers} of 2", f"hopper_multicast<{issuers}>", arguments, blocks=2, facts=facts)


def _store(kernel: str, each: TensorMap, x: int = 0, y: int = 0) -> Pattern:
    box = "x".join(map(str, each.box))
    place = f" at {x},{y}" if x or y else ""
    return Pattern(
        f"{kernel} {each.dtype} {box}{_SHORT[each.swizzle]}{place}",
        f"hopper_{kernel}",
        (each, *_ints(x, y)),
        facts={"box_bytes": _moved(each)},
    )


def _bulk(kind: str, size: int, offset: int = 0) -> Pattern:
    arguments = (Pointer("G", offset), *_ints(size))
    return Pattern(
        f"bulk {kind} {size}{f' at {offset}' if offset else ''}", f"hopper_bulk_{kind}", arguments,
        facts={"box_bytes": size},
    )  # fmt: skip


COPIES = [
    Pattern("nothing", "hopper_nothing"),
    Pattern("wait", "hopper_wait"),
    *(_load(tensor("bf16", (64, rows), "128B")) for rows in (8, 64, 128, 256)),
    _load(tensor("bf16", (64, 64), "128B"), repeat=4),
    _load(tensor("bf16", (64, 64), "128B", l2_promotion="256B"), note=" promoted"),
    _load(tensor("f32", (32, 64), "128B")),
    _load(tensor("bf16", (32, 64), "64B")),
    _load(tensor("bf16", (16, 64), "32B")),
    *(_load(tensor("bf16", (columns, 64))) for columns in (8, 16, 64, 256)),
    _load(tensor("u8", (128, 64))),
    _load(tensor("bf16", (64, 16, 4), "128B")),
    _load(tensor("bf16", (64, 64), "128B"), 8, 0),
    _load(tensor("bf16", (64, 64), "128B"), 480, 0),
    _load(tensor("bf16", (64, 64), "128B"), 0, 992),
    _load(tensor("bf16", (64, 64), "128B"), 512, 0),
    _multicast(1),
    _multicast(2),
    *(_bulk("load", size) for size in (16, 128, 4096, 16384)),
    _bulk("load", 4096, 16),
    _store("store", tensor("bf16", (64, 64), "128B")),
    _store("store", tensor("bf16", (64, 64))),
    _store("store", tensor("bf16", (32, 64), "64B")),
    _store("store", tensor("bf16", (8, 64))),
    _store("store", tensor("f32", (32, 64), "128B")),
    _store("store", tensor("bf16", (64, 64), "128B"), 8, 0),
    _store("store", tensor("bf16", (64, 64), "128B"), 480, 0),
    _bulk("store", 128),
    _bulk("store", 4096),
    _store("reduce", tensor("bf16", (64, 64), "128B")),
    _store("reduce", tensor("f32", (32, 64), "128B")),
]


def _stmatrix(count: int, transposed: bool, pitch: int, swizzled: bool) -> Pattern:
    name = f"stmatrix x{count}{' trans' * transposed} pitch {pitch}{' swizzled' * swizzled}"
    kernel = f"hopper_stmatrix<{count}, {str(transposed).lower()}>"
    return Pattern(name, kernel, _ints(pitch, int(swizzled)), threads=32)


MATRICES = [
    *(_stmatrix(count, False, 16, False) for count in (1, 2, 4)),
    _stmatrix(4, True, 16, False),
    _stmatrix(4, False, 128, False),
    _stmatrix(4, True, 128, False),
    _stmatrix(4, False, 128, True),
    _stmatrix(4, False, 144, False),
    _stmatrix(4, False, 32, False),
]

# -- products ----------------------------------------------------------------------------------------------------------


def _product_text(
    kernel: str, shape: wgmma.GroupShape, types: tuple[str, str, str], *, in_registers: bool, tail: str, repeat: int
) -> str:
    """A kernel with ``repeat`` times one product; its descriptors come as numbers without the start of the tile."""
    count = shape.registers(types[0])
    kind = "float" if types[0] == "f32" else "unsigned"
    letter = "f" if kind == "float" else "r"
    registers = [f"%{i}" for i in range(count)]
    operands = [f'"+{letter}"(d[{i}])' for i in range(count)]
    inputs = ['"r"(lane)'] * 4 if in_registers else ['"l"(a)']
    left = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if in_registers else f"%{count}"
    metadata = f", %{count + len(inputs) + 1}, 0" if shape.sparse else ""
    right = f"%{count + len(inputs)}"
    inputs.append('"l"(b)')
    if shape.sparse:
        inputs.append('"r"(0x44444444)')
    opcode = shape.opcode(types)
    text = f"{opcode} {{{', '.join(registers)}}}, {left}, {right}{metadata}, p{tail};"
    statement = (
        f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0;\\n{text} }}"\n'
        f'        : {", ".join(operands)} : {", ".join(inputs)} : "memory");'
    )
    return f"""
extern "C" __global__ void __launch_bounds__(128) {kernel}(int* out, u64 a, u64 b) {{
    extern __shared__ __align__(1024) char tile[];
    {kind} d[{count}] = {{}};
    const unsigned lane = threadIdx.x;
    a += at(tile) >> 4;
    b += at(tile) >> 4;
    asm volatile("wgmma.fence.sync.aligned;" : {", ".join(operands)} :: "memory");
    {statement * repeat}
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : {", ".join(operands)} :: "memory");
    {kind} sum = 0;
    for (int i = 0; i < {count}; ++i) sum += d[i];
    if (lane == 1000) out[0] = static_cast<int>(sum);
}}
"""


def _descriptor(start: int, rows: int, row_bytes: int, swizzle: int, transposed: bool) -> int:
    """Of an operand that starts ``start`` bytes behind the tile's start and fills its lines one behind the other."""
    if transposed:  # 64 rows side by side under the 128-byte swizzle, k below each other
        return wgmma.Descriptor(start, row_bytes * 64, 1024, swizzle=128).encode()
    if swizzle:
        return wgmma.Descriptor(start, 16, 8 * swizzle, swizzle=swizzle).encode()
    return wgmma.Descriptor(start, rows * 16, 128).encode()


def _product(
    types: tuple[str, str, str],
    n: int,
    *,
    swizzle: int = 128,
    a: str = "K",
    b: str = "K",
    sparse: bool = False,
    repeat: int = 1,
) -> Pattern:
    """``a`` and ``b``: K-major, MN-major (``"MN"``), or ``a`` in ``"registers"``."""
    family = next(each for each in wgmma.FAMILIES if types[1] in each.types)
    shape = wgmma.GroupShape(family, n, sparse)
    in_registers = a == "registers"
    tail = ""
    if family.negatable:
        tail += ", 1, 1"
    if family.transposable:
        tail += "" if in_registers else f", {int(a == 'MN')}"
        tail += f", {int(b == 'MN')}"
    name = f"wgmma {shape.name} {'.'.join(types)} sw{swizzle} A {a} B {b}{' sparse' * sparse}"
    name += f" {repeat} times" if repeat > 1 else ""
    kernel = "hopper_" + "".join(c if c.isalnum() else "_" for c in name)
    words = (
        _descriptor(0, 64, shape.stored * family.bits // 8, swizzle, a == "MN"),
        _descriptor(16384, n, shape.k * family.bits // 8, swizzle, b == "MN"),
    )
    facts = {
        "a_bytes": 0 if in_registers else 64 * shape.stored * family.bits // 8,
        "b_bytes": n * shape.k * family.bits // 8,
        "repeat": repeat,
    }
    return Pattern(
        name, kernel, (Pointer("G"), *(Scalar("u64", word) for word in words)), threads=128,
        text=_product_text(kernel, shape, types, in_registers=in_registers, tail=tail, repeat=repeat), facts=facts,
    )  # fmt: skip


F16 = ("f32", "f16", "f16")

PRODUCTS = [
    *(_product(F16, n) for n in (8, 16, 64, 128, 256)),
    _product(F16, 128, repeat=4),
    *(_product(F16, n, a="registers") for n in (8, 128, 256)),
    *(_product(F16, 128, swizzle=swizzle) for swizzle in (0, 32, 64)),
    _product(F16, 128, a="MN"),
    _product(F16, 128, b="MN"),
    _product(F16, 128, a="MN", b="MN"),
    _product(("f16", "f16", "f16"), 128),
    _product(("f32", "bf16", "bf16"), 128),
    _product(("f32", "tf32", "tf32"), 128),
    _product(("f32", "e4m3", "e4m3"), 128),
    _product(("s32", "s8", "s8"), 128),
    _product(("s32", "b1", "b1"), 128),
    _product(F16, 128, sparse=True),
    _product(F16, 128, sparse=True, a="registers"),
]

PATTERNS = [*COPIES, *MATRICES, *PRODUCTS]
assert len({pattern.name for pattern in PATTERNS}) == len(PATTERNS)


def text(pattern: Pattern) -> str:
    """The source of a pattern's kernel."""
    return SOURCE.read_text() + pattern.text
