"""What machine code the instructions become: the committed table against today's assembler, and against the ISA's."""

import json
import re
from dataclasses import replace

import pytest

from covering import alternating, few
from warptile.bench.campaign import survey_machine_code as assembling
from warptile.codegen import headers
from warptile.codegen.nvrtc import compile_source, compiler_version, disassemble
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError
from warptile.isa import machine_code, mma, wgmma, wmma
from warptile.isa.catalogue import (
    GROUP_COLUMNS,
    Multiplication,
    assembled,
    by_name,
    group_multiplications,
    multiplications,
)
from warptile.isa.machine_code import ARCHITECTURES, Outcome

TABLE = machine_code.table()
CAPABILITY = {arch: int(re.sub(r"\D", "", arch)) for arch in ARCHITECTURES}

assembles = pytest.mark.skipif(
    headers.program("nvdisasm") is None, reason="nvdisasm is not installed (the extra warptile[sass] adds it)"
)


def same_compiler():
    if compiler_version() != TABLE.compiler:
        pytest.skip(
            f"the table is of {TABLE.compiler}, this is {compiler_version()}: "
            "python -m warptile.bench.campaign.survey_machine_code"
        )


def differing(arch, instructions):
    return {
        each.name: (outcome, TABLE.of(arch, each.name))
        for each, outcome in assembling.assemble(arch, instructions)
        if outcome != TABLE.of(arch, each.name)
    }


@assembles
def test_the_table_is_what_the_assembler_makes_for_sm_90a():
    """Half of it in an ordinary run."""
    same_compiler()
    # All that it takes, and of what it refuses, one by one, those with one type.
    chosen = [m for m in assembled() if status("sm_90a", m.name) != "refused" or m.types[1] == m.types[2]]
    assert len(chosen) > 150
    assert differing("sm_90a", alternating(chosen)) == {}


SAMPLE = (
    "mma.m8n8k4.f32.f16", "mma.m16n8k8.f16.f16", "mma.m16n8k16.f32.bf16", "mma.m16n8k8.f64.f64",
    "mma.m8n8k16.s32.s8.u8", "mma.m16n8k64.s32.s4", "mma.m8n8k128.s32.b1.xor", "mma.m16n8k32.f32.e4m3",
    "mma.m16n8k32.f8f6f4.f32.e2m1.e3m2", "mma.m16n8k64.mxf4nvf4.f32.e2m1.4X.ue4m3", "mma.sp.m16n8k32.f16.f16",
    "mma.sp.m16n8k64.f32.e5m2.e4m3", "wmma.m8n32k16.f32.f16.cf16", "wmma.m8n8k32.s32.u4",
)  # fmt: skip


@assembles
@pytest.mark.parametrize("arch", few([arch for arch in ARCHITECTURES if arch != "sm_90a"], 2))
def test_a_sample_of_every_other_architecture_is_what_the_assembler_makes(arch):
    same_compiler()
    some = [by_name()[name] for name in SAMPLE] + [m for m in group_multiplications() if m.types[1] == "f16"]
    assert differing(arch, some) == {}


@assembles
@pytest.mark.parametrize("from_registers", [False, True])
def test_another_n_of_wgmma_changes_one_number(from_registers):
    """The reason why the table holds one n: every n of f16, the least of all types, A in shared memory or registers."""
    same_compiler()
    chosen = [
        (name, *found)
        for name, found in wgmma.by_name().items()
        if found[0].n == 8 or (found[1] == ("f32", "f16", "f16") and not found[0].sparse and not from_registers)
    ]
    assert len(chosen) == (33 if from_registers else 33 + 31)
    chosen = alternating(chosen)
    text = "".join(
        assembling.group_kernel(f"k{i}", shape, types[0], shape.opcode(types), a_in_registers=from_registers)
        for i, (_, shape, types) in enumerate(chosen)
    )
    compiled = compile_source(Source(text, "k0", may_spill=True), "sm_90a")
    made = assembling.instructions_of(disassemble(compiled.cubin))
    for i, (name, shape, _) in enumerate(chosen):
        found = assembling._outcome(made[f"k{i}"])
        assert found == TABLE.of_group("sm_90a", name)
        assert list(found.tensor) == [each for each in found.tensor if f".64x{shape.n}x{shape.k}" in each]
        standing = by_group_name()[name.replace(f"n{shape.n}k", f"n{GROUP_COLUMNS}k")]
        assert [each.replace(f"x{shape.n}x", f"x{GROUP_COLUMNS}x") for each in found.tensor] == list(
            TABLE.of("sm_90a", standing.name).tensor
        )


def by_group_name() -> dict[str, Multiplication]:
    return {each.name: each for each in group_multiplications()}


