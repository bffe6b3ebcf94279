"""The figures of instruction pages as they are used: pointer, keyboard, sliders, fields; what they say is isa's."""

import random

import pytest

from covering import ALL, covering, few
from warptile.bench.instruction_pages import box_examples
from warptile.bench.instruction_pages.page_set import described, index
from warptile.figures.assets import standalone_page
from warptile.figures.descriptor_editor import FIELDS, OperandInMemory, core_addresses, descriptor_editor, field_bits
from warptile.figures.swizzle_explorer import MODES, PITCHES, swizzle_explorer, tile
from warptile.isa.catalogue import by_name
from warptile.isa.wgmma import SWIZZLES, Descriptor

browser = pytest.importorskip("browser", reason="tests/support/browser.py drives the browser")

NAME = "mma.m16n8k16.f32.f16"
OPERANDS = {"A": OperandInMemory("A", 64, 16, 16, True), "B": OperandInMemory("B", 64, 64, 8, False)}
FIRST = Descriptor(1024, 16, 1024, swizzle=128)
CASES = 150
"""Descriptors of each operand and layout that the script is asked about."""


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    some = (
        NAME, "ldmatrix.x4", "wgmma.m64n128k16.f32.f16", "cp.async.bulk.tensor.2d.shared::cluster.global",
        "mma.sp.m16n8k32.f32.f16", "wmma.m8n32k16.f32.f16", "mma.m8n8k4.f32.f16.row.row",
    )  # fmt: skip
    texts = {name: described(name).html() for name in some}
    texts["index"] = index([described(name) for name in some])
    texts["swizzle"] = standalone_page("Swizzle", [swizzle_explorer("s", "Swizzle")])
    texts["boxes"] = standalone_page("Boxes", [box_examples.figure(stores=False)])
    for matrix, operand in OPERANDS.items():
        texts[matrix] = standalone_page(matrix, [descriptor_editor("d", "Descriptor", operand, FIRST)])
    found = {}
    for number, (name, text) in enumerate(texts.items()):
        (folder / f"{number}.html").write_text(text)
        found[name] = (folder / f"{number}.html").as_uri()
    return found


def texts_of(page, selector):
    return page.locator(selector).all_inner_texts()


def lanes_of(page, operand, mark):
    """Lanes of the marked cells of an operand."""
    cells = texts_of(page, f".wt-operand-{operand} td.{mark}")
    return sorted(int(cell.split()[0].removeprefix("T")) for cell in cells)


def test_an_element_of_d_marks_its_row_of_a_and_its_column_of_b(chromium, urls):
    fragment = {letter: by_name()[NAME].fragment(letter) for letter in "abd"}
    with browser.opened(chromium, urls[NAME]) as (page, _):
        page.locator(".wt-operand-d td").nth(8 * 11 + 5).hover()
        row, column = 11, 5
        held = {
            operand: [(lane, r, *layout.place(lane, r, 0)) for lane in range(32) for r in layout.distinct]
            for operand, layout in fragment.items()
        }
        lane, register = next(each[:2] for each in held["d"] if each[2:] == (row, column))
        wanted = {
            "a": [each[0] for each in held["a"] if each[2] == row],
            "b": [each[0] for each in held["b"] if each[3] == column],
        }
        for operand, lanes in wanted.items():
            assert lanes_of(page, operand, "wt-path") == lanes
        assert texts_of(page, ".wt-ptx .wt-on") == [f"d{register}"]
        assert (
            page.locator(".wt-readout").inner_text().startswith(f"Lane {lane}, register d{register}: D at m 11, n 5.")
        )
        assert set(lanes_of(page, "a", "wt-lane")) == {lane}


