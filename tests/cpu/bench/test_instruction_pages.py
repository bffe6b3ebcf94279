"""Pages of instructions: every one has its page, whole in one file, with what `warptile.isa` says of it."""

import re
from functools import cache
from pathlib import Path

import pytest

import warptile
from covering import ALL
from page_tree import tree
from warptile.bench.instruction_pages import page_set
from warptile.bench.instruction_pages.described import INDEX, file_name
from warptile.isa import forms, machine_code, wgmma
from warptile.isa.catalogue import FORMS, assembled, by_name, multiplications
from warptile.isa.matrix_move import moves
from warptile.isa.mma_sp import SparseShape
from warptile.isa.wgmma import GroupShape

MOST_BYTES = 200_000


@cache
def whole_set():
    return dict(page_set.pages(page_set.names()))


def shown(name):
    return tree(page_set.described(name).html())


def table_below(page, label):
    return page.one("div", **{"aria-label": label}).one("table").rows()


def test_every_instruction_has_a_page_and_a_line_of_the_index():
    names = page_set.names()
    assert len(set(names)) == len(names) == len(assembled()) + len(moves()) + len(FORMS)
    assert set(whole_set()) == {INDEX, *map(file_name, names)}
    assert len(whole_set()) == len(names) + 1
    links = {link.text: link.attributes["href"] for link in tree(whole_set()[INDEX]).one("tbody").all("a")}
    assert links == {name: file_name(name) for name in names}


def test_pages_load_nothing_and_are_small():
    for file, text in whole_set().items():
        assert "http" not in text.replace("http-equiv", ""), file
        assert re.findall(r"\b(?:src|href)=[\"']?([^\"'> ]+)", text.partition("<main>")[0]) == ["data:,"], file
        assert "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;" in text, file
        assert len(text.encode()) < MOST_BYTES, file


def test_pages_are_well_formed_and_their_names_are_unique():
    files = [file for file in whole_set() if not ("m16n8k" in file and "mx" in file)]  # the most numerous, alike
    for file in files[:: 1 if ALL else 3]:
        page = tree(whole_set()[file])
        names = [each.attributes["id"] for each in page.walk() if "id" in each.attributes]
        assert len(set(names)) == len(names), file
        assert page.one("h1").text, file


def test_files_have_names_that_every_system_takes():
    assert file_name("cp.async.bulk.tensor.*d.shared::cluster.global.im2col") == (
        "cp.async.bulk.tensor.-d.shared-cluster.global.im2col.html"
    )
    for name in page_set.names():
        assert re.fullmatch(r"[\w.-]+\.html", file_name(name))


@pytest.mark.parametrize("name", [each.name for each in multiplications()][::23])
def test_a_multiplication_has_its_operands_and_machine_code(name):
    instruction, page = by_name()[name], shown(name)
    assert page.all("p", "wt-ptx")[0].text == instruction.opcode
    for letter in "abd":
        layout = instruction.fragment(letter)
        section = page.one(id="operands").one("section", f"wt-operand-{letter}")
        cells = section.one("table").all("td")
        assert len(cells) == 32 * len(layout.distinct)
    rows = table_below(page, "Machine code by architecture")[1:]
    outcomes = [machine_code.table().of(arch, name) for arch in machine_code.ARCHITECTURES]
    assert rows == [
        [arch, each.status, " ".join(each.in_full.split())]
        for arch, each in zip(machine_code.ARCHITECTURES, outcomes, strict=True)
    ]
    assert bool(page.all(id="metadata")) == isinstance(instruction.shape, SparseShape)


