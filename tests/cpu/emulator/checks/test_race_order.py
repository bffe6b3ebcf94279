"""Compact clocks and histories against their definition: full vector clocks, and lists of all accesses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from covering import ALL, covering
from warptile.emulator.checks.access_history import COPYING_TO, PAGE, READING, WRITE, WRITING, AccessHistory
from warptile.emulator.checks.displaced_accesses import ANYWHERE, WEAK, WITHIN_CLUSTER, WITHIN_CTA
from warptile.emulator.checks.vector_clocks import VectorClocks

BLOCKS, PER_BLOCK = 3, 64
LANES = BLOCKS * PER_BLOCK


class Reference:
    """Every thread's vector clock of all threads, in numbers of events."""

    def __init__(self) -> None:
        self.events = np.zeros(LANES, dtype=np.int64)
        self.seen = np.zeros((LANES, LANES), dtype=np.int64)

    def released(self, lanes: np.ndarray) -> np.ndarray:
        known = self.seen[lanes].max(axis=0)
        known[lanes] = self.events[lanes]
        return known

    def acquire(self, lanes: np.ndarray, known: np.ndarray) -> None:
        self.seen[lanes] = np.maximum(self.seen[lanes], known)

    def join(self, lanes: np.ndarray) -> None:
        self.acquire(lanes, self.released(lanes))


