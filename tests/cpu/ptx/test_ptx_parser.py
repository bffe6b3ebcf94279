"""The PTX parser on what NVRTC writes, on PTX in the manner of Triton, on every operand form, and on broken text."""

from __future__ import annotations

import struct
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import PtxSyntaxError, UnsupportedError
from warptile.ptx import parse
from warptile.ptx.instruction import (
    Address,
    CallArguments,
    Immediate,
    Label,
    Negated,
    Paired,
    PtxModule,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def body_of(text: str, *, before: str = "") -> PtxModule:
    return parse(f"{HEAD}{before}\n.visible .entry k()\n{{\n{text}\n}}\n")


def first(text: str, *, before: str = ""):
    function = body_of(text, before=before).functions["k"]
    assert function.body
    return function.body[0]


@cache
def compiled(text: str, arch: str = "sm_90a", options: tuple[str, ...] = ()) -> PtxModule:
    return parse(compile_source(Source(text, "kernel", may_spill=True), arch, options=options).ptx)


# -- NVRTC -------------------------------------------------------------------------------------------------------------

WMMA = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void kernel(const half* a, const half* b, float* c) {
  __shared__ half tile[16 * 24];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.f);
  for (int i = threadIdx.x; i < 256; i += 32) tile[i / 16 * 24 + i % 16] = a[i];
  __syncthreads();
  wmma::load_matrix_sync(fa, tile, 24);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(acc, fa, fb, acc);
  wmma::store_matrix_sync(c, acc, 16, wmma::mem_row_major);
}
"""


def test_wmma_keeps_vectors_lines_and_inline_chains() -> None:
    module = compiled(WMMA)
    assert (module.version >= (9, 0), module.target, module.address_size) == (True, "sm_90a", 64)
    assert module.entries == ("kernel",)
    function = module.functions["kernel"]
    assert [parameter.size_bytes for parameter in function.parameters] == [8, 8, 8]
    assert [v.size_bytes for v in function.variables if v.space == "shared"] == [16 * 24 * 2]
    assert function.body is not None
    (mma,) = [i for i in function.body if i.opcode == "wmma" and i.modifiers[0] == "mma"]
    assert mma.modifiers == ("mma", "sync", "aligned", "row", "row", "m16n16k16", "f32", "f32")
    assert [len(operand.elements) for operand in mma.operands] == [8, 8, 8, 8]
    assert mma.location.file.endswith("mma.hpp")
    (step,) = mma.inlined
    assert "mma_sync" in step.function
    assert WMMA.split("\n")[step.line - 1].strip().startswith("wmma::mma_sync")
    store = next(i for i in function.body if i.opcode == "st" and "shared" in i.modifiers)
    assert "tile[i / 16" in WMMA.split("\n")[store.location.line - 1]
    assert store.inlined == ()


PROGRAM = """
__device__ float table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__constant__ int constants[4] = {1, 2, 3};
__device__ int counter;
__device__ int counters[8];
__device__ int* pointer = &counters[3];
struct Mixed { int a; double b; char c[3]; int* p; };
__device__ Mixed mixed = {1, 2.5, {'a', 'b', 'c'}, &counter};
extern __shared__ float dynamic[];
__device__ __noinline__ int times3(int x) { return x * 3 + clock(); }
__device__ __noinline__ int times5(int x) { return x * 5 + clock(); }
__device__ int (*functions[2])(int) = {times3, times5};
__device__ __noinline__ Mixed change(int a, Mixed s) { s.a += a; return s; }
extern "C" __global__ void __launch_bounds__(128, 2) kernel(int* o, int n, Mixed s) {
  __shared__ int fixed[33];
  fixed[threadIdx.x % 33] = n;
  __syncthreads();
  dynamic[threadIdx.x] = table[n & 1][n % 3] + constants[n & 3];
  int v = functions[n & 1](n) + *pointer;
  Mixed q = change(v, s);
  v += q.a + q.c[1] + mixed.a;
  printf("v = %d %f\\n", v, 1.5f);
  assert(v != 7);
  int w;
  asm volatile("{ .reg .pred p; .reg .b32 t; setp.eq.s32 p, %1, 3; @p bra L1; add.s32 t, %1, 1; mov.b32 %0, t;"
               " bra L2; L1: mov.b32 %0, 5; L2: }" : "=r"(w) : "r"(v));
  asm volatile("{ .reg .pred p; .reg .b32 t; setp.eq.s32 p, %1, 4; @!p bra L1; add.s32 t, %1, 2; mov.b32 %0, t;"
               " bra L2; L1: mov.b32 %0, 6; L2: }" : "=r"(w) : "r"(w));
  o[threadIdx.x] = w + fixed[threadIdx.x];
}
"""


def test_a_program_with_calls_initialisers_and_printf() -> None:
    module = compiled(PROGRAM)
    variables = {variable.name: variable for variable in module.variables}
    assert variables["table"].initializer == struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    assert variables["constants"].space == "const"
    assert variables["constants"].initializer == struct.pack("<4i", 1, 2, 3, 0)
    assert (variables["counter"].size_bytes, variables["counter"].initializer) == (4, None)
    assert variables["pointer"].relocations == ((0, "counters", 12),)
    assert variables["mixed"].initializer[:20] == struct.pack("<qd3sx", 1, 2.5, b"abc")
    assert variables["mixed"].relocations == ((24, "counter", 0),)
    assert [name for _, name, _ in variables["functions"].relocations] == ["_Z6times3i", "_Z6times5i"]
    assert (variables["dynamic"].extern, variables["dynamic"].size_bytes) == (True, 0)
    assert b"v = %d %f\n\0" in [variable.initializer for variable in module.variables]
    assert module.functions["vprintf"].body is None
    kernel = module.functions["kernel"]
    assert kernel.directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,)}
    assert [p.size_bytes for p in kernel.parameters] == [8, 4, 32]
    change = module.functions["_Z6changei5Mixed"]
    assert not change.entry
    assert [p.size_bytes for p in change.parameters] == [4, 32]


def test_every_name_of_a_function_is_unique_and_known() -> None:
    kernel = compiled(PROGRAM).functions["kernel"]
    names = [*kernel.registers, *[v.name for v in kernel.variables], *kernel.labels]
    assert len(names) == len(set(names))
    assert len([v for v in kernel.variables if v.name.startswith("param0")]) >= 4
    known = {*names, *[p.name for p in kernel.parameters], *compiled(PROGRAM).functions}
    known |= {variable.name for variable in compiled(PROGRAM).variables} | set(kernel.branch_targets)
    for instruction in kernel.body:
        for operand in instruction.operands:
            found = [operand.base] if isinstance(operand, Address) else [operand]
            if isinstance(operand, CallArguments | Vector):
                found = list(operand.elements)
            for element in found:
                if isinstance(element, Register):
                    assert kernel.registers[element.name] == element
                elif isinstance(element, Symbol):
                    assert element.name in known, instruction
                elif isinstance(element, Label) and instruction.opcode == "bra":
                    assert element.name in kernel.labels, instruction


def test_labels_of_inline_assembly_stay_in_their_braces() -> None:
    kernel = compiled(PROGRAM).functions["kernel"]
    jumps = [i for i in kernel.body if i.opcode == "bra" and i.predicate and i.predicate.name.split("$")[0] == "p"]
    assert [i.predicate_negated for i in jumps] == [False, True]
    for jump, constant in zip(jumps, (5, 6), strict=True):
        landing = kernel.body[kernel.labels[jump.operands[0].name]]
        assert landing.operands[1] == Immediate(constant)
    assert len({i.predicate for i in jumps}) == 2


def test_debug_builds_are_read() -> None:
    module = compiled(PROGRAM, options=("-G",))
    assert module.functions["kernel"].body


def test_speed_on_a_large_file() -> None:
    text = "\n".join(f"add.s32 %r{i % 90}, %r{i % 70}, {i}; ld.global.f32 %f1, [%rd1+{i}];" for i in range(10000))
    source = f"{HEAD}.entry k() {{ .reg .b32 %r<100>; .reg .f32 %f<9>; .reg .b64 %rd<4>;\n{text}\n}}"
    start = time.process_time()
    module = parse(source)
    seconds_per_mb = (time.process_time() - start) / (len(source) / 1e6)
    assert len(module.functions["k"].body) == 20000
    assert seconds_per_mb < 5


# -- in the manner of Triton ------------------------------------------------------------------------------------------

TRITON = """
//
// Generated by LLVM NVPTX Back-End
//

