"""`wgmma.mma_async`: products that warps have issued and that finish when the schedule says, at the latest when waited
for; and the registers that belong to them meanwhile.

The schedules are those of `cp.async` (`warptile.emulator.async_ops.cp_async`). Operands are read and D is written when
a product finishes. Whatever the schedule, until a warp has waited, D's registers may be neither read nor written, and
those of A not written; and what else than wgmma touched either of them needs a `wgmma.fence` before the next product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.wgmma_products import UndefinedWgmma, Warps, WgmmaIssue
from warptile.emulator.checks.wgmma_registers import Rows, WgmmaRegisters
from warptile.emulator.lanes import WARP, Active, RegisterFile
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.program import ProgramStep
from warptile.errors import DataRace, DivergentCollective, UninitializedRead
from warptile.isa.wgmma import WARPS
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.checks.races import RaceChecker


class PendingWgmmas:
    """All incomplete `wgmma.mma_async` of a wave.

    Args:
        memory: names threads, and whether reads of what nothing has written are reported.
        schedule: as in `warptile.emulator.async_ops.cp_async`.
        lanes: of a full wave.
    """

    def __init__(self, memory: Memory, schedule: str, lanes: int) -> None:
        self._memory = memory
        self._schedule = schedule
        self._random = np.random.default_rng(int(schedule.partition(":")[2] or 0))
        self._held: dict[int, WgmmaRegisters] = {}
        self._issues: list[WgmmaIssue] = []
        count = lanes // WARP
        self._committed: NDArray[np.int64] = np.zeros(count, np.int64)
        self._issued: NDArray[np.int64] = np.zeros(count, np.int64)
        self._fenced: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._partial: dict[tuple[int, int], tuple[WgmmaIssue, int, set[int]]] = {}
        self._undefined: dict[tuple[int, str], UndefinedWgmma] = {}
        self._observers: dict[tuple[int, str], Callable[[], None]] = {}

    def new_wave(self) -> None:
        """No warp has issued anything."""
        self._issues.clear()
        self._partial.clear()
        for state in (self._committed, self._issued, self._fenced):
            state.fill(0)
        for held in self._held.values():
            held.new_wave()

    def held(self, registers: RegisterFile) -> WgmmaRegisters:
        """The registers of one function."""
        return self._held.setdefault(id(registers), WgmmaRegisters())

    def follow(self, product: UndefinedWgmma) -> None:
        """Compute the undefined bits of a product whenever it is computed."""
        self._undefined[_key(product.instruction)] = product

    def observe(self, instruction: Instruction, observer: Callable[[], None]) -> None:
        """Have ``observer`` called after the undefined bits of an instruction's product have been computed."""
        self._observers[_key(instruction)] = observer

    def _compute(self, issue: WgmmaIssue) -> None:
        key = _key(issue.product.instruction)
        if key in self._undefined:
            self._undefined[key].compute(issue)
            self._observers[key]()
        issue.product.compute(issue)
        issue.done = True

    @property
    def _own_rows(self) -> bool:
        """Whether each warp reads its own rows of A, as far as races are concerned."""
        return self._memory.races is not None and self._memory.races.rows_by_warp

    # -- instructions ------------------------------------------------------------------------------------------

    def fence(self, active: Active) -> None:
        """`wgmma.fence`: what the warps have done to registers lies before their next products."""
        warps = _warps(active)
        self._fenced[warps] = True
        for held in self._held.values():
            held.touched[:, warps] = False

    def committed(self, warps: Warps) -> NDArray[np.int64]:
        """Of each warp, how many groups it has committed."""
        return self._committed[warps]

    def issue(self, issue: WgmmaIssue) -> None:
        """`wgmma.mma_async`. Warps of one warpgroup may execute it together for different products of a loop."""
        groups, numbers = issue.warps // WARPS, self._issued[issue.warps]
        if len(np.unique(groups)) == len(set(zip(groups.tolist(), numbers.tolist(), strict=True))):
            self._issue(issue)
            return
        for number in np.unique(numbers):
            self._issue(issue.part(numbers == number))

    def _issue(self, issue: WgmmaIssue) -> None:
        held = issue.product.held
        self._together(issue)
        self._check_registers(held, issue)
        results, sources = issue.product.rows
        held.writing[np.ix_(results, issue.warps)] += 1
        held.reading[np.ix_(sources, issue.warps)] += 1
        held.written[np.ix_(results, issue.warps)] = True
        for row in results:
            held.writer[row] = issue.product.instruction
        races = self._memory.races
        for lanes, offsets in issue.product.reads(issue, own_rows=self._own_rows):  # checks them too
            if races is not None:
                races.operand_read(issue.product.instruction, lanes, offsets)
        if self._schedule == "earliest":
            self._compute(issue)
        self._issues.append(issue)
        self._finish_some()

    def commit(self, active: Active) -> None:
        """`wgmma.commit_group`."""
        self._committed[_warps(active)] += 1
        self._finish_some()

    def wait(self, active: Active, keep: int) -> None:
        """`wgmma.wait_group keep`: finish all but each warp's last ``keep`` groups."""
        waiting = np.zeros(len(self._committed), np.bool_)
        waiting[_warps(active)] = True
        self._finish_some()
        self._issues = self._split(
            lambda issue: waiting[issue.warps] & (issue.group < self._committed[issue.warps] - keep), self._retire
        )

    def end_wave(self) -> None:
        """Every thread has exited: no warp may have left the others of its warpgroup alone."""
        for issue, number, places in self._partial.values():
            raise self._alone(issue, number, places)

    # -- finishing ---------------------------------------------------------------------------------------------

    def _split(
        self, due: Callable[[WgmmaIssue], NDArray[np.bool_]], use: Callable[[WgmmaIssue], WgmmaIssue | None]
    ) -> list[WgmmaIssue]:
        """``use`` what is due; what is left, in order."""
        rest: list[WgmmaIssue] = []
        for issue in self._issues:
            mask = due(issue)
            if mask.any():
                used = use(issue if mask.all() else issue.part(mask))
                if used is not None:
                    rest.append(used)
            if not mask.all():
                rest.append(issue.part(~mask) if mask.any() else issue)
        return rest

    def _finish_some(self) -> None:
        if not self._schedule.startswith("random") or not self._issues:
            return
        chosen = np.repeat(self._random.random(-(-len(self._committed) // WARPS)) < 0.25, WARPS)
        self._issues = self._split(lambda issue: chosen[issue.warps], self._done)

    def _done(self, issue: WgmmaIssue) -> WgmmaIssue:
        if not issue.done:
            self._compute(issue)
        return issue

    def _retire(self, issue: WgmmaIssue) -> None:
        self._done(issue)
        results, sources = issue.product.rows
        held = issue.product.held
        held.writing[np.ix_(results, issue.warps)] -= 1
        held.reading[np.ix_(sources, issue.warps)] -= 1
        if self._memory.races is not None:
            self._order(self._memory.races, issue)

    def _order(self, races: RaceChecker, issue: WgmmaIssue) -> None:
        """The warpgroup's reads lie behind every lane that has waited, whichever warp of it waited first."""
        leading = issue.leading()
        leading = leading.part(np.array([warp // WARPS not in issue.over for warp in leading.warps.tolist()]))
        if len(leading.warps):
            # As if by every warp that reads: their reads are over for whoever has waited.
            readers = range(WARPS if self._own_rows else 1)
            for place in readers:
                reading = replace(leading, warps=leading.warps + place)
                for lanes, offsets in issue.product.reads(reading, own_rows=self._own_rows):
                    races.operand_waited(issue.product.instruction, lanes, offsets)
            for warp in leading.warps.tolist():
                issue.over[warp // WARPS] = races.union(races.past((warp + place) * WARP) for place in readers)
        warps = np.sort(issue.warps)
        lanes = (warps[:, None] * WARP + np.arange(WARP)).ravel()
        groups, first = np.unique(warps // WARPS, return_index=True)
        for group, start, end in zip(groups.tolist(), first.tolist(), [*first[1:].tolist(), len(warps)], strict=True):
            races.acquire(lanes[start * WARP : end * WARP], issue.over[group])

    # -- checks ------------------------------------------------------------------------------------------------

    def _together(self, issue: WgmmaIssue) -> None:
        """The four warps of a warpgroup execute the same products in the same order."""
        numbers = self._issued[issue.warps]
        self._issued[issue.warps] += 1
        groups = issue.warps // WARPS
        if len(groups) % WARPS == 0 and (groups.reshape(-1, WARPS) == groups[::WARPS, None]).all():
            same = (numbers.reshape(-1, WARPS) == numbers[::WARPS, None]).all()
            if same and not self._partial:
                self._agree(issue)
                return
        for i in range(len(groups)):
            key, place = (int(groups[i]), int(numbers[i])), int(issue.warps[i] % WARPS)
            found = self._partial.get(key)
            if found is None:
                self._partial[key] = (issue, i, {place})
                continue
            other, number, places = found
            places.add(place)
            if other.product is not issue.product:
                raise self._alone(other, number, places - {place}, issue)
            self._compare(issue, i, other, number)
            if len(places) == WARPS:
                del self._partial[key]

    def _agree(self, issue: WgmmaIssue) -> None:
        for words in (issue.a, issue.b):
            if words is None:
                continue
            differs = np.flatnonzero(words != np.repeat(words[::WARPS], WARPS))
            if len(differs):
                self._compare(issue, int(differs[0]), issue, int(differs[0]) // WARPS * WARPS)

    def _compare(self, issue: WgmmaIssue, i: int, other: WgmmaIssue, number: int) -> None:
        for words, others, name in ((issue.a, other.a, "A"), (issue.b, other.b, "B")):
            if words is not None and others is not None and words[i] != others[number]:
                instruction = issue.product.instruction
                raise DivergentCollective(
                    f"{instruction.text}: {self._thread(issue.warps[i])} gives {int(words[i]):#x} as descriptor of "
                    f"{name}, {self._thread(other.warps[number])} of the same warpgroup {int(others[number]):#x}",
                    kernel=self._memory.kernel,
                    location=instruction.location,
                )

    def _alone(
        self, issue: WgmmaIssue, number: int, places: set[int], other: WgmmaIssue | None = None
    ) -> DivergentCollective:
        instruction = issue.product.instruction
        absent = [str(place) for place in range(WARPS) if place not in places]
        did = "never execute it"
        if other is not None:
            did = f"execute {other.product.instruction.text} at {other.product.instruction.location} in its place"
        return DivergentCollective(
            f"{instruction.text}: {self._thread(issue.warps[number])} executes it, but of its warpgroup "
            f"warp{'s' * (len(absent) > 1)} {', '.join(absent)} {did}; all four must",
            kernel=self._memory.kernel,
            location=instruction.location,
        )

    def _check_registers(self, held: WgmmaRegisters, issue: WgmmaIssue) -> None:
        product = issue.product
        instruction, (results, sources) = product.instruction, product.rows
        kernel, location, report = self._memory.kernel, instruction.location, self._memory.findings.report
        unfenced = ~self._fenced[issue.warps]
        if unfenced.any():
            thread = self._thread(issue.warps[np.argmax(unfenced)])
            report(DataRace(
                f"{instruction.text}: {thread} has not executed wgmma.fence; the first product needs it",
                kernel=kernel, location=location, fix="execute wgmma.fence before the first wgmma",
            ))  # fmt: skip
        both = np.concatenate([results, sources])
        touched = held.touched[np.ix_(both, issue.warps)]
        if touched.any():
            row, warp = (int(i) for i in np.argwhere(touched)[0])
            toucher = held.toucher[both[row]]
            assert toucher is not None
            report(DataRace(
                f"{instruction.text}: {self._thread(issue.warps[warp])} uses register {_name(held, both[row])}, which "
                f"{toucher.text} accessed at {toucher.location}, and no wgmma.fence stands between the two",
                kernel=kernel, location=location, kind="write-write", first=toucher.location,
                missing="no wgmma.fence stands between the two", fix="execute wgmma.fence before the wgmma",
            ))  # fmt: skip
        busy = held.reading[np.ix_(results, issue.warps)] > 0
        self._check_busy(held, issue, results, busy, "is A of a product that nobody has waited for")
        for row in results:
            other = held.writer[row]
            if other is None or other is instruction or other.modifiers == instruction.modifiers:
                continue
            busy = held.writing[row : row + 1, issue.warps] > 0
            self._check_busy(held, issue, np.array([row]), busy, "is D of an unfinished product of another shape")
        busy = held.writing[np.ix_(sources, issue.warps)] > 0
        self._check_busy(held, issue, sources, busy, "is D of a product that nobody has waited for")
        missing = ~held.written[np.ix_(results, issue.warps)] & issue.adds
        if missing.any() and self._memory.check_uninitialised:
            row, warp = (int(i) for i in np.argwhere(missing)[0])
            report(UninitializedRead(
                f"{instruction.text}: {self._thread(issue.warps[warp])} adds register {_name(held, results[row])}, "
                "which nothing has written; scale-d is true",
                kernel=kernel, location=location, fix="pass scale-d = 0 to the first wgmma, or zero the registers",
            ))  # fmt: skip

    def _check_busy(
        self, held: WgmmaRegisters, issue: WgmmaIssue, rows: Rows, busy: NDArray[np.bool_], what: str
    ) -> None:
        if not busy.any():
            return
        row, warp = (int(i) for i in np.argwhere(busy)[0])
        error = self._in_flight(
            held,
            int(rows[row]),
            issue.product.instruction,
            int(issue.warps[warp]) * WARP,
            f"uses a register that {what}",
        )
        self._memory.findings.report(error)

    def _in_flight(self, held: WgmmaRegisters, row: int, instruction: Instruction, lane: int, does: str) -> DataRace:
        warp = lane // WARP
        for issue in self._issues:
            if issue.product.held is held and warp in issue.warps and row in np.concatenate(issue.product.rows):
                other = issue.product.instruction
                break
        return DataRace(
            f"{instruction.text}: {self._memory.thread(lane)} {does}: {_name(held, row)}, of {other.text} at "
            f"{other.location}; wgmma.wait_group comes first, behind a wgmma.commit_group",
            kernel=self._memory.kernel,
            location=instruction.location,
            kind="write-read",
            first=other.location,
            missing="nobody has waited for the product",
            fix="execute wgmma.commit_group and wgmma.wait_group before the access",
        )

    def _thread(self, warp: np.intp) -> str:
        return self._memory.thread(int(warp) * WARP)

    # -- everybody else ----------------------------------------------------------------------------------------

    def watch(self, registers: RegisterFile, steps: list[ProgramStep]) -> None:
        """Make the steps of one function report what they do to registers of unfinished products.

        Guards must not have been folded into ``run`` yet.
        """
        held = self._held.get(id(registers))
        if held is None:
            return
        held.allocate(len(self._committed))
        given = {name for step in steps if step.run is None for name in step.writes}
        held.given = [row for name, row in held.row.items() if name in given]
        for step in steps:
            instruction = step.instruction
            if step.run is None or instruction is None or instruction.opcode == "wgmma":
                continue
            reads = [held.row[name] for name in dict.fromkeys(step.reads) if name in held.row]
            writes = [held.row[name] for name in dict.fromkeys(step.writes) if name in held.row]
            if reads or writes:
                step.run = self._watched(held, step.run, instruction, reads, writes)

    def _watched(
        self,
        held: WgmmaRegisters,
        run: Callable[[Active], None],
        instruction: Instruction,
        reads: list[int],
        writes: list[int],
    ) -> Callable[[Active], None]:
        both = list(dict.fromkeys([*reads, *writes]))

        def watched(active: Active) -> None:
            warps = _warps(active)
            if self._issues:
                for row in both:
                    busy = held.writing[row, warps] > 0
                    if row in writes:
                        busy |= held.reading[row, warps] > 0
                    if busy.any():
                        self._report(held, row, instruction, active, busy, row in writes)
            run(active)
            for row in both:
                held.touched[row, warps] = True
                held.toucher[row] = instruction
            for row in writes:
                held.written[row, warps] = True

        return watched

    def _report(
        self,
        held: WgmmaRegisters,
        row: int,
        instruction: Instruction,
        active: Active,
        busy: NDArray[np.bool_],
        writes: bool,
    ) -> None:
        warps = np.unique(active.lanes // WARP)
        lane = int(active.lanes[np.argmax(active.lanes // WARP == warps[np.argmax(busy)])])
        does = "writes" if writes else "reads"
        error = self._in_flight(
            held, row, instruction, lane, f"{does} a register of a product that it has not waited for"
        )
        self._memory.findings.report(error)


def _key(instruction: Instruction) -> tuple[int, str]:
    return instruction.location.ptx_line, instruction.text


def _name(held: WgmmaRegisters, row: int | np.intp) -> str:
    return next(name for name, number in held.row.items() if number == row)


def _warps(active: Active) -> slice | Warps:
    index = active.index
    if isinstance(index, slice):
        return slice(index.start // WARP, (index.stop - 1) // WARP + 1)
    return np.unique(index // WARP)
