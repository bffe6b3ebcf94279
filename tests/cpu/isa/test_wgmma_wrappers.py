"""Wrappers of ``wgmma``: each compiles to its instruction and multiplies on the emulator; bad arguments are refused."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from test_ops_wgmma import Image, d_place, metadata_words

from covering import few
from emulation import run_cuda
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError
from warptile.isa import wgmma
from warptile.isa.wrappers.mma import ELEMENTS
from warptile.isa.wrappers.wgmma import ACCUMULATORS, REGISTERS, SATURATED, wrapper
from warptile.launch.params import Scalar

RESULTS = {"f16": np.float16, "f32": np.float32, "s32": np.int32}
HEADERS = '#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include "ptx/wgmma.cuh"\n'


@cache
def written() -> tuple[str, ...]:
    """Names of instructions whose operands have one type: those that have a wrapper, and saturating ones."""
    found = []
    for name, (shape, (_, left, right)) in wgmma.by_name().items():
        if left == right:
            found += [name, name + SATURATED] if shape.family.saturates else [name]
    return tuple(found)


def qualified(name: str) -> str:
    """A type as code outside of the namespace names it."""
    return f"warptile::{name}" if name in ("saturating_int", "bit_packed") or name.startswith("float8") else name


def call(name: str, *, a_lines_m: bool = False, b_lines_n: bool = False, selector: int = 0) -> str:
    """A statement that multiplies with registers `c` of its own."""
    shape, (result, left, _) = wgmma.by_name()[name.removesuffix(SATURATED)]
    accumulator = "saturating_int" if name.endswith(SATURATED) else ACCUMULATORS[result]
    template = "SparseWgmma" if shape.sparse else "Wgmma"
    flags = f"{str(a_lines_m).lower()}, {str(b_lines_n).lower()}"
    arguments = f"{selector}, {flags}" if shape.sparse else flags
    metadata = "metadata, " if shape.sparse else ""
    types = f"{qualified(ELEMENTS[left])}, {qualified(accumulator)}, {shape.n}"
    return (
        f"{{\nusing INSTRUCTION = warptile::{template}<{types}>;\n"
        f'static_assert(INSTRUCTION::REGISTERS == {shape.registers(result)}, "registers");\n'
        f"INSTRUCTION::mma_async<{arguments}>(c, a, b, {metadata}add);\n}}\n"
    )


def kernel(name: str, **flags: object) -> str:
    """A kernel of one warpgroup: sums go in from `sums` and out to it, register by register of each thread."""
    shape, (result, _, _) = wgmma.by_name()[name.removesuffix(SATURATED)]
    count, register = shape.registers(result), REGISTERS[result][0]
    return (
        f"{HEADERS}{wrapper(name)}"
        f'extern "C" __global__ void multiply({register}* sums, const uint4* image, unsigned chunks, '
        "unsigned long long a, unsigned long long b, const unsigned* words, int add) {\n"
        "extern __shared__ __align__(1024) uint4 memory[];\n"
        "for (unsigned i = threadIdx.x; i < chunks; i += 128) memory[i] = image[i];\n"
        'asm volatile("fence.proxy.async;" ::: "memory");\n'
        "__syncthreads();\n"
        f"{register} c[{count}];\n"
        f"for (int i = 0; i < {count}; ++i) c[i] = sums[threadIdx.x * {count} + i];\n"
        "[[maybe_unused]] const unsigned metadata = words[threadIdx.x];\n"
        "warptile::warpgroup_fence_operand(c);\nwarptile::wgmma_fence();\n"
        f"{call(name, **flags)}"  # type: ignore[arg-type]
        "warptile::wgmma_commit_group();\nwarptile::wgmma_wait_group<0>();\n"
        "warptile::warpgroup_fence_operand(c);\n"
        f"for (int i = 0; i < {count}; ++i) sums[threadIdx.x * {count} + i] = c[i];\n}}\n"
    )


SAMPLE = written()[::29]


def test_the_sample_has_every_element_and_some_of_each_kind() -> None:
    found = {wgmma.by_name()[name.removesuffix(SATURATED)] for name in SAMPLE}
    assert {types[1] for _, types in found} == {each for family in wgmma.FAMILIES for each in family.types}
    assert {shape.sparse for shape, _ in found} == {False, True}
    assert any(name.endswith(SATURATED) for name in SAMPLE)


@pytest.mark.parametrize("names", few([SAMPLE[i::4] for i in range(4)], 1), ids=lambda names: names[0])
def test_a_sample_of_all_instructions_compiles(names: tuple[str, ...]) -> None:
    bodies = []
    for number, name in enumerate(names):
        shape, (result, _, _) = wgmma.by_name()[name.removesuffix(SATURATED)]
        register, count = REGISTERS[result][0], shape.registers(result)
        bodies.append(
            f'extern "C" __global__ void k{number}({register}* sums, unsigned long long a, unsigned long long b, '
            f"unsigned metadata, int add) {{\n{register} c[{count}];\n"
            f"for (int i = 0; i < {count}; ++i) c[i] = sums[threadIdx.x * {count} + i];\n"
            "warptile::warpgroup_fence_operand(c);\n"
            f"warptile::wgmma_fence();\n{call(name)}warptile::wgmma_commit_group();\nwarptile::wgmma_wait_group<0>();\n"
            "warptile::warpgroup_fence_operand(c);\n"
            f"for (int i = 0; i < {count}; ++i) sums[threadIdx.x * {count} + i] = c[i];\n}}\n"
        )
    text = HEADERS + "".join(map(wrapper, names)) + "".join(bodies)
    ptx = compile_source(Source(text, "k0", may_spill=True), wgmma.ARCH).ptx.decode()
    for name in names:
        shape, types = wgmma.by_name()[name.removesuffix(SATURATED)]
        assert shape.opcode(types) + (SATURATED if name.endswith(SATURATED) else "") in ptx


# --- on the emulator ----------------------------------------------------------------------------------------------

N = 16
DRAWN = {"s8": (-9, 10), "u8": (0, 10), "b1": (0, 2)}


def multiplied(
    name: str, a: np.ndarray, b: np.ndarray, sums: np.ndarray | None = None, *, words: np.ndarray | None = None,
    transposed: tuple[bool, bool] = (False, False), selector: int = 0,
) -> np.ndarray:  # fmt: skip
    """A B^T of one instruction, both along k as they are given, added to ``sums`` if there are some: (64, n)."""
    shape, (result, kind, _) = wgmma.by_name()[name.removesuffix(SATURATED)]
    image = Image()
    at_a = image.place(a, kind, transposed=transposed[0])
    at_b = image.place(b, kind, transposed=transposed[1])
    held = np.full((128, shape.n // 2), np.nan if result != "s32" else 7, RESULTS[result])
    if sums is not None:
        for lane, i in np.ndindex(*held.shape):
            held[lane, i] = sums[d_place(lane, i)]
    chunks = image.bytes.size // 16
    run_cuda(
        kernel(name, a_lines_m=transposed[0], b_lines_n=transposed[1], selector=selector), "multiply",
        [
            held, image.bytes, Scalar("u32", chunks), Scalar("u64", at_a), Scalar("u64", at_b),
            np.zeros(128, np.uint32) if words is None else words, Scalar("s32", int(sums is not None)),
        ],
        block=128, shared=image.bytes.size,
    )  # fmt: skip
    found = np.zeros((wgmma.ROWS, shape.n), held.dtype)
    for lane, i in np.ndindex(*held.shape):
        found[d_place(lane, i)] = held[lane, i]
    return found


def drawn(rows: int, k: int, kind: str) -> np.ndarray:
    """Small whole numbers, whose sums are exact everywhere."""
    return np.random.default_rng([rows, k]).integers(*DRAWN.get(kind, (-3, 4)), (rows, k)).astype(np.float64)


@pytest.mark.parametrize("family", wgmma.FAMILIES, ids=lambda family: family.types[0])
def test_each_family_multiplies(family: wgmma.Family) -> None:
    kind = family.types[-1]
    for result in family.results:
        a, b = drawn(wgmma.ROWS, family.k, kind), drawn(N, family.k, kind)
        name = f"wgmma.m64n{N}k{family.k}.{result}.{kind}"
        assert (multiplied(name, a, b) == a @ b.T).all()
        sums = np.arange(wgmma.ROWS * N).reshape(wgmma.ROWS, N) % 100.0
        assert (multiplied(name, a, b, sums) == sums + a @ b.T).all()


@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)])
def test_lines_along_rows_and_columns(transposed: tuple[bool, bool]) -> None:
    a, b = drawn(64, 16, "f16"), drawn(64, 16, "f16")[::-1]
    assert (multiplied("wgmma.m64n64k16.f32.f16", a, b, transposed=transposed) == a @ b.T).all()


def test_saturating_sums_stop_at_the_ends() -> None:
    a, b = np.full((64, 32), 9.0), np.full((N, 32), 9.0)
    sums = np.full((64, N), 2.0**31 - 100)
    name = f"wgmma.m64n{N}k32.s32.u8"
    assert (multiplied(name + SATURATED, a, b, sums) == 2**31 - 1).all()
    assert (multiplied(name, a, b, sums) == 2**31 - 100 + 32 * 81 - 2**32).all()


@pytest.mark.parametrize("selector", [0, 1])
def test_sparse_products(selector: int) -> None:
    # Of each four along k the first and the third are kept: nibbles 0b1000.
    kept, b = drawn(64, 16, "f16"), drawn(N, 32, "f16")
    a = np.zeros((64, 32))
    a[:, ::2] = kept
    words = metadata_words(np.full((64, 8), 0b1000), "f16", selector)
    found = multiplied(f"wgmma.sp.m64n{N}k32.f32.f16", kept, b, words=words, selector=selector)
    assert (found == a @ b.T).all()


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wgmma.m64n12k16.f32.f16", "wgmma.m64n8k16.f32.f64", "mma.m16n8k16.f32.f16", ""])
def test_unknown_instructions(name: str) -> None:
    with pytest.raises(KeyError, match=re.escape(repr(name))):
        wrapper(name)


def test_two_types_have_no_wrapper() -> None:
    with pytest.raises(ValueError, match="A and B of one type"):
        wrapper("wgmma.m64n8k32.f32.e4m3.e5m2")


@pytest.mark.parametrize("name", ["wgmma.m64n8k16.f32.f16", "wgmma.m64n8k256.s32.b1"])
def test_sums_that_do_not_saturate(name: str) -> None:
    with pytest.raises(ValueError, match="does not saturate"):
        wrapper(name + SATURATED)


@pytest.mark.parametrize("name", ["wgmma.m64n8k8.f32.tf32", "wgmma.m64n8k32.s32.s8", "wgmma.sp.m64n8k64.f32.e4m3"])
@pytest.mark.parametrize("flag", ["a_lines_m", "b_lines_n"])
def test_other_elements_have_lines_along_k_alone(name: str, flag: str) -> None:
    compile_source(Source(kernel(name), "multiply"), wgmma.ARCH)
    with pytest.raises(CompileError, match=r"static assertion failed[^\n]*lines along K"):
        compile_source(Source(kernel(name, **{flag: True}), "multiply"), wgmma.ARCH)