.version 8.4
.target sm_90a
.address_size 64

	// .globl	add_kernel
.extern .shared .align 16 .b8 global_smem[];
.global .align 1 .b8 _$_str[11] = {95, 95, 67, 85, 68, 65, 95, 70, 84, 90};

.visible .entry add_kernel(
	.param .u64 .ptr .global .align 16 add_kernel_param_0,
	.param .u64 .ptr .global .align 1 add_kernel_param_1,
	.param .u32 add_kernel_param_2
)
.reqntid 128, 1, 1
.maxnreg 255
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<10>;
	.reg .b64 	%rd<5>;
	.loc	1 7 0                           // add.py:7:0
$L__func_begin0:
	.loc	1 7 0
	ld.param.u64 	%rd3, [add_kernel_param_0];
$L__tmp0:
	.loc	1 12 24
	// begin inline asm
	mov.u32 %r1, %ctaid.x;
	// end inline asm
	.loc	2 31 8, function_name $L__info_string1, inlined_at 1 13 5
	shl.b32 	%r2, %r1, 10;
	.loc	2 40 9, function_name $L__info_string2+2, inlined_at 2 31 8
	setp.lt.s32 	%p1, %r2, 4;
	.loc	1 16 16
	// begin inline asm
	mov.u32 %r3, 0x0;
	mov.u32 %r4, 0x0;
	@%p1 ld.global.v2.b32 { %r3, %r4 }, [ %rd3 + 0 ];
	// end inline asm
	@%p1 bra 	$L__BB0_2;
	bar.sync 	0;