def test_wgmma_stands_in_the_table_for_sm_90a_alone():
    assert len(group_multiplications()) == 17 + 16
    words = {"f16": "HGMMA", "bf16": "HGMMA", "tf32": "HGMMA", "e4m3": "QGMMA", "e5m2": "QGMMA", "s8": "IGMMA",
             "u8": "IGMMA", "b1": "BGMMA"}  # fmt: skip
    for each in group_multiplications():
        assert [status(arch, each.name) for arch in ARCHITECTURES] == [
            "native" if arch == "sm_90a" else "refused" for arch in ARCHITECTURES
        ]
        (machine,) = TABLE.of("sm_90a", each.name).tensor
        assert machine.split(".")[0] == words[each.types[1]]
        assert (".SP." in machine) == (each.family == "wgmma.sp")
        assert "wgmma.mma_async" in TABLE.of("sm_120a", each.name).reason
    assert str(TABLE.of_group("sm_90a", "wgmma.m64n256k32.f16.e4m3.e5m2")) == "QGMMA.64x256x32.F16.E4M3.E5M2"
    assert TABLE.of_group("sm_100a", "wgmma.m64n8k16.f32.f16").status == "refused"
    with pytest.raises(ValueError, match="lies in shared memory"):
        by_group_name()["wgmma.m64n128k16.f32.f16"].fragment("b")
    assert [by_group_name()["wgmma.m64n128k16.f32.f16"].fragment(m).registers for m in "adc"] == [4, 4, 4]


def test_the_table_has_every_instruction_and_architecture():
    assert tuple(TABLE.outcomes) == ARCHITECTURES
    for outcomes in TABLE.outcomes.values():
        assert list(outcomes) == [each.name for each in assembled()]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_assembler_refuses_what_is_too_new_for_it_and_nothing_else(arch):
    for each in assembled():
        outcome = TABLE.of(arch, each.name)
        too_new = CAPABILITY[arch] < each.capability or each.only not in ("", arch)
        if arch == "sm_100a" and ".f8f6f4." in each.name and set(each.types[1:3]) <= {"e4m3", "e5m2"}:
            too_new = ".f16." in each.name and each.family == "mma.sp"  # taken as if it had no kind
        assert (outcome.status == "refused") == too_new, (each.name, str(outcome))
        if too_new:
            assert outcome.reason
            assert not outcome.tensor


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_wmma_becomes_what_its_own_table_says(arch):
    for shape in wmma.SHAPES:
        for each in (m for m in multiplications() if m.shape is shape and CAPABILITY[arch] >= m.capability):
            operation = next((word for word in ("xor", "and") if each.name.endswith(word)), None)
            expected = wmma.native_count(shape, CAPABILITY[arch], operation)
            assert sum(TABLE.of(arch, each.name).tensor.values()) == expected


def status(arch, name):
    return TABLE.of(arch, name).status


def test_what_generations_gained_and_lost():
    sparse_and_dense = ("mma.m16n8k64.s32.s4", "mma.sp.m16n8k128.s32.u4")
    # Four bits: tensor cores of their own on Ampere and Ada, bytes since Hopper.
    for name in sparse_and_dense:
        assert [status(arch, name) for arch in ARCHITECTURES] == ["refused", *["native"] * 3, *["emulated"] * 3]
    assert TABLE.of("sm_90a", "mma.m16n8k64.s32.u4").tensor == {"IMMA.16832.U8.U8": 2}
    # One bit: both operations up to Ada, AND alone on Hopper, neither since.
    xor, conjunction = "mma.m16n8k256.s32.b1.xor", "mma.m16n8k256.s32.b1.and"
    assert TABLE.of("sm_89", xor).tensor == {"BMMA.168256.XOR.POPC": 1}
    assert TABLE.of("sm_90a", xor).tensor == {"BMMA.168256.AND.POPC": 2}
    assert status("sm_90a", xor) == "emulated"
    assert status("sm_90a", conjunction) == "native"
    assert status("sm_100a", conjunction) == "emulated"
    # Eight-bit floats: Ada and consumer Blackwell multiply them with mma.sync, Hopper and Blackwell as f16.
    fp8 = "mma.m16n8k32.f32.e4m3.e5m2"
    assert [status(arch, fp8) for arch in ARCHITECTURES[3:]] == ["native", "emulated", "emulated", "native"]
    assert TABLE.of("sm_90a", fp8).tensor == {"HMMA.16816.F32": 2}
    # Volta's four small products: on Turing still, from Ampere on without tensor cores.
    assert [status(arch, "mma.m8n8k4.f32.f16") for arch in ARCHITECTURES] == ["native", *["emulated"] * 6]
    assert TABLE.of("sm_80", "mma.m8n8k4.f32.f16").tensor == {}
    # Hopper's large f64 shapes are one instruction there and several on Blackwell.
    large = [TABLE.of(arch, "mma.m16n8k16.f64.f64").tensor for arch in ("sm_90a", "sm_100a")]
    assert large == [{"DMMA.16x8x16": 1}, {"DMMA.8x8x4": 8}]


