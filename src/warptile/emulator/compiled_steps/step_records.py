"""Records: what machine code is given of an instruction, as words of 64 bits."""

from __future__ import annotations

FUNCTION, KIND, TARGET, NEXT, RUN, GUARD, NEGATED, OPERANDS = range(8)
"""Words of a record: address of its function; its kind; of a branch, the position of its target; the address of the
next record of the same instruction, or 0; how many instructions from this one on are elementwise and unguarded; the
address of the predicate that guards the instruction, or 0, and whether it is negated; then its operands. Of loops over
lanes those are the written register and the sources: addresses of registers, or constants."""

ELEMENTWISE, BRANCH, COLLECTIVE, MEMORY, STORING, ATOMIC = range(6)
"""Kinds. Functions of ``MEMORY``, ``STORING`` and ``ATOMIC`` may refuse; the last two are effects that others may wait
for. ``COLLECTIVE`` is executed by whole warps together; its function says whether it is the interpreter's instead."""

(POSITION, STEPS, LOWEST, UNTIL, FIRST, COUNT, LANES, WARPS, LATEST, EFFECT, RECORDS, COUNTS, COUNTS_BYTES,
 MEMORY_STATE, WAITING, RUNS, GUARDED_LANES, GUARDED_RUNS, STATE_WORDS) = range(19)  # fmt: skip
"""Words of the state of a run. Given: the position; steps so far; the position at which others wait, and the count of
steps until which it may be passed; the first lane, how many, and the address of a list of them or 0; how many warps
they are; the count of steps beyond which no backward branch is taken; when a store was last executed; then addresses:
of the record of each position (0 where there is none), of the counts of executed warps and how far those are apart, and
of the state of memory; whether lanes wait somewhere for others of their warps; then addresses of room for runs of
consecutive lanes, for the lanes whose guard holds, and for their runs. What has changed is written back."""

INTERPRET, REFUSED, MET = range(3)
"""Why a run ended: at an instruction that is the interpreter's; at one that machine code has refused; at a position
where others wait."""
