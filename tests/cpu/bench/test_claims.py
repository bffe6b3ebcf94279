"""docs/claims.md: every check runs, verdicts follow from what it finds, and the flawed listings fail as shown."""

import re
from collections import Counter
from pathlib import Path

import pytest

from warptile.arch import H200, arch
from warptile.bench.protocol.workloads import BF16, F16_F16, F32
from warptile.bench.report.claims import claim_tables, listings, memory_facts, probes, rate_facts, resource_facts
from warptile.bench.report.claims.claim_tables import TOPIC_NAMES, difference, facts_of, measured
from warptile.bench.report.claims.fact import MEANS, Answer, Verdict
from warptile.bench.report.claims.listings import (
    COMMIT_WITH_TILE,
    HALF_OF_BLOCK,
    LISTINGS,
    MENDED,
    PRINTED,
    TWO_BIT_SWIZZLE,
    WITHOUT,
    group_steps,
    shared_wavefronts,
)
from warptile.bench.report.claims.rung_claims import (
    CLAIMS,
    CONFLICTS,
    OF_CUBLAS,
    REASONS,
    REGISTERS,
    STEP,
    TFLOPS,
    Claim,
)
from warptile.bench.report.documents import DocumentTables
from warptile.bench.report.record_lookup import RecordLookup
from warptile.isa import machine_code

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "claims.md"
LOOKUP = RecordLookup()
FACTS = [fact for topic in TOPIC_NAMES for fact in facts_of(topic, LOOKUP)]
MEASURED = [(claim, measured(claim, LOOKUP)) for claim in CLAIMS]
SOURCE = re.compile(r"(?:T[0-4](?: \(code\)| kernel \d)?)(?:, T[0-4])*|CUDA [\w+ ]+")


def named(words):
    """The one fact whose claim has these words."""
    (fact,) = [fact for fact in FACTS if words in fact.claimed]
    return fact


# --- checks and verdicts ---


def test_there_are_at_least_eighty_claims_from_every_text():
    assert len(CLAIMS) + len(FACTS) >= 80
    sources = Counter(text for each in (*FACTS, *CLAIMS) for text in re.findall(r"T\d", each.source))
    assert all(sources[f"T{number}"] >= 5 for number in range(5))
    assert all(SOURCE.fullmatch(each.source) for each in (*FACTS, *CLAIMS))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.claimed[:60])
def test_every_check_runs_and_says_what_it_found(fact):
    answer = fact.check()
    assert answer is not None
    assert re.search(r"\w", answer.value)
    assert "|" not in answer.value + fact.claimed + fact.why + fact.conditions
    assert fact.check() == answer
    assert fact.means in MEANS


def test_every_figure_was_measured():
    assert [claim for claim, found in MEASURED if found is None] == []


def test_a_verdict_follows_from_two_comparisons():
    assert Answer("", here=True).verdict is Answer("", here=True, elsewhere=True).verdict is Verdict.HOLDS
    assert Answer("", here=False, elsewhere=True).verdict is Verdict.ELSEWHERE
    assert Answer("", here=False).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("unit", "published", "holds", "misses", "otherwise"),
    [
        (OF_CUBLAS, 0.8, 0.76, 0.75, Verdict.ELSEWHERE),
        (STEP, 2.0, 1.8, 1.79, Verdict.ELSEWHERE),
        (CONFLICTS, 8.0, 7.85, 7.8, Verdict.FAILS),
        (CONFLICTS, 8.0, 8.15, 8.2, Verdict.FAILS),
        (REGISTERS, 165, 173, 174, Verdict.ELSEWHERE),
    ],
)
def test_a_figure_holds_within_the_tolerance_of_its_class(unit, published, holds, misses, otherwise):
    claim = Claim("T3", "mma-final", unit, published, "", BF16, previous="mma-multistage" if unit == STEP else None)
    assert claim.verdict(holds) is Verdict.HOLDS
    assert claim.verdict(misses) is otherwise