def compiles(instruction, opcode, arch="sm_90a"):
    text = assembling.kernel("k0", replace(instruction, opcode=opcode), CAPABILITY[arch])
    try:
        compile_source(Source(text, "k0", may_spill=True), arch)
    except CompileError:
        return False
    return True


def test_modifiers_in_the_tables_are_those_that_the_assembler_takes():
    for name in ("mma.m16n8k8.f64.f64", "mma.m8n8k16.s32.s8", "mma.m16n8k64.s32.s4", "mma.m16n8k16.f32.f16",
                 "mma.m16n8k32.f32.e4m3", "mma.sp.m16n8k64.s32.u8", "mma.sp.m16n8k32.f32.f16"):  # fmt: skip
        each = by_name()[name]
        types = ".".join(each.types)
        assert compiles(each, each.opcode.replace(types, f"satfinite.{types}")) == each.shape.saturates
        for rounding in mma.ROUNDINGS:
            taken = rounding in getattr(each.shape, "roundings", ())
            assert compiles(each, each.opcode.replace(types, f"{rounding}.{types}")) == taken
        if each.family == "mma":
            for layouts in ("row.row", "col.col", "col.row"):
                assert not compiles(each, each.opcode.replace("row.col", layouts))
    mixed = by_name()["mma.m16n8k16.f32.f16"]
    for types in ("f32.f16.bf16.f32", "f32.bf16.f16.f32", "f32.e4m3.f16.f32"):
        assert not compiles(mixed, mixed.opcode.replace("f32.f16.f16.f32", types))


def test_sparse_spellings_in_the_table_are_those_that_the_assembler_takes():
    for name in ("mma.sp.m16n8k32.f32.f16", "mma.sp.m16n8k64.f32.e4m3", "mma.sp.m16n8k64.f16.e4m3",
                 "mma.sp.m16n8k64.f8f6f4.f32.e2m1"):  # fmt: skip
        each = by_name()[name]
        plain = each.opcode.replace("sp::ordered_metadata", "sp")
        assert compiles(each, plain, "sm_120a") == ("sp" in each.shape.variants)


def test_reading_undoes_writing(tmp_path, monkeypatch):
    rows = {arch: {each: TABLE.of(arch, each.name) for each in assembled()} for arch in ARCHITECTURES}
    text = machine_code.to_json(TABLE.compiler, rows)
    assert text == machine_code.FILE.read_text()
    assert json.loads(text)["schema"] == "warptile.native/1"


def test_outcomes_are_said_in_words():
    assert str(Outcome({"IMMA.16832.U8.U8": 2}, {"LOP3": 12, "SHF": 6})) == "2 IMMA.16832.U8.U8 + 18 other"
    assert str(Outcome({"HMMA.16816.F32": 1}, {})) == "HMMA.16816.F32"
    assert Outcome({}, {"FFMA": 4}).status == "emulated"
    assert Outcome({}, {}, "too new").status == "refused"


def test_names_are_distinct_and_tell_what_is_computed():
    names = [each.name for each in multiplications()]
    assert len(set(names)) == len(names)
    assert len({each.opcode for each in multiplications()}) == len(names)
    one = by_name()["mma.m16n8k16.f32.f16"]
    assert one.opcode == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert [one.fragment(matrix).registers for matrix in "dabc"] == [4, 4, 2, 4]
    assert by_name()["wmma.m16n16k16.f32.f16"].opcode == "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    assert by_name()["wmma.m8n8k128.s32.b1.and"].opcode.startswith("wmma.mma.and.popc.sync")


def test_machine_code_is_counted_but_for_what_moves_registers():
    text = """
	.section	.text.k0,"ax",@progbits
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!PT LDS RZ, [RZ] ;
        /*0020*/                   HMMA.16816.F32 R4, R4, R8, RZ ;
        /*0030*/                   FADD R4, R4, R5 ;
        /*0040*/                   FADD.FTZ R4, R4, R5 ;
        /*0050*/                   EXIT ;
	.section	.text.k1,"ax",@progbits
        /*0000*/               @P0 EXIT ;
"""
    found = assembling.instructions_of(text)
    assert assembling._outcome(found["k0"]) == Outcome({"HMMA.16816.F32": 1}, {"FADD": 2, "LDS": 1})
    assert found["k1"] == ["EXIT"]
