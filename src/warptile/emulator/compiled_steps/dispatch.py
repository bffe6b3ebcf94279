"""The loop that executes records one after the other.

It is the compiled half of `Scheduler._execute`: it counts steps and executed warps, takes branches on which all lanes
agree, and stops where others wait. Elementwise instructions that follow each other are executed for `CHUNK` lanes at a
time, whose registers fit into the caches of a core.
"""

from __future__ import annotations

from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps import step_records as r
from warptile.emulator.compiled_steps.access_counts import at
from warptile.emulator.compiled_steps.word_code import WordFunction, call, read_u8, write_64

CHUNK = 1024
"""Lanes for which a run of elementwise instructions is executed before the next ones get their turn."""


def run(state: int) -> int:
    """Execute records as a state says (`step_records`); why it ended."""
    position, steps, lowest, until = at(state, r.POSITION), at(state, r.STEPS), at(state, r.LOWEST), at(state, r.UNTIL)
    first, count, lanes, warps = at(state, r.FIRST), at(state, r.COUNT), at(state, r.LANES), at(state, r.WARPS)
    latest, records, memory = at(state, r.LATEST), at(state, r.RECORDS), at(state, r.MEMORY_STATE)
    counts, distance = at(state, r.COUNTS), at(state, r.COUNTS_BYTES)
    runs, guarded, guarded_runs = at(state, r.RUNS), at(state, r.GUARDED_LANES), at(state, r.GUARDED_RUNS)
    run_count = _runs(first, count, lanes, runs)
    why = r.MET
    while position < lowest or steps < until:
        record = at(records, position)
        if record == 0:
            why = r.INTERPRET
            break
        kind = at(record, r.KIND)
        length = at(record, r.RUN)
        if length > 0:
            length = 1 if until != 0 else min(length, lowest - position)
            for each in range(position, position + length):
                _tally(counts + distance * each, warps)
            _elementwise(records, position, length, runs, run_count)
            position += length
            steps += length
            continue
        taken, taken_lanes = count, lanes
        if at(record, r.GUARD):
            taken = _holding(at(record, r.GUARD), at(record, r.NEGATED), first, count, lanes, guarded)
            if taken != count:
                taken_lanes = guarded
        if kind == r.BRANCH:
            if taken != 0 and taken != count:
                why = r.INTERPRET
                break
            target = at(record, r.TARGET) if taken else position + 1
            if target <= position and steps + 1 > latest:
                why = r.INTERPRET
                break
            _tally(counts + distance * position, warps)
            steps += 1
            position = target
            continue
        if kind == r.COLLECTIVE and (taken != count or at(state, r.WAITING)):
            why = r.INTERPRET
            break
        if taken != 0:
            if kind == r.ELEMENTWISE:
                if taken == count:
                    _elementwise(records, position, 1, runs, run_count)
                else:
                    _elementwise(records, position, 1, guarded_runs, _runs(0, taken, guarded, guarded_runs))
            elif call(at(record, r.FUNCTION), record, first, taken, taken_lanes, memory):
                lacks = at(memory, m.MISSING) or at(memory, m.UNTOUCHED)
                why = r.INTERPRET if kind == r.COLLECTIVE or (kind == r.ATOMIC and not lacks) else r.REFUSED
                break
            elif kind >= r.STORING:
                write_64(state + 8 * r.EFFECT, steps + 1)
        _tally(counts + distance * position, warps)
        steps += 1
        position += 1
    write_64(state + 8 * r.POSITION, position)
    write_64(state + 8 * r.STEPS, steps)
    return why


def _tally(counts: int, warps: int) -> int:
    """Count the warps that execute an instruction."""
    write_64(counts, at(counts, 0) + warps)
    return 0


def _runs(first: int, count: int, lanes: int, runs: int) -> int:
    """Note the first lane and the length of each run of consecutive lanes; how many runs they are."""
    if lanes == 0:
        write_64(runs, first)
        write_64(runs + 8, count)
        return 1
    found, start = 0, 0
    while start < count:
        lane = at(lanes, start)
        end = start + 1
        while end < count and at(lanes, end) == lane + end - start:
            end += 1
        write_64(runs + 16 * found, lane)
        write_64(runs + 16 * found + 8, end - start)
        found += 1
        start = end
    return found


def _elementwise(records: int, position: int, length: int, runs: int, run_count: int) -> int:
    """Execute some elementwise instructions for runs of lanes, chunk by chunk."""
    for number in range(run_count):
        lane, end = at(runs, 2 * number), at(runs, 2 * number) + at(runs, 2 * number + 1)
        while lane < end:
            here = end - lane if length == 1 else min(CHUNK, end - lane)
            for each in range(position, position + length):
                record = at(records, each)
                while record:
                    call(at(record, r.FUNCTION), record, lane, here)
                    record = at(record, r.NEXT)
            lane += here
    return 0


def _holding(predicate: int, negated: int, first: int, count: int, lanes: int, guarded: int) -> int:
    """Note the lanes for which a guard holds; how many they are."""
    found = 0
    for i in range(count):
        lane = first + i if lanes == 0 else at(lanes, i)
        write_64(guarded + 8 * found, lane)
        found += read_u8(predicate + lane) ^ negated
    return found


FUNCTIONS: tuple[WordFunction, ...] = (run, _tally, _runs, _elementwise, _holding)