$L__BB0_2:
	.pragma "nounroll";
	ret;
$L__tmp1:
$L__func_end0:
}
	.file	1 "/x/add.py"
	.file	2 "/x/standard.py", 1234, 99
	.section	.debug_abbrev
	{
.b8 1                                   // Abbreviation Code
.b8 17
.b8 0
	}
	.section	.debug_info
	{
.b32 82                                 // Length of Unit
.b32 .debug_abbrev
.b64 $L__func_begin0
.b64 $L__tmp1-$L__tmp0
	}
	.section	.debug_str
	{
$L__info_string0:
.b8 120,0
$L__info_string1:
.b8 115,117,109,0
$L__info_string2:
.b8 95,95,114,101,100,0
	}
	.section	.debug_macinfo	{	}
"""


def test_triton() -> None:
    module = parse(TRITON)
    kernel = module.functions["add_kernel"]
    assert kernel.directives == {"reqntid": (128, 1, 1), "maxnreg": (255,)}
    assert [p.alignment_bytes for p in kernel.parameters] == [8, 8, 4]  # .ptr's alignment is of what it points to
    load = next(i for i in kernel.body if i.opcode == "ld" and i.predicate)
    assert load.operands == (
        Vector((Register("%r3", "b32"), Register("%r4", "b32"))),
        Address(Register("%rd3", "b64"), 0),
    )
    assert load.text == "@%p1 ld.global.v2.b32 { %r3, %r4 }, [ %rd3 + 0 ]"
    assert (load.location.file, load.location.line, load.inlined) == ("/x/add.py", 16, ())
    compare = next(i for i in kernel.body if i.opcode == "setp")
    assert compare.location.file == "/x/standard.py"
    assert [(s.function, s.file, s.line) for s in compare.inlined] == [
        ("red", "/x/standard.py", 31),
        ("sum", "/x/add.py", 13),
    ]
    where = "/x/standard.py:40, called at /x/standard.py:31, called at /x/add.py:13 (PTX line"
    assert str(compare.location).startswith(where)
    assert str(load.location).startswith("/x/add.py:16 (PTX")
    assert kernel.labels["$L__tmp1"] == len(kernel.body)
    assert TRITON.split("\n")[load.location.ptx_line - 1].strip().startswith("@%p1 ld.global")
    assert module.files[2] == "/x/standard.py"


def test_bytes_with_a_trailing_zero_are_read_and_text_before_the_first_loc_has_no_line() -> None:
    module = parse(f"{HEAD}.entry k() {{ ret; }}\n".encode() + b"\0")
    (instruction,) = module.functions["k"].body
    assert (instruction.location.line, instruction.location.file, instruction.location.ptx_line) == (None, None, 4)


# -- variables ---------------------------------------------------------------------------------------------------------


def variable(text: str, *, before: str = "") -> Variable:
    return parse(f"{HEAD}{before}{text}").variables[-1]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (".global .u8 a[4] = {1, 2};", b"\1\2\0\0"),
        (".global .s16 a = -2;", b"\xfe\xff"),
        (".global .f32 a[] = {1.0, 0f40000000, -3, 2};", struct.pack("<4f", 1, 2, -3, 2)),
        (".global .f64 a = 0d3FF8000000000000;", struct.pack("<d", 1.5)),
        (".global .b32 a = 0f3F800000;", struct.pack("<f", 1)),
        (".const .u32 a[2][3] = {{1}, {4, 5}};", struct.pack("<6I", 1, 0, 0, 4, 5, 0)),
        (".const .u32 a[2][3] = {1, 2, 3, 4};", struct.pack("<6I", 1, 2, 3, 4, 0, 0)),
        (".global .v4 .f32 a = {1.0, 2.0, 3.0, 4.0};", struct.pack("<4f", 1, 2, 3, 4)),
        (".global .v2 .u16 a[2] = {{1, 2}, {3, 4}};", struct.pack("<4H", 1, 2, 3, 4)),
        ('.global .b8 a[6] = "a\\"b";', b'a"b\0\0\0'),
        (".global .u64 a = 0xFFFFFFFFFFFFFFFFU;", b"\xff" * 8),
        (".global .u32 a[4] = {(1 << 4) | 3, ~0, 7 / 2 * 2, 1 > 2 ? 5 : 6};", struct.pack("<4I", 19, 2**32 - 1, 6, 6)),
        (".global .align 16 .b8 a[3] = {017, 0x1F, 0b101};", bytes([15, 31, 5])),
    ],
)
def test_initialisers(text, data) -> None:
    found = variable(text)
    assert (found.initializer, found.size_bytes) == (data, len(data))


def test_addresses_in_initialisers() -> None:
    other = ".global .u32 b[8]; .extern .func f;\n"
    found = variable(".global .u64 a[4] = {generic(b)+4, b, f, generic(b+8)};", before=other)
    assert found.relocations == ((0, "b", 4), (8, "b", 0), (16, "f", 0), (24, "b", 8))
    masks = ", ".join(f"{0xFF << shift:#x}(b)" for shift in range(0, 64, 8))
    found = variable(f".global .b8 a[10] = {{1, {masks}, 2}};", before=other)
    assert found.relocations == ((1, "b", 0),)
    assert found.initializer == b"\1" + bytes(8) + b"\2"


def test_declarations_without_initialisers() -> None:
    module = parse(
        f"{HEAD}.extern .shared .align 128 .b8 s[];\n.global .attribute(.managed) .align 8 .b8 m[2][4];\n"
        ".visible .global .u32 x, y[2];\n.common .global .f64 z;\n.extern .global .b8 far[16];\n.global .v4 .f32 q;"
    )
    found = {v.name: v for v in module.variables}
    assert (found["s"].space, found["s"].size_bytes, found["s"].alignment_bytes, found["s"].extern) == (
        "shared", 0, 128, True)  # fmt: skip
    assert [found[n].size_bytes for n in "mxyzq"] == [8, 4, 8, 8, 16]
    assert [found[n].alignment_bytes for n in "mxyzq"] == [8, 4, 4, 8, 16]
    assert found["far"].extern
    assert all(v.initializer is None for v in module.variables)


# -- functions ---------------------------------------------------------------------------------------------------------


def test_functions_parameters_and_calls() -> None:
    module = parse(
        HEAD
        + """