def test_the_cuda_line_is_the_wrapper_in_the_kernels():
    header = (Path(warptile.__file__).parent / "kernels" / "ptx" / "mma.cuh").read_text()
    calls, seen = 0, multiplications()[:: 1 if ALL else 3]
    for each in seen:
        text = whole_set()[file_name(each.name)]
        operands = tree(text).one(id="operands") if "wt-element" in text else None
        if operands is not None and operands.all("code", "wt-element"):
            call = operands.all("p", "wt-ptx")[1].words
            struct = header.partition(f'asm("{each.opcode} "')[0].rpartition("struct ")[2].partition(" :")[0]
            assert call.startswith(f"{struct}::mma_sync(c, a, b"), each.name
            calls += 1
    assert calls == sum(f'asm("{each.opcode} "' in header for each in seen) > 10


def test_fragments_that_differ_on_the_first_architecture_are_drawn_twice():
    for each in multiplications():
        differs = any(each.fragment(m, each.capability) != each.fragment(m) for m in "abd")
        drawn = re.findall(r"""\sid=["']?operands-before["'\s>]""", whole_set()[file_name(each.name)])
        assert len(drawn) == differs, each.name


def test_facts_are_those_of_the_instruction():
    facts = dict(table_below(shown("mma.m16n8k16.f64.f64"), "Types, operands and limits"))
    assert facts["A in registers"] == "16 x 16 of f64: 8 of 64 bits in each lane"
    assert facts["rounding"] == ".rn, .rz, .rm and .rp"
    assert facts["multiplications and additions"] == str(2 * 16 * 8 * 16)
    facts = dict(table_below(shown("mma.sp.m16n8k64.s32.s8"), "Types, operands and limits"))
    assert facts["sparsity"] == "2 of every 4 elements along k are stored"
    assert facts["saturation"] == "D may be clamped to s32 (.satfinite)"
    facts = dict(table_below(shown("wgmma.m64n24k32.s32.s8"), "Types, operands and limits"))
    assert facts["MN-major operands in shared memory"] == "no: K-major alone"
    assert facts["D"] == "64 x 24: 12 registers of each lane"
    assert facts["n of these types"].startswith("8, 16, 24, 32, 48,")


@pytest.mark.parametrize("name", sorted(wgmma.by_name())[::97])
def test_every_wgmma_has_a_page_with_its_descriptor(name):
    shape, types = wgmma.by_name()[name]
    assert isinstance(shape, GroupShape)
    page = shown(name)
    assert page.all("p", "wt-ptx")[0].text == shape.opcode(types)
    editor = page.one(id="descriptor")
    layouts = len(editor.one("select", **{"data-layout": ""}).all("option"))
    assert layouts == (2 if shape.family.transposable else 1)
    assert len(editor.all("li")) == layouts * len(wgmma.SWIZZLES)
    assert {figure.attributes["id"] for figure in page.all("figure")} == {"operand-a", "operand-d", "descriptor"}


def test_moves_have_their_banks_where_they_touch_memory():
    for name in moves():
        assert bool(shown(name).all(id="swizzle")) == (not name.startswith("movmatrix")), name


def test_forms_say_their_requirements_and_tensor_copies_have_a_box():
    for form in FORMS:
        page = tree(whole_set()[file_name(form.name)])
        facts = dict(table_below(page, "Types, operands and limits"))
        assert facts["requirements"] == (form.limits or "none")
        rows = table_below(page, "Machine code by architecture")[1:]
        assert [row[0] for row in rows] == list(forms.ARCHITECTURES)
    assert shown("cp.async.bulk.tensor.3d.global.shared::cta").all(id="box")
    assert not shown("mbarrier.init").all(id="box")


def test_names_stand_for_one_instruction_for_a_family_or_for_a_beginning():
    assert page_set.chosen("cp.async.bulk.wait_group") == ("cp.async.bulk.wait_group",)
    assert page_set.chosen("wgmma.m64n24k32.s32.s8") == ("wgmma.m64n24k32.s32.s8",)
    assert len(page_set.chosen("tensor-copy")) == sum(form.family == "tensor copy" for form in FORMS)
    assert page_set.chosen("ldmatrix") == tuple(name for name in moves() if name.startswith("ldmatrix"))
    assert page_set.chosen("nothing") == ()
    with pytest.raises(KeyError):
        page_set.described("nothing")