@dataclass
class Both:
    """A random history of synchronisation, told to `VectorClocks` and to the reference."""

    rng: np.random.Generator
    cluster: int = 1

    def __post_init__(self) -> None:
        self.clocks = VectorClocks(LANES, PER_BLOCK, self.cluster)
        self.clocks.start_wave(6 * PER_BLOCK)  # not the first wave
        self.reference = Reference()
        self.messages: list[tuple[int, np.ndarray]] = []

    def step(self, kinds: str) -> None:
        rng, clocks, reference = self.rng, self.clocks, self.reference
        block = int(rng.integers(BLOCKS))
        inside = np.arange(PER_BLOCK) + block * PER_BLOCK
        some = np.sort(rng.choice(inside, int(rng.integers(1, PER_BLOCK + 1)), replace=False))
        match rng.choice(list(kinds)):
            case "b":
                clocks.join_ctas(np.array([block]))
                reference.join(inside)
            case "B":
                clocks.join_ctas(slice(None))
                for start in range(0, LANES, PER_BLOCK):
                    reference.join(np.arange(start, start + PER_BLOCK))
            case "g":  # the whole grid
                blocks = np.arange(LANES).reshape(BLOCKS, PER_BLOCK)
                known = np.max([reference.released(each) for each in blocks], axis=0)
                table = clocks.union([clocks.release(each) for each in blocks])
                clocks.known[:] = clocks.union([*np.unique(clocks.known).tolist(), table])
                reference.acquire(np.arange(LANES), known)
            case "w":
                warps = np.flatnonzero(rng.random(LANES // 32) < 0.5)
                clocks.join_warps(warps)
                for warp in warps:
                    reference.join(np.arange(32 * warp, 32 * warp + 32))
            case "p":  # lanes of a block, whole warps among them or not
                some = some if rng.random() < 0.5 else inside[:32]
                clocks.join(some)
                reference.join(some)
            case "r":
                some = some if rng.random() < 0.5 else some[:1]
                known = reference.released(some)
                self.messages.append((clocks.release(some), known))
            case "a":
                if self.messages:
                    table, known = self.messages[int(rng.integers(len(self.messages)))]
                    lane = int(rng.integers(LANES))
                    clocks.known[lane] = clocks.union([int(clocks.known[lane]), table])
                    reference.acquire(np.array([lane]), known)

    def ordered(self, thread: int, clock: int, lane: int) -> bool:
        history = AccessHistory(16, self.clocks)
        history.write(0)[:] = self.clocks.first_thread + thread + 1, clock, 0  # a write
        return history.access(np.array([0]), 16, np.array([lane]), READING, tag=0) is None


@pytest.mark.parametrize("kinds", ["bw", "bwp", "bBwprraaa", "praa", "wraa"])
def test_what_a_thread_knows_is_what_its_whole_vector_clock_says(kinds: str) -> None:
    rng = np.random.default_rng(len(kinds))
    both = Both(rng)
    events: list[tuple[int, int, int]] = []  # thread, clock, number of the event
    answers = set()
    for _ in range(400 if ALL else 200):
        thread = int(rng.integers(LANES))
        both.reference.events[thread] += 1
        events.append((thread, int(both.clocks.clock[thread]), int(both.reference.events[thread])))
        both.step(kinds)
        for _ in range(40):
            thread, clock, number = events[int(rng.integers(len(events)))]
            lane = int(rng.integers(LANES))
            if lane == thread:
                continue
            expected = bool(number <= both.reference.seen[lane, thread])
            assert both.ordered(thread, clock, lane) == expected
            answers.add((expected, lane // PER_BLOCK == thread // PER_BLOCK))
    assert len(answers) == (4 if "a" in kinds else 3)


@pytest.mark.parametrize(("kinds", "complete"), [("bbww", True), ("bBwprraaa", False)])
def test_the_last_accesses_stand_for_all_of_them(kinds: str, complete: bool) -> None:
    # Every report is a race; where only whole CTAs and whole warps synchronize, the first race is always found.
    rng = np.random.default_rng(7)
    reported = 0
    for _ in range(60):
        both = Both(rng)
        history = AccessHistory(64, both.clocks)
        done: list[list[tuple[int, int, bool]]] = [[] for _ in range(64)]  # thread, event, writes: of every byte
        for _ in range(200):
            if rng.random() < 0.4:
                both.step(kinds)
            size = int(rng.choice([1, 2, 4, 8, 16]))
            lane, writes = int(rng.integers(0, LANES)), bool(rng.random() < 0.2)
            offset = int(rng.integers(64 // size)) * size
            both.reference.events[lane] += 1
            race = any(  # with what has been entered, which is without races
                thread != lane and (wrote or writes) and event > both.reference.seen[lane, thread]
                for byte in done[offset : offset + size]
                for thread, event, wrote in byte
            )
            found = history.access(np.array([offset]), size, np.array([lane]), WRITING if writes else READING, tag=0)
            if found is not None:
                assert race
                reported += 1
                break
            if race:
                assert not complete
                break
            for byte in done[offset : offset + size]:
                byte.append((lane, int(both.reference.events[lane]), writes))
    assert reported > 20


def test_a_copy_is_nobodys_until_it_has_been_waited_for() -> None:
    clocks = VectorClocks(32, 32)
    history = AccessHistory(64, clocks)
    one, place = np.array([3]), np.array([16])
    assert history.access(place, 16, one, COPYING_TO, tag=8) is None
    assert history.access(place, 4, one, READING, tag=4) is not None
    clocks.join_ctas(slice(None))
    assert history.access(place + 12, 4, np.array([5]), READING, tag=4) is not None
    history.finish_copies(place, 16, one, tag=8)
    assert history.access(place, 4, one, READING, tag=4) is None
    assert history.access(place + 8, 4, np.array([5]), READING, tag=4) is not None
    clocks.join_ctas(slice(None))
    assert history.access(place + 8, 4, np.array([5]), READING, tag=4) is None


def test_places_are_as_short_as_the_shortest_access_to_their_page() -> None:
    clocks = VectorClocks(32, 32)
    history = AccessHistory(4 << PAGE, clocks)
    one, other, everywhere = np.array([3]), np.array([5]), np.arange(0, 4 << PAGE, 16)
    assert history.access(everywhere, 16, np.repeat(one, len(everywhere)), WRITING, tag=4) is None
    clocks.join_ctas(slice(None))
    second = 1 << PAGE
    assert history.access(np.array([second + 20]), 4, other, WRITING, tag=8) is None
    assert history.shifts.tolist() == [4, 2, 4, 4]
    assert history.access(np.array([second + 24]), 8, one, READING, tag=4) is None  # beside it, in the same 16 bytes
    found = history.access(np.array([0, second + 16]), 16, np.repeat(one, 2), READING, tag=4)
    assert found is not None
    assert found[:3] == (1, second + 20, WRITE)
    assert found[3].tolist() == [6, clocks.clock[5], 8]  # thread 5, counted from 1
    assert history.access(np.array([2 * second - 1]), 1, one, READING, tag=4) is None
    assert history.shifts.tolist() == [4, 0, 4, 4]
    assert history.access(np.array([second + 22]), 1, one, READING, tag=4) is not None  # what was known is kept


def test_pages_of_which_nothing_is_known_get_shorter_places_without_a_look_at_the_longer_ones() -> None:
    clocks = VectorClocks(32, 32)
    history = AccessHistory(4 << PAGE, clocks)
    one, other = np.array([3]), np.array([5])
    history.tables[-1].fill(-1)  # what would be handed on
    assert history.access(np.array([20]), 4, other, WRITING, tag=8) is None
    assert history.access(np.array([24]), 4, one, WRITING, tag=4) is None
    history.tables[-1].fill(0)
    assert history.shifts.tolist() == [2, 4, 4, 4]
    assert history.access(np.array([22]), 1, one, READING, tag=4) is not None  # of 4 bytes something is known
    third = 2 << PAGE
    assert history.access(np.array([third]), 16, other, WRITING, tag=8) is None
    assert history.access(np.array([third + 8]), 4, one, READING, tag=4) is not None  # and of 16
    assert history.shifts.tolist() == [0, 4, 2, 4]


@dataclass(frozen=True)
class Done:
    """An access of the reference; the event of an unfinished copy is none that anybody knows."""

    lane: int
    event: int
    writes: bool
    strength: int
    copy: int = 0

    def races(self, both: Both, lane: int, writes: bool, strength: int) -> bool:
        """Whether nothing orders it before an access of a lane, with which it conflicts."""
        if not (self.writes or writes) or (lane == self.lane and not self.copy):
            return False
        first = both.clocks.first_thread
        allies, threads = min(strength, self.strength), (first + lane, first + self.lane)
        size = {WEAK: 0, WITHIN_CTA: PER_BLOCK, WITHIN_CLUSTER: PER_BLOCK * both.cluster, ANYWHERE: 1 << 20}[allies]
        within_cta = allies == WITHIN_CTA
        if size and threads[0] // size == threads[1] // size and not (within_cta and self.copy):
            return False
        return bool(self.copy or self.event > both.reference.seen[lane, self.lane])


@pytest.mark.parametrize(
    ("kinds", "strengths", "within_cta"),
    covering(
        ["g", "bBwprraaag", "bwpg"],
        [(0.05, 0, 0, 0.95), (0.05, 0.01, 0.02, 0.92), (0.1, 0.01, 0.5, 0.39)],
        [False, True],
        pairs=[(0, 2), (1, 2)],
    ),
)
def test_each_write_is_kept_until_all_that_conflicts_with_it_conflicts_with_a_later_one(
    kinds: str, strengths: tuple[float, ...], within_cta: bool
) -> None:
    """Whatever strong accesses come between: a race with any write is found, and every report is a race."""
    rng = np.random.default_rng(11)
    reported = behind_others = ordered = 0
    for _ in range(100):
        both = Both(rng, cluster=3)
        history = AccessHistory(32, both.clocks, within_cta=within_cta)
        done: list[list[Done]] = [[] for _ in range(32)]  # of every byte
        for step in range(400):
            if rng.random() < 0.2:
                both.step(kinds)
            size = 16 if step < 200 or rng.random() < 0.9 else int(rng.choice([4, 8]))
            offset = int(rng.integers(32 // size)) * size
            strength = int(rng.choice(4, p=strengths))
            writes = strength == WEAK or bool(rng.random() < 0.9)
            if strength == WEAK and rng.random() < 0.7:
                both.step("g")  # mostly a weak access is ordered
            copies = strength == ANYWHERE and writes and bool(rng.random() < 0.05)
            lane = int(rng.integers(PER_BLOCK if within_cta else LANES))
            if done[offset] and rng.random() < (0.1 if strength else 0.5):
                lane = done[offset][-1].lane  # its own access is the last one
            both.reference.events[lane] += 1
            event = int(both.reference.events[lane])
            earlier = [each for byte in done[offset : offset + size] for each in byte]
            if within_cta and strength:
                strength = ANYWHERE
            races = [each for each in earlier if each.races(both, lane, writes, strength)]
            doing = COPYING_TO if copies else WRITING if writes else READING
            places, lanes = np.array([offset]), np.array([lane])
            found = history.access(places, size, lanes, doing, tag=4 * copies + strength)
            if found is not None:
                assert races
                thread = abs(int(found[3][0])) - 1 - both.clocks.first_thread
                assert any(each.lane == thread for each in races)
                reported += 1
                behind_others += any(each.writes for each in races) and done[offset][-1] not in races
                break
            assert not any(each.writes for each in races)
            if races:
                break
            ordered += strength == WEAK and len({each.lane for each in earlier}) > 4
            for byte in done[offset : offset + size]:
                byte.append(Done(lane, event, writes, strength, copies))
            if copies and rng.random() < 0.97:
                history.finish_copies(places, size, lanes, tag=4 + strength)
                both.reference.events[lane] += 1
                over = Done(lane, int(both.reference.events[lane]), writes, strength)
                for byte in done[offset : offset + size]:
                    byte[:] = [over if each.lane == lane and each.copy else each for each in byte]
    assert reported > 20
    assert behind_others > 5
    assert ordered > 5
