"""Widths of wgmma that the tables leave out: the assembler refuses them, and takes those beside them."""

import pytest

from warptile.bench.campaign.survey_machine_code import group_kernel
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError
from warptile.isa import wgmma


@pytest.mark.parametrize("family", [wgmma.FAMILIES[0], wgmma.FAMILIES[4], wgmma.FAMILIES[5]], ids=lambda f: f.types[0])
def test_widths_are_those_that_the_assembler_takes(family):
    shape = wgmma.GroupShape(family, 48)
    types = next(iter(wgmma.type_lists(family)))
    for n in (36, 40, 48, 56):
        taken = n in family.columns
        given = wgmma.GroupShape(family, n) if taken else shape
        opcode = shape.opcode(types).replace("m64n48", f"m64n{n}")
        source = Source(group_kernel("k", given, types[0], opcode), "k", may_spill=True)
        if taken:
            compile_source(source, "sm_90a")
        else:
            with pytest.raises(CompileError):
                compile_source(source, "sm_90a")