.visible .func (.param .align 8 .b8 back[16]) f (.param .b32 x, .param .b64 y);
.func (.reg .b32 r) g (.reg .b32 a, .reg .pred p) .noreturn { mov.b32 r, a; ret; }
.visible .func (.param .align 8 .b8 back[16]) f (.param .b32 x, .param .b64 y) { ret; }
.weak .entry k(.param .align 64 .b8 map[128]) .explicitcluster .reqnctapercluster 2, 1, 1
{
  .reg .b32 a, b; .reg .b64 d; .reg .pred p;
  { .param .b32 x; .param .b64 y; .param .align 8 .b8 z[16];
    call.uni (z), f, (x, y); }
  { .param .b32 x; .param .b64 y; .param .align 8 .b8 z[16];
    proto: .callprototype (.param .align 8 .b8 _[16]) _ (.param .b32 _, .param .b64 _) ;
    call (z), d, (x, y), proto; }
  call (b), g, (a, p);
  call g;
  list: .calltargets g, f;
  targets: .branchtargets L0, L1, L0;
  brx.idx a, targets;
  L0: ret; L1: exit;
}
.alias h, f;
"""
    )
    assert module.entries == ("k",)
    f, g, k = (module.functions[name] for name in "fgk")
    assert module.functions["h"] is f
    assert [p.size_bytes for p in f.returns] == [16]
    assert f.body[0].opcode == "ret"
    assert g.parameters == (Register("a", "b32"), Register("p", "pred"))
    assert (g.returns, g.directives) == ((Register("r", "b32"),), {"noreturn": ()})
    assert k.directives == {"explicitcluster": (), "reqnctapercluster": (2, 1, 1)}
    calls = [i for i in k.body if i.opcode == "call"]
    names = [variable.name for variable in k.variables]
    assert len(set(names)) == 6
    assert calls[0].operands == (
        CallArguments((Symbol(names[2]),)), Symbol("f"), CallArguments((Symbol(names[0]), Symbol(names[1])))
    )  # fmt: skip
    assert calls[1].operands[0] == CallArguments((Symbol(names[5]),))
    assert calls[1].operands[1] == Register("d", "b64")
    assert isinstance(calls[1].operands[3], Label)
    assert calls[2].operands == (
        CallArguments((Register("b", "b32"),)),
        Symbol("g"),
        CallArguments((Register("a", "b32"), Register("p", "pred"))),
    )
    assert calls[3].operands == (Symbol("g"),)
    assert k.branch_targets == {"targets": ("L0", "L1", "L0"), "list": ("g", "f")}
    assert (k.labels["L0"], k.labels["L1"]) == (len(k.body) - 2, len(k.body) - 1)
    (jump,) = [i for i in k.body if i.opcode == "brx"]
    assert jump.operands == (Register("a", "b32"), Label("targets"))


def test_scopes_hide_and_restore_names() -> None:
    function = body_of(
        """.reg .b32 a; .reg .b64 b;
        mov.b32 a, 1;
        { .reg .f32 a; mov.f32 a, 0f00000000; { .reg .b16 a; mov.b16 a, 2; mov.b64 b, 3; } mov.f32 a, 0f3F800000; L: }
        { .reg .pred a; L: @a bra L; }
        mov.b32 a, 4;"""
    ).functions["k"]
    types = [i.operands[0].type for i in function.body if i.opcode == "mov"]
    assert types == ["b32", "f32", "b16", "b64", "f32", "b32"]
    assert [i.operands[0].name for i in function.body if i.opcode == "mov"][:3] == ["a", "a$1", "a$2"]
    jump = next(i for i in function.body if i.opcode == "bra")
    assert jump.predicate == Register("a$3", "pred")
    assert function.labels[jump.operands[0].name] == function.body.index(jump)
    assert len(function.labels) == 2


def test_variables_of_two_functions_with_one_name_stay_apart() -> None:
    module = parse(
        f"{HEAD}.entry a() {{ .shared .b32 s; .reg .b64 d; mov.u64 d, s; }}\n"
        f".entry b() {{ .shared .b32 s; .reg .b64 d; mov.u64 d, s; }}"
    )
    used = [module.functions[n].body[0].operands[1] for n in "ab"]
    assert used == [Symbol("s"), Symbol("s$1")]
    assert [module.functions[n].variables[0].name for n in "ab"] == ["s", "s$1"]


# -- operands ----------------------------------------------------------------------------------------------------------

DECLARED = """.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .shared .b8 sym[64];"""


def operands_of(text: str) -> tuple:
    return first(f"{DECLARED} {text};").operands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("setp.eq.s32 %p1|%p2, %r1, 2, !%p3", (Paired(Register("%p1", "pred"), Register("%p2", "pred")),
                                               Register("%r1", "b32"), Immediate(2), Negated(Register("%p3", "pred")))),
        ("elect.sync _|%p1, -1", (Paired(None, Register("%p1", "pred")), Immediate(-1))),
        ("shfl.sync.bfly.b32 %r1|_, %r2, 1, 31, -1", (Paired(Register("%r1", "b32"), None), Register("%r2", "b32"),
                                                     Immediate(1), Immediate(31), Immediate(-1))),
        ("mbarrier.arrive.shared.b64 _, [sym+8]", (Sink(), Address(Symbol("sym"), 8))),
        ("ld.global.b32 %r1, [%rd1+-16]", (Register("%r1", "b32"), Address(Register("%rd1", "b64"), -16))),
        ("ld.global.b32 %r1, [%rd1-16]", (Register("%r1", "b32"), Address(Register("%rd1", "b64"), -16))),
        ("ld.shared.b32 %r1, [64]", (Register("%r1", "b32"), Address(None, 64))),
        ("ld.shared.b32 %r1, [sym+4*2+1]", (Register("%r1", "b32"), Address(Symbol("sym"), 9))),
        ("mov.b64 {_, %r1}, %rd1", (Vector((None, Register("%r1", "b32"))), Register("%rd1", "b64"))),
        ("mov.u32 %r1, %tid.x", (Register("%r1", "b32"), SpecialRegister("tid.x"))),
        ("mov.u64 %rd1, %clock64", (Register("%rd1", "b64"), SpecialRegister("clock64"))),
        ("mov.u64 %rd1, sym-4", (Register("%rd1", "b64"), Symbol("sym", -4))),
        ("mov.u32 %r1, WARP_SZ", (Register("%r1", "b32"), Immediate(32))),
        ("mov.f32 %r1, 0f3FC00000", (Register("%r1", "b32"), Immediate(1.5, 0x3FC00000, 32))),
        ("mov.f64 %rd1, 0D3FF8000000000000", (Register("%rd1", "b64"), Immediate(1.5, 0x3FF8000000000000, 64))),
        ("mov.f32 %r1, -1.5", (Register("%r1", "b32"), Immediate(-1.5))),
        ("mov.f32 %r1, 1e3", (Register("%r1", "b32"), Immediate(1000.0))),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, 3}], [%r4]",
         (Address(Register("%r1", "b32")), TensorAddress(Address(Register("%rd1", "b64")),
          Vector((Register("%r2", "b32"), Immediate(3)))), Address(Register("%r4", "b32")))),
        ("ret", ()),
    ],
)  # fmt: skip
def test_operand_forms(text, expected) -> None:
    assert operands_of(text) == expected


def test_modifiers_keep_their_colons_and_may_stand_apart() -> None:
    found = first(f"{DECLARED} ld.global.L1::no_allocate.L2::128B.v2.b32 {{%r1, %r2}}, [%rd1];")
    assert found.modifiers == ("global", "L1::no_allocate", "L2::128B", "v2", "b32")
    assert first(f"{DECLARED} add .s32 %r1, %r1, 1;").modifiers == ("s32",)


def test_directives_may_stand_together() -> None:
    function = body_of("{.reg.b16 hl, hu; .shared.align 4.b8 s[8]; mov.b32 {hl,hu}, 7;}").functions["k"]
    assert function.registers == {"hl": Register("hl", "b16"), "hu": Register("hu", "b16")}
    assert (function.variables[0].alignment_bytes, function.variables[0].size_bytes) == (4, 8)


integers = st.integers(0, 2**64 - 1)
spellings = st.one_of(
    integers.map(lambda v: (str(v), v)),
    integers.map(lambda v: (f"{v}U", v)),
    integers.map(lambda v: (f"{v:#x}", v)),
    integers.map(lambda v: (f"0X{v:X}U", v)),
    integers.map(lambda v: (f"{v:#b}", v)),
    integers.map(lambda v: (f"0{v:o}", v)),
    st.integers(0, 2**63).map(lambda v: (f"-{v}", -v)),
)
registers = st.sampled_from([("%r1", "b32"), ("%rd2", "b64"), ("%p3", "pred")]).map(
    lambda pair: (pair[0], Register(*pair))
)
literals = st.one_of(
    spellings.map(lambda pair: (pair[0], Immediate(pair[1]))),
    st.integers(0, 2**32 - 1).filter(lambda b: b & 0x7F800000 != 0x7F800000).map(
        lambda b: (f"0f{b:08X}", Immediate(struct.unpack("<f", struct.pack("<I", b))[0], b, 32))
    ),
)  # fmt: skip
offsets = st.integers(-(2**31), 2**31 - 1)
addresses = st.one_of(
    st.tuples(registers, offsets).map(lambda t: (f"[{t[0][0]}+{t[1]}]", Address(t[0][1], t[1]))),
    offsets.map(lambda v: (f"[ sym + {v} ]", Address(Symbol("sym"), v))),
)
scalars = st.one_of(registers, literals)
vectors = st.lists(st.one_of(scalars, st.just(("_", None))), min_size=1, max_size=8).map(
    lambda items: ("{" + ",".join(text for text, _ in items) + "}", Vector(tuple(value for _, value in items)))
)


@settings(max_examples=150, deadline=None)
@given(items=st.lists(st.one_of(scalars, addresses, vectors), min_size=1, max_size=5))
def test_operands_come_back_as_written(items) -> None:
    text = "op.b32 " + ", ".join(spelling for spelling, _ in items)
    instruction = first(f"{DECLARED} {text};")
    assert instruction.operands == tuple(value for _, value in items)
    assert instruction.text == " ".join(text.split())


@st.composite
def expressions(draw, depth: int = 3):
    if depth == 0 or draw(st.booleans()):
        value = draw(st.integers(0, 99))
        return str(value), value
    (left, x), (right, y) = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    name = draw(st.sampled_from(["+", "-", "*", "&", "|", "^", "<", "==", "&&", "||"]))
    value = {
        "+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y, "<": int(x < y), "==": int(x == y),
        "&&": int(bool(x) and bool(y)), "||": int(bool(x) or bool(y)),
    }[name]  # fmt: skip
    return f"({left} {name} {right})", value


@settings(max_examples=100, deadline=None)
@given(pair=expressions())
def test_constant_expressions(pair) -> None:
    text, value = pair
    assert operands_of(f"mov.b64 %rd1, {text}")[1] == Immediate(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 + 3 * 4", 14), ("1 << 2 + 1", 8), ("7 - 2 - 1", 4), ("-7 / 2", -3), ("-7 % 3", -1), ("!5", 0),
     ("~0 & 0xF", 15), ("1 ? 2 : 3", 2), ("3 | 4 == 4", 3), ("(.u64) -1", 2**64 - 1),
     ("(.s64) 0xFFFFFFFFFFFFFFFF", -1)],
)  # fmt: skip
def test_precedence_is_that_of_c(text, value) -> None:
    assert operands_of(f"mov.b64 %rd1, {text}")[1] == Immediate(value)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mov.u32 %r1, %r99", "'%r99' is not declared"),
        ("ld.global.b32 %r1, [%rd1+%r2]", "an address is"),
        ("ld.global.b32 %r1, [%rd1", "expected"),
        ("ld.global.b32 %r1 %r2", "expected ';', got '%r2'"),
        ("mov.u32 %r1, ", "expected the name"),
        ("@%r1 bra L", "not a .pred"),
        ("@%p1", "expected the name of an instruction"),
        ("bra nowhere", "'nowhere' is not declared"),
        (".reg .v3 .b32 %v", "unknown register type .v3"),
        (".reg .b33 %v", "unknown register type .b33"),
        (".reg .b32 %r1", "declared twice"),
        (".what 3", "unknown directive .what"),
        ("mov.u32 %r1, 1 / 0", "divides or shifts by 0"),
        ("mov.u32 %r1, 1 + 1.5", "integers only"),
        ("mov.u32 %r1, {1, 2", "expected '}'"),
        ("mov.u32 %r1, #", "no PTX token starts here"),
        ("{ add.s32 %r1, %r1, 1", "never closed"),
        ('mov.u32 %r1, "x"', "expected the name"),
    ],
)
def test_errors_name_the_line_and_its_text(text, message) -> None:
    source = f"{HEAD}.entry k()\n{{\n{DECLARED}\n{text};\n}}\n"
    with pytest.raises(PtxSyntaxError) as caught:
        parse(source)
    assert message in str(caught.value)
    expected_line = 5 if "never closed" in message else 7
    assert caught.value.location.ptx_line == expected_line
    assert source.split("\n")[expected_line - 1].strip()[:20] in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [".global .u32 a[] ;", ".global .u32 a[2] = {1, 2, 3};", ".global .u32 a = {1, 2};", ".global .u32 a[2][] = {1};",
     ".global .u32 a = b;", ".global .u32 b; .global .u32 a = b;", ".global .u32 a = 1.5;",
     ".global .u32 a; .global .u32 a;",
     ".global .u32 a[2] = 3;", ".global .u32 a[-1];", ".global .align 3 .u32 a;", ".global .texture a;", ".global a;",
     '.global .u32 a[2] = "ab";', ".global .u32 b; .global .b8 a[2] = {0xFF(b), 0xFF00(b)};",
     ".func f() {} .func f() {}",
     ".global .u32 b; .global .b8 a[8] = {0x1FF(b)};", ".entry k() .fast 3 {}", ".alias a, b;", "ret;", ".entry k() {",
     ".entry k(.param .b32", ".entry k() { .loc 1 x 3 }", ".entry", ".section .debug_str {", ".global .f32 a = 1e60;"],
)  # fmt: skip
def test_broken_modules(text) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(HEAD + text)
    assert caught.value.location.ptx_line >= 4


@pytest.mark.parametrize("text", ["", ".version 8.7", ".version x", "\x07", "this is no PTX", ".target sm_90"])
def test_what_is_no_ptx_at_all(text) -> None:
    with pytest.raises(PtxSyntaxError):
        parse(text)


@pytest.mark.parametrize("size", [".address_size 32", ""])
def test_modules_with_32_bit_addresses_are_refused(size) -> None:
    with pytest.raises(UnsupportedError, match=r"\.address_size 64"):
        parse(f".version 8.7\n.target sm_90\n{size}\n.entry k() {{ ret; }}")
