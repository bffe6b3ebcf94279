"""ldmatrix, stmatrix and movmatrix as data: their fragments are the pieces that mma's fragments are made of."""

import numpy as np
import pytest

from covering import few
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError
from warptile.isa import matrix_move, mma
from warptile.isa.fragment_access import requests
from warptile.isa.fragments import coordinates


@pytest.mark.parametrize("count", [1, 2, 4])
def test_lane_by_lane(count):
    move = matrix_move.find("ldmatrix")
    straight = coordinates(move.fragment(count, transposed=False))
    crossed = coordinates(move.fragment(count, transposed=True))
    for lane in range(32):
        for matrix in range(count):
            for half in range(2):
                row, column = lane // 4, 2 * (lane % 4) + half
                assert straight[lane, matrix, half].tolist() == [8 * matrix + row, column]
                assert crossed[lane, matrix, half].tolist() == [8 * matrix + column, row]


def test_four_matrices_are_the_a_of_m16n8k16():
    a = coordinates(mma.find("m16n8k16", "f16").fragment("a", "f16"))
    four = coordinates(matrix_move.find("ldmatrix").fragment(4, transposed=False))
    corners = np.array([[0, 0], [8, 0], [0, 8], [8, 8]])  # rows of the first, then second eight of k
    moved = four - np.array([[8 * matrix, 0] for matrix in range(4)])[:, None] + corners[:, None]
    assert (moved == a).all()


def test_b_in_row_major_order_needs_the_transposition():
    shape = mma.find("m16n8k16", "bf16")
    (request,) = requests(shape.fragment("b", "bf16"), row_major=True, shared=True, accumulator=False, matrices=4)
    assert request.transposed
    (request,) = requests(shape.fragment("b", "bf16"), row_major=False, shared=True, accumulator=False, matrices=4)
    assert not request.transposed


def test_registers_and_spelling():
    load, store, move = (matrix_move.find(name) for name in ("ldmatrix", "stmatrix", "movmatrix"))
    assert load.opcode(4, transposed=True) == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    assert store.opcode(2, transposed=False) == "stmatrix.sync.aligned.m8n8.x2.shared.b16"
    assert move.opcode(1, transposed=True) == "movmatrix.sync.aligned.m8n8.trans.b16"
    assert [m.registers_per_matrix for m in matrix_move.MOVES] == [1, 2, 2, 2, 1, 1, 1, 1, 1]
    assert matrix_move.find("ldmatrix", "m16n16", "b8").transposed == (True,)
    assert matrix_move.find("stmatrix", "m16n16", "b8") is None


def test_what_a_form_does_not_move_is_refused():
    with pytest.raises(ValueError, match="movmatrix"):
        matrix_move.find("movmatrix").fragment(1, transposed=False)
    with pytest.raises(ValueError, match="x3"):
        matrix_move.find("ldmatrix").fragment(3, transposed=False)
    with pytest.raises(ValueError, match="16-bit"):
        matrix_move.find("ldmatrix", "m16n16", "b8").fragment(1, transposed=True)


def kernel(move, count, transposed):
    registers = range(count * move.registers_per_matrix)
    vector = "{" + ", ".join(f"%{i}" for i in registers) + "}"
    given = ", ".join(f'"r"(v[{i}])' for i in registers)
    taken = ", ".join(f'"=r"(v[{i}])' for i in registers)
    opcode = move.opcode(count, transposed=transposed)
    statement = {
        "ldmatrix": f'"{opcode} {vector}, [%{len(registers)}];" : {taken} : "r"(place)',
        "stmatrix": f'"{opcode} [%{len(registers)}], {vector};" :: {given}, "r"(place)',
        "movmatrix": f'"{opcode} %0, %1;" : "=r"(v[0]) : "r"(v[0])',
    }[move.instruction]
    return (
        'extern "C" __global__ void k(unsigned* p) { __shared__ uint4 tile[256]; unsigned v[8] = {p[0], p[1], p[2]};'
        f" unsigned place = __cvta_generic_to_shared(tile); asm volatile({statement});"
        " for (int i = 0; i < 8; ++i) p[i] = v[i]; }"
    )


@pytest.mark.parametrize(
    "move", few(matrix_move.MOVES, 4), ids=lambda move: f"{move.instruction}-{move.shape}-{move.type}"
)
def test_the_assembler_takes_every_form_from_its_architecture_on(move):
    for count in (move.counts[0], move.counts[-1]):
        for arch in ("sm_75", "sm_80", "sm_90a", "sm_100a"):
            source = Source(kernel(move, count, move.transposed[-1]), "k", may_spill=True)
            if int(arch.strip("sm_a")) >= move.capability:
                compile_source(source, arch)
            else:
                with pytest.raises(CompileError):
                    compile_source(source, arch)


def test_the_assembler_takes_no_other_form():
    bytes_straight = next(move for move in matrix_move.MOVES if move.shape == "m16n16")
    for move, count, transposed in (
        (bytes_straight, 1, False), (bytes_straight, 4, True), (matrix_move.find("movmatrix"), 1, False),
    ):  # fmt: skip
        assert count not in move.counts or transposed not in move.transposed
        with pytest.raises(CompileError):
            compile_source(Source(kernel(move, count, transposed), "k", may_spill=True), "sm_100a")