@pytest.mark.parametrize(
    ("rung", "group", "there", "here"),
    [
        ("wmma-final", F16_F16, 312, H200.tensor_tflops["float16"]),
        ("simt-half2", F16_F16, 78, 2 * H200.fp32_tflops),
        ("simt-warptile", F32, 19.5, H200.fp32_tflops),
    ],
)
def test_speeds_are_compared_as_shares_of_the_peak(rung, group, there, here):
    claim = Claim("T3", rung, TFLOPS, 0.5 * there, "", group)
    assert claim.verdict(0.48 * here) is Verdict.HOLDS
    assert claim.verdict(0.47 * here) is Verdict.ELSEWHERE


def test_no_two_rows_give_the_same_reason():
    said = [fact.why for fact in FACTS] + [difference(c, found, LOOKUP) for c, found in MEASURED if found is not None]
    assert [text for text, times in Counter(said).items() if times > 1] == []
    assert all(said)
    assert len({reason.letter for reason in REASONS}) == len({reason.text for reason in REASONS}) == len(REASONS)


def test_explanations_of_facts_hold_no_measured_number():
    for fact in FACTS:
        assert not re.search(r"\d+(\.\d+)? ?(TFLOP|%|percent)", fact.why) or "datasheet" in fact.why, fact


def test_known_contradictions_are_found():
    failing = {fact.claimed for fact in FACTS if fact.check().verdict is Verdict.FAILS}
    for words in (
        "INT1 is on Turing alone", "1100) >> 2)` takes the 8-way", "leaving STAGES - 1 groups", "2 x 2 fragments",
        "are 2048 bytes", "opt in to 228 KB", "round f32 operands", "`ldmatrix` came with Ampere",
    ):  # fmt: skip
        assert named(words).claimed in failing
    assert named("INT4 runs").check().verdict is named("doubles the rate").check().verdict is Verdict.ELSEWHERE


def test_a_check_follows_what_it_looks_at(monkeypatch):
    asked = {words: named(words) for words in ("takes the 8-way", "leaving STAGES", "2 x 2 fragments")}
    monkeypatch.setattr(memory_facts, "PRINTED", MENDED)
    monkeypatch.setattr(listings, "group_steps", lambda *a, **k: group_steps(*a, empty_groups=True))
    assert {fact.check().verdict for fact in asked.values()} == {Verdict.HOLDS}
    monkeypatch.setattr(rate_facts, "DENSE_H100", 1024)
    assert named("989").check().verdict is Verdict.FAILS


def test_without_a_record_a_fact_has_a_dash():
    table = claim_tables.facts_table(claim_tables.RECORDED, RecordLookup([]))
    rows = [line.split(" | ") for line in table.splitlines()[2:] if line.startswith("| ")]
    assert [row[4:6] for row in rows] == [["–", "–"]] * len(facts_of(claim_tables.RECORDED, LOOKUP))
    counted = claim_tables.verdicts_table(RecordLookup([])).splitlines()
    assert counted[2] == "| figures of the rungs | 0 | 0 | 0 | 0 |"


def test_verdicts_are_counted():
    lines = [line[2:-2].split(" | ") for line in claim_tables.verdicts_table(LOOKUP).splitlines()[2:]]
    *parts, total = [[int(cell) for cell in line[1:]] for line in lines]
    assert all(sum(row[1:]) == row[0] for row in (*parts, total))
    assert total == [sum(column) for column in zip(*parts, strict=True)]
    assert total[0] == len(CLAIMS) + len(FACTS)


def test_hopper_multiplies_bits_itself_and_emulates_four_bit_integers():
    table = machine_code.table()
    for name, outcome in table.outcomes["sm_90a"].items():
        if name.startswith("mma.m16n8k256.s32.b1"):
            assert outcome.status == ("native" if name.endswith(".and") else "emulated"), name
            assert any(instruction.startswith("BMMA") for instruction in outcome.tensor)
        if name.startswith("mma.") and name.endswith(".s4"):
            assert outcome.status == "emulated", name
            assert any("S8" in instruction for instruction in outcome.tensor)


# --- what checks are made of ---


def test_registers_limit_resident_warps():
    hopper = arch("sm_90a")
    assert resource_facts.warp_registers(165) == 168 * 32
    assert resource_facts.resident_warps(hopper, 32, 1) == 64
    assert resource_facts.resident_warps(hopper, 128, 4) == 16
    assert resource_facts.resident_warps(hopper, 255, 1) == 8
    assert resource_facts.resident_warps(arch("sm_75"), 32, 8) == 32


