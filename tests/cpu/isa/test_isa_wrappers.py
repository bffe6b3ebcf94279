"""The C++ wrappers of mma.sync and mma.sp: generated from the tables, and compiled to the instructions they name."""

import pytest

from warptile.arch import arch as find_arch
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.isa import mma, mma_sp
from warptile.isa.wrappers import mma as mma_wrappers
from warptile.ptx import parse

WRAPPERS = mma_wrappers.wrappers()


def test_the_header_is_what_the_tables_give():
    assert mma_wrappers.FILE.read_text() == mma_wrappers.header(), "run: python -m warptile.isa.wrappers.mma --write"


def test_the_header_is_printed_unless_it_is_to_be_written(capsys, monkeypatch, tmp_path):
    assert mma_wrappers.main([]) == 0
    assert capsys.readouterr().out == mma_wrappers.header()
    monkeypatch.setattr(mma_wrappers, "FILE", tmp_path / "mma.cuh")
    assert mma_wrappers.main(["--write"]) == 0
    assert (tmp_path / "mma.cuh").read_text() == mma_wrappers.header()


def test_every_classic_instruction_has_a_wrapper():
    have = {w.opcode for w in WRAPPERS}
    assert len(have) == len(WRAPPERS) == len({w.name for w in WRAPPERS})
    expected = set()
    for shape in (*mma.SHAPES, *mma_sp.SHAPES):
        if shape.capability >= 100 or (shape.name, shape.types) == ("m8n8k4", ("f16",)):
            continue
        for element in shape.types:
            for result, addend in shape.accumulators:
                for saturate in (False, True)[: 1 + shape.saturates]:
                    for operation in dict(getattr(shape, "operations", ())) or ("",):
                        options = {"operation": operation} if operation else {"saturate": saturate}
                        expected.add(shape.opcode((result, element, element, addend), **options))
    assert have == expected


KERNEL = """
extern "C" __global__ void NAME(const W::AB* a, const W::AB* b, W::C* c, const unsigned* metadata) {
    W::AB ra[W::A_REGISTERS], rb[W::B_REGISTERS];
    W::C rc[W::C_REGISTERS];
    const int t = threadIdx.x;
    for (int i = 0; i < W::A_REGISTERS; ++i) ra[i] = a[t * W::A_REGISTERS + i];
    for (int i = 0; i < W::B_REGISTERS; ++i) rb[i] = b[t * W::B_REGISTERS + i];
    for (int i = 0; i < W::C_REGISTERS; ++i) rc[i] = c[t * W::C_REGISTERS + i];
    MULTIPLY
    for (int i = 0; i < W::C_REGISTERS; ++i) c[t * W::C_REGISTERS + i] = rc[i];
}
"""


def kernel(name, wrapper):
    """Multiplies registers that come from memory, once for each selector."""
    first = f"{wrapper.name}, 0>" if wrapper.is_sparse else f"{wrapper.name}>"
    calls = [f"{first}::mma_sync(rc, ra, rb);"]
    if wrapper.is_sparse:
        calls = [f"{wrapper.name}, {i}>::mma_sync(rc, ra, rb, metadata[t]);" for i in range(wrapper.shape.selectors)]
    return KERNEL.replace("W::", f"{first}::").replace("NAME", name).replace("MULTIPLY", " ".join(calls))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_each_wrapper_compiles_to_its_instruction(arch):
    chosen = [wrapper for wrapper in WRAPPERS if wrapper.capability <= find_arch(arch).capability]
    text = '#include "ptx/mma.cuh"\nusing namespace warptile;\n'
    text += "".join(kernel(f"k{i}", wrapper) for i, wrapper in enumerate(chosen))
    module = parse(compile_source(Source(text, "k0"), arch).ptx)
    for i, wrapper in enumerate(chosen):
        made = [each for each in module.functions[f"k{i}"].body if each.opcode == "mma"]
        assert len(made) == (wrapper.shape.selectors if wrapper.is_sparse else 1)
        for selector, instruction in enumerate(made):
            assert ".".join(("mma", *instruction.modifiers)) == wrapper.opcode
            d, a, b, c, *rest = instruction.operands
            registers = [wrapper.fragment(matrix).registers for matrix in "cabc"]
            assert [len(getattr(operand, "elements", (operand,))) for operand in (d, a, b, c)] == registers
            if wrapper.is_sparse:
                assert rest[1].value == selector
