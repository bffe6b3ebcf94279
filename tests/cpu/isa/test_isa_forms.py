"""Copies and synchronisation as data: the committed table against today's assembler."""

import re

import pytest

from covering import few
from warptile.bench.campaign import survey_forms as assembling
from warptile.codegen import headers
from warptile.codegen.nvrtc import compiler_version
from warptile.isa import forms
from warptile.isa.catalogue import FORMS

TABLE = forms.table()

assembles = pytest.mark.skipif(
    headers.program("nvdisasm") is None, reason="nvdisasm is not installed (the extra warptile[sass] adds it)"
)


def same_compiler():
    if compiler_version() != TABLE.compiler:
        pytest.skip(
            f"the table is of {TABLE.compiler}, this is {compiler_version()}: "
            "python -m warptile.bench.campaign.survey_forms"
        )


@assembles
def test_the_table_is_what_the_assembler_makes_for_sm_90a():
    same_compiler()
    assert dict(assembling.assemble("sm_90a", FORMS)) == {form: TABLE.found["sm_90a"][form.name] for form in FORMS}


@assembles
@pytest.mark.parametrize("arch", few(["sm_80", "sm_90", "sm_120a"], 1))
def test_a_sample_of_other_architectures_is_what_the_assembler_makes(arch):
    same_compiler()
    names = ("mbarrier.arrive", "cp.async.bulk.tensor.2d.global.shared::cta", "setmaxnreg.dec", "wgmma.fence")
    chosen = [form for form in FORMS if form.name in names]
    assert len(chosen) == len(names)
    assert dict(assembling.assemble(arch, chosen)) == {form: TABLE.found[arch][form.name] for form in chosen}


def test_each_form_is_taken_from_its_first_architecture_on():
    assert tuple(TABLE.found) == forms.ARCHITECTURES
    for form in FORMS:
        taken = [arch for arch in forms.ARCHITECTURES if not TABLE.found[arch][form.name].reason]
        assert taken[0] == form.since, form.name
        newer = forms.ARCHITECTURES[forms.ARCHITECTURES.index(form.since) :]
        assert taken == [arch for arch in newer if arch == "sm_90a" or not form.name.startswith("wgmma")], form.name


def test_names_are_distinct_and_in_their_example():
    names = [form.name for form in FORMS]
    assert len(set(names)) == len(names)
    for form in FORMS:
        first, *rest = form.name.split(".")
        assert re.search(rf"\b{first}\b", form.example)
        for word in rest:
            assert word == "*d" or re.search(rf"\.{re.escape(word)}\b", form.example), (form.name, word)
        assert not set(re.findall(r"<(\w+)>", form.example)) - set(assembling._OPERANDS)
        assert form.does


def test_reading_undoes_writing():
    assert forms.to_json(TABLE.compiler, TABLE.found) == forms.FILE.read_text()


def test_what_an_empty_kernel_has_is_not_counted():
    first = FORMS[0]
    assert assembling.kernel("k", first.example).count(first.name) == 1
    assert str(forms.Assembled(("A.B", "C"))) == "A.B + C"
    assert str(forms.Assembled(())) == "nothing"
    assert str(forms.Assembled((), "too new")) == "too new"
