"""`wgmma.mma_async` in every form on the emulator, bit for bit what an H200 answered."""

import json

import pytest

import captured
from covering import of_each
from warptile.isa import wgmma
from wgmma_probes import SEED, SUITES, GroupProbe

PROBES = [(suite, probe) for suite, probes in SUITES.items() for probe in probes]


@pytest.fixture(scope="module")
def recorded():
    return json.loads((captured.DATA / "wgmma_h200.json").read_text())


def instruction_and_modifiers(case):
    """Of each suite every instruction, and every way to use one."""
    suite, probe = case
    instruction, _, modifiers = probe.name.partition(" ")
    return (suite, instruction), (suite, modifiers)


CHOSEN = of_each(PROBES, instruction_and_modifiers)


@pytest.mark.parametrize(("suite", "probe"), CHOSEN, ids=[f"{suite}: {probe.name}" for suite, probe in CHOSEN])
def test_equals_the_gpu(suite, probe, recorded):
    """A checksum for each case, and for each one chained to it."""
    expected = recorded["suites"][suite][probe.name]
    found = captured.hexadecimal(captured.checksums(probe.answers(GroupProbe.emulated), 1))
    assert len(found) == len(expected)
    wrong = [i // 8 for i in range(0, len(found), 8) if found[i : i + 8] != expected[i : i + 8]]
    assert not wrong, "\n".join([f"{probe.name}: {len(wrong)} cases", *(told(probe, i) for i in wrong[:20])])


def told(probe, i):
    """A case that differs."""
    if i < len(probe.cases):
        return str(probe.cases[i])
    first = [case for case in probe.cases if case.number == 0]
    return f"{first[i - len(probe.cases)].kind}, chained"


def test_every_type_of_the_tables_is_there(recorded):
    """Dense and sparse, and every number of columns that is asked for has been."""
    assert recorded["seed"] == SEED
    names = " ".join(probe.name for _, probe in PROBES)
    for family in wgmma.FAMILIES:
        for types in wgmma.type_lists(family):
            for is_sparse in (False, True)[: 1 + family.sparse]:
                assert wgmma.GroupShape(family, 8, is_sparse).opcode(types) in names
    assert sorted({probe.shape.n for _, probe in PROBES}) == [8, 16, 24, 32, 64, 128, 256]
