"""A factual claim of a source text, the check that answers it, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    ELSEWHERE = "holds elsewhere"
    FAILS = "does not hold"


@dataclass(frozen=True)
class Answer:
    """What a check found.

    Attributes:
        value: in one phrase.
        here: the claim is true as stated; of an unqualified claim, on the H200.
        elsewhere: it is true, or was measured to be, under conditions that are not those of this project.
    """

    value: str
    here: bool
    elsewhere: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the two comparisons."""
        if self.here:
            return Verdict.HOLDS
        return Verdict.ELSEWHERE if self.elsewhere else Verdict.FAILS


@dataclass(frozen=True)
class Means:
    """A way to check a claim.

    Attributes:
        name: one or two words, which stand in the row.
        does: one sentence for the list above the tables.
    """

    name: str
    does: str


ARITHMETIC = Means("arithmetic", "The numbers that the text gives are computed again.")
LAYOUTS = Means("layouts", "Computed from the fragments and shapes in `src/warptile/isa/`, which drive the emulator.")
SASS = Means("SASS", "Looked up in `src/warptile/isa/machine_code.json`: each instruction, assembled and disassembled.")
COMPILER = Means("compiler", "A few lines of CUDA C++ are compiled while this page is made.")
EMULATOR = Means("emulator", "A few lines of PTX, or one of the listings below, are run while this page is made.")
LIMITS = Means("limits", "Computed from the limits and measured issue rates in `src/warptile/arch.py`.")
HOST = Means("host", "A function of this package, or the text's formula, is called on an example.")
RECORD = Means("record", "Taken from the records named below the table.")
MEANS = (ARITHMETIC, LAYOUTS, SASS, COMPILER, EMULATOR, LIMITS, HOST, RECORD)


@dataclass(frozen=True)
class Fact:
    """One factual claim.

    Attributes:
        source: the text that states it, or the vendor document.
        claimed: what it says, in this project's words.
        conditions: to what it applies.
        means: how it was checked.
        check: makes the check; None where a record is missing.
        why: what explains the outcome.
    """

    source: str
    claimed: str
    conditions: str
    means: Means
    check: Callable[[], Answer | None]
    why: str

    def __post_init__(self) -> None:
        assert self.means in MEANS, self.means
