"""Registers that nothing has written: reported where their value gets out, lane by lane, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from covering import few
from tensor_product import compiled_once
from warptile.codegen.translation_unit import translation_unit
from warptile.dtypes import DTYPES
from warptile.emulator import DEFAULT_CHECKS, emulate, launch_geometry
from warptile.emulator.checks import uninitialized_registers
from warptile.emulator.program import ProgramStep, Routine
from warptile.errors import UninitializedRead
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.ptx import parse

REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<8>;"
BEGIN = "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;"


def run(body: str, *, blocks: int = 1, checks: frozenset[str] = DEFAULT_CHECKS, functions: str = "") -> np.ndarray:
    """Run a warp (or several blocks of one); %r1 is the thread, %rd2 where its 4 bytes of output are."""
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
{functions}
.visible .entry k(.param .u64 out)
{{
{REGISTERS}
{BEGIN}
{body}
ret;
}}
"""
    out = np.zeros(32, np.uint32)
    spec = LaunchSpec("k", (blocks, 1, 1), (32, 1, 1), (Pointer("out"),))
    emulate(parse(text), spec, {"out": out}, accesses={"out": Access(writes=True)}, arch="sm_90a", checks=checks)
    return out


def test_a_store_of_a_register_that_nothing_wrote() -> None:
    with pytest.raises(UninitializedRead, match=r"thread \(0, 0, 0\) of block \(0, 0, 0\) uses register %r7, which"):
        run("st.global.b32 [%rd2], %r7;")


def test_arithmetic_hands_doubt_on_and_the_report_says_from_where() -> None:
    with pytest.raises(UninitializedRead, match=r"uses register %r9, computed at PTX line 10 from %r7, which nothing"):
        run("add.u32 %r8, %r7, %r1;\nshl.b32 %r9, %r8, 1;\nst.global.b32 [%rd2], %r9;")


def test_what_reaches_nothing_is_no_mistake() -> None:
    assert run("mov.b32 %r8, %r7;\nadd.u32 %r9, %r8, 1;\nmov.b32 %r9, 5;\nst.global.b32 [%rd2], %r9;")[3] == 5


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.b32 %r8, [%rd5];",
        "setp.eq.u32 %p2, %r7, 0;\n@%p2 mov.b32 %r8, 1;\nst.global.b32 [%rd2], %r1;",
        "@%p1 bra END;\nst.global.b32 [%rd2], %r1;\nEND:",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r1}, "
        "{%r1}, {%f5, %f5, %f5, %f5};\nst.global.f32 [%rd2], %f3;",
        "atom.global.add.u32 %r8, [%rd2], %r7;",
    ],
    ids=["address", "guard", "branch", "tensor core", "atomic"],
)
def test_every_way_out_is_watched(body: str) -> None:
    with pytest.raises(UninitializedRead, match="which nothing has written"):
        run(body)


@pytest.mark.parametrize(
    "joined",
    [
        "and.pred %p3, %p1, %p2;",
        "and.pred %p3, %p2, %p1;",
        "not.pred %p0, %p1;\nnot.pred %p2, %p2;\nor.pred %p3, %p0, %p2;\nnot.pred %p3, %p3;",
        "setp.gt.and.s32 %p3, %r7, 0, %p1;",
        "not.pred %p0, %p1;\nsetp.gt.and.s32 %p3, %r7, 0, !%p0;",
        "selp.b32 %r9, %r7, 0, %p1;\nsetp.gt.s32 %p3, %r9, 0;",
        "selp.b32 %r9, 1, 0, %p1;\nneg.s32 %r9, %r9;\nand.b32 %r9, %r9, %r7;\nsetp.gt.s32 %p3, %r9, 0;",
    ],
)
def test_a_condition_without_a_branch_is_no_mistake(joined: str) -> None:
    """``valid && x > 0``, where x is only set when valid: in lanes below 20, of which lane 0 holds a 0."""
    body = """
setp.lt.u32 %p0, %r1, {set};
@%p0 mov.b32 %r7, %r1;
setp.lt.u32 %p1, %r1, 20;
setp.gt.s32 %p2, %r7, 0;
"""
    store = "@%p3 st.global.b32 [%rd2], 1;"
    assert run(body.format(set=20) + joined + store).tolist() == [0] + [1] * 19 + [0] * 12
    with pytest.raises(UninitializedRead, match=r"thread \(18, 0, 0\) .* uses register %p3, computed at"):
        run(body.format(set=18) + joined + store)


def test_lanes_are_told_apart() -> None:
    part = "setp.lt.u32 %p1, %r1, 20;\n@%p1 mov.b32 %r7, 3;\n"
    assert run(part + "@%p1 st.global.b32 [%rd2], %r7;").tolist() == [3] * 20 + [0] * 12
    with pytest.raises(UninitializedRead, match=r"thread \(20, 0, 0\) of block \(0, 0, 0\) uses register %r7"):
        run(part + "st.global.b32 [%rd2], %r7;")


