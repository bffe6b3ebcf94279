"""Retired terms stay out: the field's word for each is in docs/glossary.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOTS = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs", "src", "tests")
"""Files and folders that are checked."""
LEFT_OUT = (
    "docs/lab-notebook",
    "tests/cpu/repository/test_vocabulary.py",
    "tests/data",
)
"""Folders and files below them that are not."""
SUFFIXES = {".md", ".svg", ".py", ".cu", ".cuh", ".h", ".txt", ".toml"}

CONTINUED = re.compile(r"[ \t]*\n[ \t]*(?:#:?|//+|\*|>)?[ \t]*(?=\S)")
"""The end of a line inside a sentence, with what marks the next line as a comment."""

TERMS = {
    r"\bcopy engines?\b": ("TMA", "the copy engine brings whole tiles"),
    r"\b(?:lies?|lying|lay) (?:badly|well)\b|\bbadly (?:lying|aligned)\b|\bbad rows\b": (
        "misaligned, aligned", "operands that lie badly"),
    r"\bbegins? anywhere\b|\bbegins? at any element\b": ("unaligned", "rows of A that begin anywhere"),
    r"\bcut to measure\b": ("tile sized to fill the last wave", "tiles cut to measure"),
    r"\bturned (?:round|tiles?|ones?)\b|\b(?:is|are|be) turned by\b": ("operand swap, transposed", "a turned tile"),
    r"\bfew rows meet\b": ("skinny GEMM, small M", "weights that few rows meet"),
    r"\bslabs?\b": ("MMA-K block", "each slab of 16"),
    r"\bpanels? of D\b|\bwide panels\b|\bepilogue panels?\b": ("epilogue subtile", "a panel of D"),
    r"\bchang(?:e|es|ing) places\b|\btrade places\b": ("XOR swizzle, swapped", "chunks change places"),
    r"\bpast the registers\b": ("bypassing registers", "from global to shared memory past the registers"),
    r"\bpast L1\b": ("bypassing L1", "a copy of 16 bytes past L1"),
    r"\b(?:short|promoted|fast|exact|f16|float16|32-bit) sums\b": (
        "two-level accumulation, accumulators", "short sums of 8-bit floats"),
    r"\bcopies (?:before|beside)\b|\bcopied beforehand\b": (
        "repacking pass, fused repacking", "copies beside the products"),
    r"\bstorers?\b|\bcopiers?\b": ("epilogue store warps, repack warps", "the storers"),
    r"\bblocks? that stays?\b|\bblocks? stays?\b": ("persistent CTAs", "a block stays and takes tile after tile"),
    r"\bone asks\b|\bonly asks for\b|\bthat only multiplies\b": (
        "warp specialization", "a warp that only asks for tiles"),
    r"\bregisters move\b": ("register reallocation (setmaxnreg)", "registers move to where the sums are"),
    r"\bL2 likes\b": ("L2-friendly rasterization, threadblock swizzle", "an order that L2 likes"),
    r"\blets? (?:the (?:next|product|launch)\b[\w ]{0,20}|it )in\b|\b(?:is|are) let in\b": (
        "programmatic dependent launch, early trigger", "the launch lets the next one in"),
    r"\bturns? of (?:tiles|blocks|the grid|(?:all )?multiprocessors)\b": ("wave", "two turns of tiles"),
    r"\b(?:along|of|in) the depth\b|\bdepth is (?:no|shared)\b|\b\d+ of depth\b|\bsteps? of (?:the )?depth\b": (
        "K, K extent, k-block", "the next 16 of depth"),
    r"\bmain loops?\b": ("mainloop", "no branch in the main loop"),
    r"\bconflict ratios?\b": ("bank conflicts (n-way)", "conflict ratio"),
    r"\bwhat stops\b": ("limited by, bottleneck", "What stops it"),
    r"\bwrong kernels?\b": ("kernels with planted bugs", "Wrong kernels"),
    r"(?<!by )\bmistakes?\b": ("bugs, hazards", "one mistake each"),
    r"\bhalves of nothing\b": ("padding", "eight halves of nothing"),
    r"\b(?:costs? (?:is|are)|be) weighed\b|\bweighs? (?:its|the) own\b": ("cost, estimate", "costs are weighed"),
    r"\b(?:other|all|both|the) majors\b|\bcombinations? of majors\b": ("layouts", "the four combinations of majors"),
    r"\b(?:threads|warps|lanes|blocks|CTAs) meet\b": ("synchronize, rendezvous", "the threads meet in between"),
    r"\b(?:square|sparse|short|unaligned|warpgroup) products?\b|\bproducts? of language models\b": (
        "GEMM, matmul, MMA", "square products"),
    r"\bsingle runs?\b": ("a record, or nothing", "figures without a record are single runs"),
}  # fmt: skip
"""Each retired term with the field's one, and a phrase that it must find."""

ANY_TERM = re.compile(r"\b(?=\w)(?:" + "|".join(TERMS).removeprefix(r"\b").replace(r"|\b", "|") + ")", re.I)
"""Found in every text that has a term. All terms begin where a word does: said once, that makes one search several
times as fast as one for each term in turn."""

FINE = """
Repacking copies the operand. Partial sums, a product of exponents, pipeline depth, residue classes of rows, warps are
resident, a beginner's block, the layouts, swap operands, all rows are aligned, read by mistake, take turns, K-major,
weights, the ratio of bank conflicts, what limits it, let it run.
"""


def unwrapped(text: str) -> str:
    """Text whose sentences are in one line each; paragraphs stay apart."""
    return "\n\n".join(CONTINUED.sub(" ", paragraph) for paragraph in re.split(r"\n[ \t]*\n", text))


def retired(text: str) -> Iterator[str]:
    """Every retired term in a text, with some words around it and what to say instead."""
    plain = unwrapped(text)
    if not ANY_TERM.search(plain):
        return
    for pattern, (instead, _) in TERMS.items():
        for found in re.finditer(pattern, plain, re.IGNORECASE):
            around = plain[max(0, found.start() - 30) : found.end() + 30].replace("\n", " ")
            yield f"...{around}...: not {found[0]!r}, but {instead}"


def files() -> list[Path]:
    """What is checked."""
    left_out = [ROOT / name for name in LEFT_OUT]
    found = [
        path for name in ROOTS for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
    ]
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES and not any(path == each or each in path.parents for each in left_out)
    )


def test_no_retired_term() -> None:
    found = {str(path.relative_to(ROOT)): list(retired(path.read_text())) for path in files()}
    assert {name: terms for name, terms in found.items() if terms} == {}


@pytest.mark.parametrize("pattern", TERMS)
def test_a_term_finds_its_phrase_also_across_lines_and_in_comments(pattern: str) -> None:
    instead, phrase = TERMS[pattern]
    wrapped = [phrase, phrase.upper(), phrase.replace(" ", "\n"), phrase.replace(" ", "\n    # ")]
    for text in wrapped:
        assert any(line.endswith(f"but {instead}") for line in retired(f"Before. {text}, after.")), text


def test_the_fields_own_words_are_left_alone() -> None:
    assert list(retired(FINE)) == []


def test_what_should_be_checked_is() -> None:
    names = {str(path.relative_to(ROOT)) for path in files()}
    assert {"README.md", "CONTRIBUTING.md", "docs/glossary.md", "docs/flows.svg", "docs/suites/squares.svg"} <= names
    assert not any(name.startswith("docs/lab-notebook") for name in names)