def test_a_lane_marks_its_elements_everywhere(chromium, urls):
    with browser.opened(chromium, urls[NAME]) as (page, _):
        slider = page.locator(".wt-triple input")
        slider.fill("22")
        assert [len(lanes_of(page, operand, "wt-lane")) for operand in "abd"] == [4, 2, 4]
        assert {lane for operand in "abd" for lane in lanes_of(page, operand, "wt-lane")} == {22}
        slider.press("ArrowRight")
        assert {lane for operand in "abd" for lane in lanes_of(page, operand, "wt-lane")} == {23}
        assert page.locator(".wt-readout").inner_text().startswith("Lane 23 holds a0 (m 5, k 6–7)")


def test_a_register_of_the_statement_marks_its_elements(chromium, urls):
    with browser.opened(chromium, urls[NAME]) as (page, _):
        page.locator(".wt-triple input").fill("7")
        page.locator(".wt-triple .wt-ptx span", has_text="a3").click()
        assert texts_of(page, "td.wt-on") == ["T7\na3"]
        assert page.locator(".wt-element").inner_text() == "// a[3]"
        page.locator(".wt-triple .wt-ptx span", has_text="c2").click()
        assert texts_of(page, "td.wt-on") == ["T7\nd2"]
        assert page.locator(".wt-element").inner_text() == "// c[2]"


def test_products_that_are_stacked_meet_their_own_columns_of_b(chromium, urls):
    """Row 19 of m8n8k4 is row 3 of product 2, whose columns of B start at 16."""
    name = "mma.m8n8k4.f32.f16.row.row"
    fragment = by_name()[name].fragment("b")
    with browser.opened(chromium, urls[name]) as (page, _):
        page.locator(".wt-operand-d td").nth(8 * 19 + 6).click()
        span = 1 << sum(1 for step in fragment.element if step[1])
        wanted = {
            lane for lane in range(32) for r in fragment.distinct if fragment.place(lane, r, 0)[1] // span == 22 // span
        }  # fmt: skip
        assert set(lanes_of(page, "b", "wt-path")) == wanted
        assert "column 22 of B" in page.locator(".wt-readout").inner_text()


def test_operands_are_grids_of_the_keyboard(chromium, urls):
    with browser.opened(chromium, urls[NAME]) as (page, _):
        page.locator(".wt-operand-d td").first.focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter", "ArrowDown"):
            page.keyboard.press(key)
        assert "D at m 1, n 2." in page.locator(".wt-readout").inner_text()
        page.keyboard.press("Escape")
        assert page.locator("td.wt-on").count() == 0
        page.keyboard.press("End")
        assert "D at m 2, n 7." in page.locator(".wt-readout").inner_text()
        assert page.locator(".wt-operand-d td[tabindex='0']").count() == 1


def test_every_phase_of_every_layout_is_that_of_the_swizzle(chromium, urls):
    with browser.opened(chromium, urls["swizzle"]) as (page, _):
        for i, j in covering(range(len(MODES)), range(len(PITCHES)), pairs=()):
            page.locator("input[data-part]").fill(str(i))
            page.locator("select[data-part]").select_option(str(j))
            pitch = PITCHES[j]
            one = tile(pitch, MODES[i])
            for phase in one.phases:
                state = page.locator(".wt-state:visible")
                shown = state.evaluate(
                    """(state) => ({
                      words: state.querySelector(".wt-wavefronts").textContent,
                      on: [...state.querySelectorAll("td.wt-on")].map((cell) => cell.textContent.trim()).sort(),
                      counts: [...state.querySelectorAll("tfoot td")].map((cell) => Number(cell.textContent)),
                      bits: [...state.querySelectorAll(".wt-bits tbody tr")].map((row) =>
                        [...row.cells].slice(1, -1).map((cell) => cell.textContent.trim()).join("")),
                    })"""
                )
                chunk = phase[1]
                groups = one.bank_groups(*phase)
                assert int(shown["words"].split()[0]) == one.wavefronts(*phase)
                assert shown["on"] == [f"{row}.{chunk}" for row in range(8)]
                assert shown["counts"] == [groups.count(group) for group in range(8)]
                for row, bits in enumerate(shown["bits"]):
                    before, after = bits.split("→")
                    assert int(before, 2) * 16 == row * pitch + 16 * chunk
                    assert int(after, 2) == one.offset(row, chunk) // 16 % 8
                page.locator("button[data-step='1']").click()


