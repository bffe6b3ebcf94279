"""A struct of parameters has its members where the C++ compiler puts them."""

import random
from itertools import product

import pytest

from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import ArgumentError, CompileError
from warptile.launch.params import Params, Pointer, Scalar, field_bytes
from warptile.launch.tensor_map import TensorMap

MEMBERS = {
    "bool": Scalar("bool", True),
    "short": Scalar("s16", -3),
    "__nv_bfloat16": Scalar("bf16", 0.5),
    "int": Scalar("s32", -3),
    "unsigned": Scalar("u32", 3),
    "long long": Scalar("s64", -5),
    "unsigned long long": Scalar("u64", 5),
    "__half": Scalar("f16", 0.5),
    "float": Scalar("f32", 1.5),
    "double": Scalar("f64", 2.5),
    "const void*": Pointer("A", 16),
    "warptile::TensorMap": TensorMap("A", "f16", (64, 64), (128,), (64, 64)),
}
"""C++ type of a member -> the member."""


def structs():
    """Types of members: one, every two, every three of different alignment in each order, and longer ones at random."""
    of_each_alignment = ["__half", "int", "double", "warptile::TensorMap"]
    yield from ((kind,) for kind in MEMBERS)
    yield from product(MEMBERS, repeat=2)
    yield from product(of_each_alignment, repeat=3)
    chosen = random.Random(5)
    yield from (tuple(chosen.choices(list(MEMBERS), k=chosen.randint(4, 20))) for _ in range(60))


def named(kinds):
    return Params(tuple((f"m{index}", MEMBERS[kind]) for index, kind in enumerate(kinds)))


def checked(number, kinds, params):
    """A C++ struct and the assertions that it is laid out as ``params`` says. NVRTC has no ``offsetof``; its front end
    takes the integer value of a constant address."""
    fields = " ".join(f"{kind} m{index};" for index, kind in enumerate(kinds))
    facts = [f"__INTADDR__(&((S{number}*)0)->{name}) == {offset}" for name, offset in params.offsets.items()]
    facts += [f"sizeof(S{number}) == {params.size_bytes}", f"alignof(S{number}) == {params.alignment}"]
    return f"struct S{number} {{ {fields} }};\n" + "\n".join(f'static_assert({each}, "{kinds}");' for each in facts)


def test_the_compiler_has_every_member_at_the_same_offset():
    lines = ['#include "ptx/cp_async_bulk_tensor.cuh"', "#include <cuda_bf16.h>", "#include <cuda_fp16.h>"]
    lines += [checked(number, kinds, named(kinds)) for number, kinds in enumerate(structs())]
    lines.append("__global__ void k(const __grid_constant__ S0 s, int* d) { *d = s.m0; }")
    assert compile_source(Source("\n".join(lines), "k"), "sm_90a").cubin


def test_a_wrong_offset_would_not_compile():
    kinds = ("int", "double")
    wrong = checked(0, kinds, named(("int", "float")))
    with pytest.raises(CompileError, match="static assertion failed"):
        compile_source(Source(f"{wrong}\n__global__ void k(S0 s, int* d) {{ *d = s.m0; }}", "k"), "sm_90a")


def test_members_are_encoded_at_their_offsets_and_padding_is_zero():
    params = named(("__half", "double", "int", "warptile::TensorMap", "__half"))
    content = params.encoded(lambda field: b"\xff" * field_bytes(field)[0])
    assert len(content) == params.size_bytes == 256
    filled = {byte for byte, value in enumerate(content) if value}
    assert filled == {0, 1, *range(8, 16), *range(16, 20), *range(64, 192), 192, 193}


def test_a_struct_without_members_has_no_bytes():
    assert (Params(()).size_bytes, Params(()).alignment, Params(()).encoded(lambda field: b"x")) == (0, 1, b"")


def test_values_of_scalars_are_replaced_and_only_those_named():
    params = Params((("n", Scalar("s32", 1)), ("alpha", Scalar("f32", 1)), ("a", Pointer("A"))))
    changed = params.with_values({"alpha": 2.5})
    assert dict(changed.members) == {"n": Scalar("s32", 1), "alpha": Scalar("f32", 2.5), "a": Pointer("A")}
    assert changed.offsets == params.offsets
    with pytest.raises(AssertionError, match="beta"):
        params.with_values({"beta": 1.0})


def test_a_scalar_of_no_known_type_is_refused():
    with pytest.raises(ArgumentError, match="got type 's24'; it takes bool, s8"):
        Scalar("s24", 1)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bool", 7, "01"), ("s8", -1, "ff"), ("u16", 0x1234, "3412"), ("s32", -2, "feffffff"), ("f16", 1e9, "007c"),
        ("f32", -1e99, "000080ff"), ("bf16", 1.0, "803f"), ("bf16", 1 + 2**-8, "803f"), ("bf16", 1 + 3 * 2**-8, "823f"),
        ("bf16", 1 + 2**-8 + 2**-40, "813f"), ("bf16", -(1 + 3 * 2**-8 - 2**-40), "81bf"), ("bf16", 1e99, "807f"),
        ("bf16", float("nan"), "ff7f"),
    ],
)  # fmt: skip
def test_the_bytes_of_a_scalar(kind, value, expected):
    """Rounded to nearest, ties to even, once: what is not a tie in float64 is none in bf16."""
    assert Scalar(kind, value).encoded.hex() == expected
