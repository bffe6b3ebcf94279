"""Rates of a GPU: measured where it is the reference, else scaled from it by SMs."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from warptile.arch import H200, Device
from warptile.device import DeviceLimits


@lru_cache(maxsize=64)
def rates_of(limits: DeviceLimits) -> Device:
    """What predictions for a device take as its rates.

    Only the reference GPU was measured. Another one has its tensor and CUDA-core rates and its path to L2 in proportion
    to its SMs, its own L2 size, and the reference's clock and DRAM bandwidth: an assumption that ranks configurations
    by waves and occupancy and says little of absolute times.
    """
    if limits.multiprocessors == H200.multiprocessors and limits.l2_bytes == H200.l2_bytes:
        return H200
    share = limits.multiprocessors / H200.multiprocessors

    def scaled(rates: dict[str, float]) -> dict[str, float]:
        return {name: rate * share for name, rate in rates.items()}

    return replace(
        H200,
        name=limits.name,
        arch=limits.arch,
        multiprocessors=limits.multiprocessors,
        l2_bytes=limits.l2_bytes,
        l2_bytes_per_s=H200.l2_bytes_per_s * share,
        fp32_tflops=H200.fp32_tflops * share,
        tensor_tflops=scaled(H200.tensor_tflops),
        wmma_tflops=scaled(H200.wmma_tflops),
        sparse_tflops=scaled(H200.sparse_tflops),
        wgmma_tflops=scaled(H200.wgmma_tflops),
    )