def test_a_value_of_an_earlier_iteration_is_a_value() -> None:
    loop = """
mov.b32 %r2, 0;
AGAIN:
setp.eq.u32 %p1, %r2, {first};
@%p1 bra SKIP;
st.global.b32 [%rd2], %r7;
SKIP:
add.u32 %r7, %r2, 40;
add.u32 %r2, %r2, 1;
setp.lt.u32 %p2, %r2, 3;
@%p2 bra AGAIN;
"""
    assert (run(loop.format(first=0)) == 41).all()
    with pytest.raises(UninitializedRead, match="%r7"):
        run(loop.format(first=2))


def test_registers_are_forgotten_between_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_geometry, "LANES_PER_WAVE", 32)
    body = "mov.u32 %r2, %ctaid.x;\nsetp.eq.u32 %p1, %r2, {writer};\n@%p1 mov.b32 %r7, 1;\n"
    store = "setp.eq.u32 %p2, %r2, 1;\n@%p2 st.global.b32 [%rd2], %r7;"
    assert (run(body.format(writer=1) + store, blocks=2) == 1).all()
    with pytest.raises(UninitializedRead, match="%r7"):
        run(body.format(writer=0) + store, blocks=2)


def test_what_a_call_returns_is_written() -> None:
    functions = ".func (.reg .b32 %out) f(.reg .b32 %in) { add.u32 %out, %in, 1; ret; }"
    body = "setp.lt.u32 %p1, %r1, 64;\n@!%p1 bra SKIP;\ncall (%r7), f, (%r1);\nSKIP:\nst.global.b32 [%rd2], %r7;"
    assert run(body, functions=functions).tolist() == list(range(1, 33))


def test_a_load_of_local_memory_counts_where_its_value_does() -> None:
    local = """
.local .b32 kept[2];
setp.lt.u32 %p1, %r1, 20;
@%p1 st.local.b32 [kept], %r1;
ld.local.b32 %r7, [kept];
"""
    chosen = "selp.b32 %r8, %r7, 50, %p1;\nst.global.b32 [%rd2], %r8;"
    assert run(local + chosen).tolist() == [*range(20), *[50] * 12]
    with pytest.raises(
        UninitializedRead, match=r"\(20, 0, 0\) .* %r7, read at PTX line 14 from local memory at byte 0, which"
    ):
        run(local + "st.global.b32 [%rd2], %r7;")


def test_a_funnel_shift_has_the_undefined_bits_that_it_shifts() -> None:
    halves = """
.local .align 4 .b8 kept[4];
st.local.b16 [kept], %r1;
ld.local.b32 %r7, [kept];
mov.b32 %r8, 0xABCD0000;
"""
    shift = "shf.r.wrap.b32 %r8, %r8, %r7, {amount};\nst.global.b32 [%rd2], %r8;"
    assert run(halves + shift.format(amount=48)).tolist() == [0xABCD | lane << 16 for lane in range(32)]
    for amount in ("17", "%r7"):
        with pytest.raises(UninitializedRead, match="%r8"):
            run(halves + shift.format(amount=amount))


def test_who_asks_for_no_check_gets_none() -> None:
    run("st.global.b32 [%rd2], %r7;", checks=DEFAULT_CHECKS - {"uninitialised"})


def test_a_lane_that_has_left_gives_poison_to_a_shuffle() -> None:
    body = "setp.ge.u32 %p1, %r1, 31;\n@%p1 exit;\nshfl.sync.down.b32 %r8, %r1, 1, 31, -1;\nst.global.b32 [%rd2], %r8;"
    assert run(body, checks=DEFAULT_CHECKS - {"uninitialised"}).tolist() == [*range(1, 31), 0xFFFFFFFF, 0]
    with pytest.raises(UninitializedRead, match=r"\(30, 0, 0\) .* %r8, read at PTX line 12 from a lane that does not"):
        run(body)


@pytest.mark.parametrize("name", few(["simt-shared", "wmma-naive", "wmma-final", "mma-naive", "mma-multistage"], 2))
def test_only_epilogues_of_the_rungs_have_registers_to_watch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # An epilogue loads C under one test of beta and adds it under another, which the dataflow analysis cannot relate.
    half = DTYPES["float16"]
    problem = Problem.dense(64, 64, 64, half, out=half, accumulator=DTYPES["float32"])
    plan = make_plan(problem, rung=name, arch="sm_90a")
    kernel = compiled_once(translation_unit(plan.kernel), "sm_90a")
    steps = 0
    elsewhere: list[str] = []

    def look(routine: Routine, some: list[ProgramStep], *rest: object) -> None:
        nonlocal steps
        steps += len(some)
        for step, names in zip(some, uninitialized_registers.doubtful_reads(routine, some), strict=True):
            at = step.location
            files = [at.file or "", *(file for file, _ in at.callers)] if at is not None else []
            if names and not any("epilogue" in file for file in files):
                elsewhere.append(f"{', '.join(names)} in {step.instruction} at {at}")

    monkeypatch.setattr(uninitialized_registers, "watch", look)
    a, b, d = (np.zeros((64, 64), np.float16) for _ in range(3))
    operands = {"A": a, "B": b, "D": d}
    emulate(parse(kernel.ptx), plan.launch(kernel.entry), operands, accesses={"D": Access(writes=True)}, arch="sm_90a")
    assert steps > 50
    assert elsewhere == []
