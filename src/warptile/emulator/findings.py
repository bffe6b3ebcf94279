"""The checks of the emulator by name, and what they have found in a launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from warptile.errors import EmulationError, SourceLocation, UnsupportedError

Severity = Literal["error", "model", "warning"]

SEVERITIES: Mapping[Severity, str] = {
    "error": "undefined by the PTX ISA, or a wrong result",
    "model": "relies on what the PTX memory model does not promise, although common code does and GPUs mostly keep it",
    "warning": "legal, and often not what was meant",
}
"""What each severity means. Findings of the first two make `warptile emulate` end with exit code 1."""


@dataclass(frozen=True)
class EmulationCheck:
    """One check of the emulator.

    Attributes:
        name: as on the command line and in ``checks``.
        severity: of what it finds.
        what: it finds, in a few words.
        fix: what to do about a finding, where the finding itself does not say.
        default: whether it is made unless asked otherwise.
        always: whether it cannot be switched off, because the run would mean nothing without it.
    """

    name: str
    severity: Severity
    what: str
    fix: str
    default: bool = True
    always: bool = False


_CHECKS = (
    EmulationCheck(
        "races",
        "error",
        "two unordered accesses to the same bytes, at least one of them a write",
        "order the two accesses by a barrier, or by a release and an acquire",
    ),
    EmulationCheck(
        "uninitialised",
        "error",
        "a value that nothing has written, where it reaches an observable effect",
        "write the memory or the register on every path before its value is used",
    ),
    EmulationCheck(
        "writes",
        "error",
        "an output element that is never written, or written with different values",
        "let exactly one thread write each element",
    ),
    EmulationCheck(
        "reuse",
        "error",
        "mbarrier memory that is reused or written without mbarrier.inval",
        "execute mbarrier.inval, and a barrier, before the memory is used otherwise",
    ),
    EmulationCheck(
        "warp-order",
        "model",
        "lanes of a warp ordered by nothing but shfl, vote, mma or another .sync collective",
        "put __syncwarp() between the two accesses",
    ),
    EmulationCheck(
        "cas-read",
        "model",
        "a plain read of a word that others change atomically, as first guess of a CAS loop or test before an atomic",
        "read the word by cuda::atomic_ref or a volatile load",
    ),
    EmulationCheck(
        "wgmma-rows",
        "model",
        "rows of A of a wgmma ordered for the warp that owns them, not for its warpgroup",
        "put a barrier of the warpgroup between the store and wgmma",
    ),
    EmulationCheck(
        "bulk-exit",
        "model",
        "a thread that ends before its bulk store has read shared memory",
        "execute cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 before the end",
    ),
    EmulationCheck(
        "unwaited-reads",
        "model",
        "a bulk copy over shared memory whose last reads may still be under way",
        "execute fence.proxy.async between the read and the arrival that lets the memory go",
    ),
    EmulationCheck(
        "volatile",
        "model",
        "volatile accesses that are ordered by nothing: counts them as plain ones",
        "use cuda::atomic_ref, or atomic operations",
        default=False,
    ),
    EmulationCheck(
        "overflow",
        "warning",
        "an f16 accumulator that becomes infinite although A, B and C are finite",
        "accumulate in f32, or scale the operands",
    ),
    EmulationCheck(
        "padding",
        "warning",
        "a read of bytes of an operand that lie between or behind its rows",
        "guard the access, or do not use its value",
    ),
    EmulationCheck(
        "redundant-stores",
        "warning",
        "unordered stores of the same value to the same bytes",
        "let one thread store the value",
        default=False,
    ),
    EmulationCheck(
        "leaks",
        "warning",
        "memory from malloc or new that no kernel has freed",
        "free it, in this kernel or in a later one",
    ),
    EmulationCheck(
        "addresses",
        "error",
        "an access outside every buffer or to freed memory, a write to a read-only one, a wrong free",
        "compare the index with the extent of the buffer",
        always=True,
    ),
    EmulationCheck(
        "alignment",
        "error",
        "an address that is not a multiple of the access size",
        "align the address, or use a narrower access",
        always=True,
    ),
    EmulationCheck(
        "in-flight",
        "error",
        "a read of memory that an asynchronous copy still writes",
        "wait for the copy before the access",
        always=True,
    ),
    EmulationCheck(
        "instructions",
        "error",
        "an instruction with operands that the hardware refuses",
        "give the instruction operands that the PTX ISA allows",
        always=True,
    ),
    EmulationCheck(
        "mbarriers",
        "error",
        "an mbarrier used against its rules",
        "initialize the mbarrier with the number of arrivals that each phase gets",
        always=True,
    ),
    EmulationCheck(
        "clusters",
        "error",
        "a cluster barrier used against its rules",
        "let every thread of the cluster arrive once and then wait",
        always=True,
    ),
    EmulationCheck(
        "registers",
        "error",
        "setmaxnreg in the wrong direction",
        "give .inc at least, and .dec at most, the registers that the warp has",
        always=True,
    ),
    EmulationCheck(
        "collectives",
        "error",
        "lanes of a warp that do not execute a collective together",
        "move the instruction to where all lanes named by its mask execute it",
        always=True,
    ),
    EmulationCheck(
        "deadlock",
        "error",
        "threads that wait or spin for something that never happens",
        "let some thread do what they wait for",
        always=True,
    ),
    EmulationCheck(
        "trap",
        "error",
        "the kernel executed trap, or an assertion failed",
        "see the assertion",
        always=True,
    ),
)

CHECKS: Mapping[str, EmulationCheck] = {check.name: check for check in _CHECKS}
"""Every check by name."""

ALL_CHECKS = frozenset(check.name for check in _CHECKS if not check.always)
"""Checks that can be switched on and off; those that are not among them are always made."""

DEFAULT_CHECKS = frozenset(check.name for check in _CHECKS if check.default and not check.always)
"""Checks that are made unless others are given."""

MODEL_CHECKS = frozenset(check.name for check in _CHECKS if check.severity == "model")
"""What the memory model of the PTX ISA reports and ``model="common"`` lets pass."""


def select_checks(
    checks: Iterable[str] = ("default",),
    *,
    ignore: Iterable[str] = (),
    model: str = "ptx",
    volatile: str = "strong",
) -> frozenset[str]:
    """The checks that some options mean, as `warptile.emulator.emulate` takes them.

    Args:
        checks: names in `ALL_CHECKS`, ``"default"`` or ``"all"``.
        ignore: names to take away from these.
        model: ``"ptx"``, the memory model of the PTX ISA, or ``"common"``, which also takes lanes of a warp to be
            ordered by ``.sync`` collectives, the plain first read of a CAS loop to be atomic, rows of A of a
            ``wgmma`` to be read by the warp that owns them, shared memory to be kept until bulk stores have read it,
            and loads to have read before bulk copies overwrite what they read.
        volatile: whether volatile accesses are ``"strong"``, as the PTX ISA says, or ``"weak"`` like plain ones.

    Raises:
        UnsupportedError: an unknown name, or an ignored check that is always made.
    """
    if model not in ("ptx", "common"):
        raise UnsupportedError(f"model: got {model!r}; it is ptx or common, such as model='common'")
    if volatile not in ("strong", "weak"):
        raise UnsupportedError(f"volatile: got {volatile!r}; it is strong or weak, such as volatile='weak'")
    groups = {"default": DEFAULT_CHECKS, "all": ALL_CHECKS}
    chosen = frozenset[str]().union(*(groups.get(name, {name}) for name in checks))
    without = frozenset(ignore)
    for what, names in (("checks", chosen), ("ignore", without)):
        for name in sorted(names - ALL_CHECKS):
            if name in CHECKS:
                raise UnsupportedError(f"{what}: {name} is always checked: without it the run would mean nothing")
            raise UnsupportedError(
                f"{what}: got {name!r}; there are {', '.join(sorted(ALL_CHECKS))}, such as {what}=['races']"
            )
    if model == "common":
        chosen -= MODEL_CHECKS - {"volatile"}
    if volatile == "weak":
        chosen |= {"volatile"}
    return chosen - without


@dataclass(frozen=True)
class EmulationFinding:
    """What a check has found, once for each pair of source lines.

    Attributes:
        check: name of the check.
        severity: ``error``, ``model`` or ``warning``.
        kind: class of the error in `warptile.errors`.
        message: what happened the first time, with threads and addresses; of two accesses, the first time that they
            needed a barrier of as many threads as at any time.
        location: the instruction, or None where no single one is to blame.
        first: of two accesses, the instruction of the one that came first.
        missing: of two accesses, what would have ordered them.
        fix: what to do about it.
        count: how often it happened; a lower bound where one instruction does it in many lanes.
        stopped: whether the run could not go on after it.
        schedule: the first schedule that showed it; `emulate` with it shows it again.
    """

    check: str
    severity: Severity
    kind: str
    message: str
    location: SourceLocation | None
    first: SourceLocation | None
    missing: str
    fix: str
    count: int
    stopped: bool
    schedule: str

    @property
    def fails(self) -> bool:
        """Whether it is more than a warning."""
        return self.severity != "warning"

    @property
    def key(self) -> tuple[object, ...]:
        """Findings with the same one are the same."""
        return _key(self.kind, self.first, self.location, self.message)


def _key(kind: str, first: SourceLocation | None, location: SourceLocation | None, message: str) -> tuple[object, ...]:
    """What tells findings apart: their kind and their lines, or without lines what is said."""
    return kind, line_of(first), line_of(location), "" if location is not None else message


def line_of(location: SourceLocation | None) -> tuple[str, int] | None:
    """The source line of an instruction: of CUDA C++ where that is known, else of PTX."""
    if location is None:
        return None
    return (location.file, location.line) if location.file and location.line else ("", location.ptx_line)


class Findings:
    """What the checks of one run have found.

    Args:
        collect: note findings down and go on where that is possible; otherwise the first one is raised.
        schedule: of the run.
    """

    def __init__(self, *, collect: bool, schedule: str) -> None:
        self.collect = collect
        self._schedule = schedule
        self._found: dict[tuple[object, ...], EmulationFinding] = {}
        self._relies: dict[tuple[object, ...], str] = {}

    def empty(self) -> Findings:
        """What another run of the same schedule begins with."""
        return Findings(collect=self.collect, schedule=self._schedule)

    def report(
        self, error: EmulationError, check: str | None = None, *, count: int = 1, relies_on: str | None = None
    ) -> None:
        """Raise ``error``, or note it down as a finding of ``check`` and return: the caller goes on.

        ``relies_on`` is the check of severity ``model`` that a race becomes if `weighed` finds it to be one.
        """
        if not self.collect:
            raise error
        key = self._note(error, check or error.check, count, stopped=False)
        if relies_on is not None:
            self._relies.setdefault(key, relies_on)

    def stop(self, error: EmulationError) -> None:
        """Note down an error that ended the run; raise it if it says nothing about the kernel."""
        if not self.collect or not error.check:
            raise error
        self._note(error, error.check, 1, stopped=True)

    def known(
        self, error: type[EmulationError], first: SourceLocation | None, location: SourceLocation | None
    ) -> EmulationFinding | None:
        """The finding of a pair of lines, counted once more; None if it has not been reported."""
        key = _key(error.__name__, first, location, "")
        found = self._found.get(key)
        if found is not None:
            self._found[key] = found = replace(found, count=found.count + 1)
        return found

    def reword(self, known: EmulationFinding, error: EmulationError) -> None:
        """Say what happened now of a finding, in place of what happened the first time."""
        self._found[known.key] = replace(known, message=error.said, missing=error.missing, fix=error.fix)

    def _note(self, error: EmulationError, check: str, count: int, *, stopped: bool) -> tuple[object, ...]:
        rule = CHECKS[check]
        new = EmulationFinding(
            check, rule.severity, type(error).__name__, error.said, error.location, error.first, error.missing,
            error.fix or rule.fix, count, stopped, self._schedule,
        )  # fmt: skip
        old = self._found.get(new.key)
        self._found[new.key] = new if old is None else replace(old, count=old.count + count, stopped=stopped)
        return new.key

    def weighed(self, lenient: Findings) -> tuple[EmulationFinding, ...]:
        """`all`, after another run of the same schedule that leaves out the checks of severity ``model``.

        Races that the other run does not show are model findings.
        """
        for key, found in self._found.items():
            if found.check == "races" and key not in lenient._found:
                rule = CHECKS[self._relies.get(key, "warp-order")]
                self._found[key] = replace(found, check=rule.name, severity=rule.severity)
        return self.all()

    def all(self) -> tuple[EmulationFinding, ...]:
        """Everything found: errors, model findings, warnings, and last what stopped the run."""
        return in_order(self._found.values())


def merged(runs: Iterable[Iterable[EmulationFinding]]) -> tuple[EmulationFinding, ...]:
    """What several runs of one launch have found: each finding once, from the first run that shows it."""
    found: dict[tuple[object, ...], EmulationFinding] = {}
    for run in runs:
        for each in run:
            found.setdefault(each.key, each)
    return in_order(found.values())


def in_order(findings: Iterable[EmulationFinding]) -> tuple[EmulationFinding, ...]:
    """Errors, model findings, warnings, and last what stopped a run."""
    order = list(SEVERITIES)
    return tuple(sorted(findings, key=lambda each: (each.stopped, order.index(each.severity))))
