"""The rule by which WARPTILE_AUTOTUNE=on replaces a planned configuration, on simulated samples."""

import random
from statistics import mean

import pytest

from warptile.runtime.trials import ENOUGH_QUEUED, LOOKS, MOST_TRIALS, Trial, Trials

REPEATED = 150


def uniform(chances):
    """What the host adds on an idle stream, as measured: up to 4 us more or less."""
    return chances.uniform(-4, 4)


def heavy(chances):
    """A right tail: some launches are interrupted."""
    return chances.gauss(0, 1) + (30 if chances.random() < 0.05 else 0)


def settled(times_us, noise, seed, drift=lambda launch: 0.0, queued=lambda launch: False):
    """Trials of configurations that take ``times_us``, and how many launches were timed."""
    chances, launches = random.Random(seed), 0
    found = Trials(None)
    found.tried = [Trial(None) for _ in times_us]
    found._random.seed(seed)
    while (number := found.next(range(len(times_us)), waiting=False)) is not None:
        launches += 1
        found.tried[number].launches += 1
        behind = queued(launches)
        elapsed_us = times_us[number] + (0 if behind else noise(chances)) + drift(launches)
        if found.tried[number].launches > 1:
            found.tried[number].take(max(elapsed_us, 0.1) * 1e-3, queued=behind)
    assert found.over
    assert launches <= MOST_TRIALS * (LOOKS[-1] + 1)
    return found, launches


def shares(times_us, noise, **options):
    """How often each configuration is settled on."""
    found = [settled(times_us, noise, seed, **options)[0].best for seed in range(REPEATED)]
    return [found.count(number) / REPEATED for number in range(len(times_us))]


@pytest.mark.parametrize("noise", [uniform, heavy])
@pytest.mark.parametrize("time_us", [6, 20, 60])
def test_noise_does_not_replace_the_planned_one(noise, time_us):
    assert shares([time_us] * MOST_TRIALS, noise)[0] >= 0.98


@pytest.mark.parametrize("noise", [uniform, heavy])
def test_slower_ones_never_replace_it(noise):
    assert shares([20, 21, 21, 22, 21.5, 20.7], noise)[0] >= 0.99


@pytest.mark.parametrize(("time_us", "noise"), [(22, uniform), (60, uniform), (25, heavy), (200, heavy)])
def test_a_tenth_less_is_found(time_us, noise):
    times = [time_us, time_us, 1.04 * time_us, 0.9 * time_us, time_us, 1.1 * time_us]
    assert shares(times, noise)[3] >= 0.97


def test_the_fastest_of_several_faster_ones_is_taken():
    found = shares([100, 90, 80, 95, 100, 100], heavy)
    assert found[2] >= 0.98


def test_gains_below_three_percent_or_a_microsecond_are_left():
    assert shares([200, 196, 200], heavy)[0] >= 0.98
    assert shares([8, 7.8, 8], heavy)[0] >= 0.98


def test_clear_cases_are_decided_early():
    equal = [settled([200] * MOST_TRIALS, heavy, seed) for seed in range(20)]
    assert mean(launches for _, launches in equal) < 80
    assert all(found.certain for found, _ in equal)
    faster = [settled([200, 180, 200, 190, 210, 220], heavy, seed) for seed in range(20)]
    assert mean(launches for _, launches in faster) < 100
    assert all(found.certain and found.best == 1 for found, _ in faster)


def test_drift_and_periods_of_the_program_are_nobodys_gain():
    """Clocks fall while configurations are tried, and every sixth call of the program is slow."""
    falling = shares([100] * MOST_TRIALS, heavy, drift=lambda launch: 0.05 * launch)
    assert falling[0] >= 0.98
    periodic = shares([100] * MOST_TRIALS, heavy, drift=lambda launch: 20 * (launch % MOST_TRIALS == 1))
    assert periodic[0] >= 0.98
    assert shares([100, 90, 100], heavy, drift=lambda launch: 0.05 * launch)[1] >= 0.97
    alternating = shares([100, 100], heavy, drift=lambda launch: 0.05 * launch + 5 * (launch % 2))
    assert alternating[0] >= 0.98


def test_samples_without_the_hosts_time_decide_where_there_are_enough():
    """A gain of 2.5 us is less than the host adds, but every second call finds the stream busy."""
    times = [60, 57.5, 60]
    found = [settled(times, lambda chances: chances.uniform(0, 30), seed, queued=lambda launch: launch % 2 == 0)
             for seed in range(40)]  # fmt: skip
    assert all(each.best == 1 for each, _ in found)


def test_samples_of_different_kinds_are_not_compared():
    found = Trials(None)
    found.tried = [Trial(None), Trial(None)]
    for _ in range(2 * ENOUGH_QUEUED):
        found.tried[0].take(0.030, queued=False)
        found.tried[1].take(0.020, queued=True)
        assert found._gains_ms(1) == []
    for number in range(1, ENOUGH_QUEUED + 1):
        found.tried[1].take(0.025, queued=False)
        assert found._gains_ms(1) == pytest.approx([0.005] * number)
    for number in range(ENOUGH_QUEUED):
        assert len(found._gains_ms(1)) == number + ENOUGH_QUEUED
        found.tried[0].take(0.022, queued=True)
    assert found._gains_ms(1) == pytest.approx([0.002] * ENOUGH_QUEUED), "these alone where there are enough"


def test_times_are_comparable_though_some_were_dropped_before_clocks_fell():
    found, _ = settled([20, 19.5, 18, 30], lambda chances: chances.uniform(-3, 3), 3, drift=lambda launch: launch / 10)
    assert len(found.tried[3].samples) < len(found.tried[1].samples)
    planned, *others = (found.time_ms(number) for number in found.measured)
    assert [each - planned for each in others] == pytest.approx([-0.5e-3, -2e-3, 10e-3], abs=1.2e-3)


def test_undecided_is_uncertain():
    uncertain = [settled([20, 19], uniform, seed)[0] for seed in range(30)]
    assert any(not each.certain for each in uncertain)
    assert all(each.round == LOOKS[-1] and each.best == 0 for each in uncertain if not each.certain)


def test_events_out_of_order_do_not_count():
    trial = Trial(None)
    trial.take(-1.0, queued=True)
    trial.take(0.5, queued=True)
    assert [each.elapsed_ms for each in trial.samples] == [0.5]


def test_nothing_is_decided_before_times_are_there():
    found = Trials(None)
    found.tried = [Trial(None), Trial(None)]
    for _ in range(2 * (1 + LOOKS[0])):
        assert found.next({0, 1}, waiting=True) is not None
    assert found.next({0, 1}, waiting=True) is None
    assert not found.over