def test_a_probe_reports_and_counts():
    assert probes.ldmatrix_wavefronts(tuple(128 * row for row in range(8))) == 8
    assert probes.ldmatrix_wavefronts(tuple(144 * row for row in range(8))) == 1
    assert probes.reported("ld.shared.u32 %r2, [tile];\nst.global.u32 [%rd1], %r2;") == "UninitializedRead"
    assert probes.reported("st.global.u32 [%rd1], %r1;") == ""
    assert probes.run("")[0].counters["global_load_bytes"] == probes.HEAD_BYTES


def test_the_compiler_refuses_for_the_reason_that_is_meant():
    assert "Illegal matrix shape '.m16n8k32'" in probes.refusal(probes.ILLEGAL_SHAPE, "probe<0>", "sm_90a")
    assert "Arguments mismatch" in probes.refusal(probes.WGMMA_OPERANDS["shared, register"], "probe<0>", "sm_90a")
    assert "too much shared data" in probes.refusal(probes.STATIC_SHARED, "probe<49153>", "sm_80")


# --- listings ---


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_a_mended_listing_is_clean_and_right(listing):
    for argument in (2, 3, 4) if listing is COMMIT_WITH_TILE else (0,):
        run = listings.run(listing, MENDED, argument)
        assert (run.error, run.said, run.right) == ("", "", True)
    assert [line.text for line in listing.lines(MENDED)] != [line.text for line in listing.lines(PRINTED)]
    assert not any(PRINTED in line.text or MENDED in line.text for line in listing.lines(MENDED))


def test_half_of_the_block_is_reported_unwritten():
    run = listings.run(HALF_OF_BLOCK, PRINTED)
    assert (run.error, run.right) == ("UnwrittenOutput", False)
    assert run.said.startswith("D[64, 0] was never written: 8192 of 16384 elements")


@pytest.mark.parametrize(
    ("stages", "copied"),
    [(2, "copy_tile(tile + STAGES - 1);"), (3, "copy_tile(tile + STAGES - 1);"), (4, "copy_tile(tile);")],
)
def test_groups_that_are_not_committed_are_reported_at_their_lines(stages, copied):
    run = listings.run(COMMIT_WITH_TILE, PRINTED, stages)
    text = {line.number: line.text for line in COMMIT_WITH_TILE.lines(PRINTED)}
    assert run.error == "UninitializedRead"
    assert "wmma::load_matrix_sync(left" in text[run.at]
    assert text[run.since].strip() == copied  # with 4 stages a tile of the prologue is the first that is not waited for
    assert "PTX line" not in run.said
    assert "%" not in run.said


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_groups_are_counted_as_the_hardware_does(stages):
    printed, mended = (group_steps(6, stages, empty_groups=empty) for empty in (False, True))
    assert [step.covered for step in printed] == [True] * (7 - stages) + [False] * (stages - 1)
    assert all(step.covered for step in mended)


def test_the_mask_leaves_a_four_way_conflict_and_a_right_result():
    ways = {}
    for form in (WITHOUT, PRINTED, MENDED):
        run = listings.run(TWO_BIT_SWIZZLE, form)
        assert (run.error, run.right) == ("", True)
        lines = shared_wavefronts(run)
        assert [kind for kind, _, _ in lines.values()] == ["store", "load"]
        ways[form] = [wavefronts / ideal for _, wavefronts, ideal in lines.values()]
    assert ways == {WITHOUT: [1, 8], PRINTED: [1, 4], MENDED: [1, 1]}


# --- the page ---


def test_the_page_is_what_the_checks_give():
    assert DocumentTables(LOOKUP.records).render(PAGE.read_text()) == PAGE.read_text(), "run: warptile report"


def test_the_page_has_every_topic_and_listing():
    blocks = set(re.findall(r"<!-- table:([\w-]+) -->", PAGE.read_text()))
    wanted = {f"facts-{topic}" for topic in TOPIC_NAMES} | {f"listing-{name}" for name in claim_tables.LISTING_NAMES}
    assert wanted | {"claims", "claim-verdicts", "claim-means", "targets"} == blocks


def test_rows_of_the_page_have_seven_cells():
    for line in PAGE.read_text().splitlines():
        if line.startswith("| T"):
            assert line.count(" | ") in (1, 6), line
