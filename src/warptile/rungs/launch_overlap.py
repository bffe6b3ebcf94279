"""Launches that start before the one before them has ended (programmatic dependent launch), of kernels with many CTAs
on an SM.

CTAs of the next launch go where there is room. While this launch has CTAs on some SMs and none on others, or fewer,
there is more room on those: two CTAs of the next launch then share an SM, and other SMs have none. On an H200 that took
as much as 3 us where each SM had one CTA, and nothing to speak of where each had many (2026-11-30, no record). So the
next launch may start early where CTAs are many, or where shared memory is taken to keep more than its share of them
from an SM; else it starts when the last CTA of this one ends, which still saves some time.
"""

from __future__ import annotations

from dataclasses import replace

from warptile.device import DeviceLimits
from warptile.rungs.kernel_spec import KernelSpec
from warptile.rungs.legality import ceil_div
from warptile.rungs.tensor_tiles import WARP_LANES

MANY, MANY_WARPS = 2, 12
"""CTAs and warps for each SM from which the next launch may start early."""

MOST = 16
"""CTAs for each SM beyond which what overlapping saves is little beside the time of a launch."""

ALLOCATED_BYTES = 128
"""Shared memory is given out in multiples of this."""

EARLY_US, AT_END_US = 0.8, 0.3
"""What overlapping saves of a launch that may start early, and of one that starts when this one's CTAs end, in the
mean of some 90 problems on an H200 (2026-11-30, no record)."""


def overlapping(one: KernelSpec, device: DeviceLimits) -> KernelSpec:
    """A launch that overlaps the one before it, where that pays. Its kernel waits for that one by itself."""
    overlaps = device.overlaps_launches and one.ctas <= MOST * device.multiprocessors
    return replace(one, overlaps_previous=overlaps)


def lets_next_start(ctas: int, threads: int, sms: int) -> bool:
    """Whether CTAs with that many threads are so many that the next launch may start early."""
    return ctas >= MANY * sms and ctas * threads >= MANY_WARPS * WARP_LANES * sms


def spread(one: KernelSpec, device: DeviceLimits) -> KernelSpec:
    """A launch with so much shared memory that no SM has more than its share of CTAs. (Kernels that lean on L1 lose
    more than they gain.)"""
    per_sm, reserved = device.generation.shared_bytes_per_sm, device.generation.reserved_shared_bytes
    share = ceil_div(one.ctas, device.multiprocessors)
    fits_once_more = (per_sm // (share + 1) - reserved) // ALLOCATED_BYTES * ALLOCATED_BYTES
    too_much_for_more = fits_once_more + ALLOCATED_BYTES
    if not one.overlaps_previous or share > MOST or too_much_for_more + reserved > per_sm // share:
        return one
    return replace(one, dynamic_shared_bytes=max(one.dynamic_shared_bytes, too_much_for_more))


def saved_us(ctas: int, threads: int, sms: int, *, spreads: bool = False) -> float:
    """Microseconds that a launch is shorter than one that overlaps no other."""
    if ctas > MOST * sms:
        return 0.0
    return EARLY_US if spreads or lets_next_start(ctas, threads, sms) else AT_END_US
