"""The SM clock under the power limit.

A launch takes energy: for each operation, and for each byte by how far it moves. At the boost clock f0 that may be more
power than the limit allows. The GPU then lowers clock and voltage. With voltage in proportion to the clock, energy
falls with its square while time grows, so that power falls with its cube:

    (limit - idle) = (E / t) (f / f0)^3, for energy E and time t at the boost clock.

What is bound by DRAM, whose clock stays, is slowed down too: its time is a small part wherever power limits.
"""

from __future__ import annotations

from warptile.expected.time_constants import TimeConstants


def share_of_boost(energy_pj: float, time_us: float, constants: TimeConstants) -> float:
    """The SM clock over the boost clock; at most 1.

    Args:
        energy_pj: of the launch at the boost clock, in picojoules.
        time_us: that it takes there.
        constants: limit and idle power.
    """
    if time_us <= 0:
        return 1.0
    power_w = energy_pj * 1e-6 / time_us
    allowed_w = constants.power_w - constants.idle_w
    return 1.0 if power_w <= allowed_w else float((allowed_w / power_w) ** (1 / 3))