def test_the_swizzle_is_slid_and_stepped_by_the_keyboard(chromium, urls):
    with browser.opened(chromium, urls["swizzle"]) as (page, _):
        slider = page.locator("input[data-part]")
        seen = [page.locator(".wt-wavefronts:visible").inner_text()]
        for _ in range(3):
            slider.press("ArrowRight")
            seen.append(page.locator(".wt-wavefronts:visible").inner_text())
        assert seen == ["8 wavefronts", "4 wavefronts", "2 wavefronts", "1 wavefront"]
        assert slider.get_attribute("aria-valuetext") == "128 bytes"
        page.locator("button[data-step='1']").press("ArrowLeft")
        assert page.locator(".wt-steps output").inner_text() == "rows 0 to 7, chunk 7"


def case(randomly, swizzle):
    offsets = [randomly.randrange(0, 1 << 14) * 16 for _ in range(3)]
    return Descriptor(*offsets, base_offset=randomly.randrange(8), swizzle=swizzle)


@pytest.mark.parametrize("matrix", OPERANDS)
def test_the_script_computes_the_addresses_that_the_emulator_reads(chromium, urls, matrix):
    operand = OPERANDS[matrix]
    randomly = random.Random(1)
    cases = [
        (case(randomly, swizzle), transposed, core)
        for _, transposed in operand.layouts
        for swizzle in SWIZZLES
        for core in range(operand.grid[0] * operand.grid[1])
        for _ in few(range(CASES // 32), 1)
    ]
    given = [
        [{field: getattr(each, field) for field, _, _ in FIELDS}, str(int(transposed)), core]
        for each, transposed, core in cases
    ]
    with browser.opened(chromium, urls[matrix]) as (page, _):
        shown = page.evaluate(
            """(cases) => cases.map(([fields, layout, core]) => {
              const set = (input, value) => { input.value = value; input.dispatchEvent(new Event("input")); };
              for (const [name, value] of Object.entries(fields)) {
                set(document.querySelector(`[data-field='${name}']`), value);
              }
              set(document.querySelector("select[data-layout]"), layout);
              const cells = [...document.querySelectorAll(".wt-cores tbody td")];
              cells[core].click();
              return {
                word: document.querySelector(".wt-word").textContent,
                first: cells.map((cell) => Number(cell.textContent)),
                chunks: [...document.querySelectorAll(".wt-chunks tbody tr")]
                  .map((row) => Number(row.cells[1].textContent)),
                waves: document.querySelector(".wt-wavefronts").textContent,
              };
            })""",
            given,
        )
    for (descriptor, transposed, core), found in zip(cases, shown, strict=True):
        addresses = core_addresses(operand, descriptor, transposed)
        assert int(found["word"], 16) == descriptor.encode()
        assert found["first"] == addresses[:, :, 0].ravel().tolist()
        chunks = addresses.reshape(-1, 8)[core]
        assert found["chunks"] == chunks.tolist()
        groups = [int(address) % 128 // 16 for address in chunks]
        assert int(found["waves"].split()[0]) == max(map(groups.count, groups))


def test_64_bits_are_taken_apart(chromium, urls):
    one = Descriptor(0x2340, 4096, 512, 5, 64)
    with browser.opened(chromium, urls["A"]) as (page, _):
        page.locator("[data-word]").fill(hex(one.encode()))
        for field, _, _ in FIELDS:
            assert int(page.locator(f"[data-field='{field}']").input_value()) == getattr(one, field)
        assert int(page.locator("td.wt-on").inner_text(), 16) == core_addresses(OPERANDS["A"], one, False)[0, 0, 0]
        page.locator("[data-word]").fill("0xzz")
        assert "they are up to 16 hexadecimal digits" in page.locator(".wt-problems").inner_text()
        page.locator("[data-word]").fill(hex(1 << 14))
        assert "these are not: 0x4000" in page.locator(".wt-problems").inner_text()


@pytest.mark.parametrize(
    ("field", "value"),
    few([("start", "1032"), ("start", "-16"), ("stride", str(1 << 18)), ("base_offset", "8"), ("leading", "")], 2),
)
def test_what_no_descriptor_can_hold_is_explained(chromium, urls, field, value):
    with browser.opened(chromium, urls["A"]) as (page, _):
        before = page.locator(".wt-word").inner_text()
        page.locator(f"[data-field='{field}']").fill(value)
        label = next(label for name, label, _ in FIELDS if name == field)
        said = page.locator(".wt-problems").inner_text()
        assert said.startswith(f"{label} of {value or 'nothing'}: it is ")
        assert said.endswith(f"from 0 to {field_bits(field).largest}.")
        assert page.locator(f"[data-field='{field}']").get_attribute("aria-invalid") == "true"
        assert page.locator(".wt-word").inner_text() == before


def test_core_matrices_that_overlap_are_reported(chromium, urls):
    with browser.opened(chromium, urls["A"]) as (page, _):
        assert page.locator(".wt-problems").inner_text() == "The leading byte offset is not used by this layout."
        page.locator("[data-field='stride']").fill("0")
        assert "128 chunks are at 16 addresses" in page.locator(".wt-problems").inner_text()


def test_a_chunk_of_a_box_is_found_in_shared_memory(chromium, urls):
    box = box_examples.placed("128B", (56, 6))
    with browser.opened(chromium, urls["boxes"]) as (page, _):
        page.locator("select[data-part]").nth(1).select_option(label="56, 6")
        page.locator(".wt-state:visible td[data-k='21']").first.click()
        marked = page.locator(".wt-state:visible td.wt-on")
        assert marked.count() == 2
        line, group = marked.nth(1).evaluate(
            "(cell) => [Number(cell.parentElement.cells[0].textContent), cell.cellIndex - 1]"
        )
        assert line + 16 * group == box.offsets[21]
        page.keyboard.press("Escape")
        assert marked.count() == 0


def test_the_index_is_filtered_by_words(chromium, urls):
    with browser.opened(chromium, urls["index"]) as (page, _):
        page.locator("input[type='search']").fill("SP  f16")
        assert texts_of(page, "tbody tr:visible th") == ["mma.sp.m16n8k32.f32.f16"]
        assert page.locator(".wt-listing output").inner_text() == "1 of 7"
        page.locator("input[type='search']").fill("nothing of this")
        assert page.locator("tbody tr:visible").count() == 0


PAGES = (
    NAME, "ldmatrix.x4", "wgmma.m64n128k16.f32.f16", "cp.async.bulk.tensor.2d.shared::cluster.global",
    "wmma.m8n32k16.f32.f16", "index",
)  # fmt: skip


@pytest.mark.parametrize(("name", "scheme"), covering(PAGES, ("light", "dark"), pairs=()))
def test_pages_are_accessible_and_fit_a_narrow_screen(chromium, urls, name, scheme):
    with browser.opened(chromium, urls[name], width=browser.NARROW, color_scheme=scheme) as (page, _):
        assert browser.too_wide(page) == []
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert browser.too_wide(page) == []
        page.locator("td:visible").first.click()
        if not ALL:  # rows of a table are alike
            page.evaluate("document.querySelectorAll('tbody tr:nth-child(n+5)').forEach((each) => each.remove())")
        colors = ["color-contrast"] if scheme == "dark" else []
        assert browser.inaccessible(page, *colors) == "", "colors alone are others"


def test_without_the_script_every_state_is_there(chromium, urls):
    with browser.opened(chromium, urls["swizzle"], java_script_enabled=False) as (page, _):
        assert page.locator(".wt-state:visible").count() == 16
        assert page.locator("input:visible, select:visible").count() == 0
    with browser.opened(chromium, urls["A"], java_script_enabled=False) as (page, _):
        assert page.locator(".wt-cores:visible").count() == 1
        assert page.locator("input:visible").count() == 0
