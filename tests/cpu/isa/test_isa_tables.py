"""docs/isa.md: its tables are those of the instructions, and every claim that they contradict says how."""

from pathlib import Path

import pytest

from warptile.bench.report.documents import DocumentTables
from warptile.bench.report.isa_tables import CLAIMS, claims_table, forms_table, isa_table
from warptile.isa import machine_code
from warptile.isa.catalogue import by_name

PAGE = Path(__file__).parents[3] / "docs" / "isa.md"


def test_the_page_is_what_the_tables_give():
    assert DocumentTables().render(PAGE.read_text()) == PAGE.read_text(), "run: make docs"
    assert isa_table() in PAGE.read_text()
    assert forms_table() in PAGE.read_text()
    assert claims_table() in PAGE.read_text()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.said)
def test_a_claim_has_a_difference_exactly_where_assembled_code_contradicts_it(claim):
    assert set(claim.names) <= set(by_name())
    assert bool(list(claim.contradictions(machine_code.table()))) == bool(claim.difference)


def test_the_two_known_differences_are_those_of_int4_and_int1():
    assert {claim.said for claim in CLAIMS if claim.difference} == {
        "INT4 lives on in Hopper",
        "INT1 is gone after Turing",
    }


def test_rows_say_what_became_of_each_instruction():
    lines = isa_table().splitlines()
    assert lines[0].split(" | ")[3:] == [*machine_code.ARCHITECTURES[:-1], "sm_120a |"]
    (line,) = [line for line in lines if line.startswith("| `mma.m16n8k256.xor` |")]
    assert line.split(" | ")[3:] == ["–", "BMMA", "BMMA", "BMMA", "2 BMMA\\*", "8 IMMA\\*", "8 IMMA\\* |"]
    (line,) = [line for line in lines if line.startswith("| `wgmma.m64nNk256` |")]
    assert line.split(" | ")[1:] == ["b1", "s32", *["–"] * 4, "BGMMA", "–", "– |"]
    (line,) = [line for line in forms_table().splitlines() if line.startswith("| `setmaxnreg.dec` |")]
    assert line.endswith("| sm_90a | `USETMAXREG.DEALLOC.CTAPOOL` |")
