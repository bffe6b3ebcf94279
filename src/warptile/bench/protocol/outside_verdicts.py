"""What the emulator says of kernels that others wrote, beside what is true of them, as data."""

from __future__ import annotations

import msgspec


class OutsideVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch of a kernel.

    Attributes:
        case: its name in the suite.
        expected: checks that have to find something, by name; none for a correct kernel.
        found: checks that found errors or model findings.
        result: whether what it computed is right; None where nothing is compared.
        refused: why it did not run, such as an unknown instruction.
        agrees: whether all of that is as expected.
        seconds: that it took, compiled and emulated.
        warp_instructions: that it executed.
        note: why what is expected is not what the suite says.
    """

    case: str
    expected: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    result: bool | None = None
    refused: str = ""
    agrees: bool
    seconds: float
    warp_instructions: int
    note: str = ""


class OutsideSuite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many kernels of a suite there are, and what was said of them.

    Attributes:
        name: of the suite.
        revision: commit or version.
        correct: kernels without a bug; ``quiet`` of them ran without findings.
        faulty: kernels with one; ``caught`` of them had it found.
        compared: results that were compared; ``right`` of them are right.
        refused: kernels that did not run.
        differences: kernels of which something else was said than expected.
        seconds: that all of them took.
    """

    name: str
    revision: str
    correct: int
    quiet: int
    faulty: int
    caught: int
    compared: int
    right: int
    refused: int
    differences: int
    seconds: float

    @staticmethod
    def of(name: str, revision: str, verdicts: tuple[OutsideVerdict, ...]) -> OutsideSuite:
        """The totals of some verdicts."""
        correct = [each for each in verdicts if not each.expected]
        faulty = [each for each in verdicts if each.expected]
        compared = [each for each in verdicts if each.result is not None]
        return OutsideSuite(
            name=name,
            revision=revision,
            correct=len(correct),
            quiet=sum(not each.found and not each.refused for each in correct),
            faulty=len(faulty),
            caught=sum(set(each.expected) <= set(each.found) for each in faulty),
            compared=len(compared),
            right=sum(each.result is True for each in compared),
            refused=sum(bool(each.refused) for each in verdicts),
            differences=sum(not each.agrees for each in verdicts),
            seconds=sum(each.seconds for each in verdicts),
        )
