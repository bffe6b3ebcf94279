"""The SM clock under the power limit."""

import msgspec
import pytest

from warptile.expected.clock import share_of_boost
from warptile.expected.time_constants import shipped

CONSTANTS = msgspec.structs.replace(shipped().constants, power_w=700.0, idle_w=100.0)


def test_power_at_the_limit_leaves_the_boost_clock():
    assert share_of_boost(600.0 * 1e6, 1.0, CONSTANTS) == 1.0
    assert share_of_boost(1.0, 1e-3, CONSTANTS) == 1.0


def test_power_falls_with_the_cube_of_the_clock():
    # Eight times the power that the limit leaves beside idling: half the clock has an eighth of it.
    assert share_of_boost(8 * 600.0 * 1e6, 1.0, CONSTANTS) == pytest.approx(0.5)


def test_what_takes_no_time_has_the_boost_clock():
    assert share_of_boost(1e6, 0.0, CONSTANTS) == 1.0
