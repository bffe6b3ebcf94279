"""A user's kernel on a GPU: on arrays in its memory in place, on host arrays through copies there and back."""

from __future__ import annotations

from warptile.codegen.nvrtc import CompiledKernel
from warptile.gpu import driver, loader, staging
from warptile.launch.spec import LaunchSpec
from warptile.user_kernels.array_memory import DEVICE_ALIGNMENT_BYTES, Region, Regions


class LoadedKernels:
    """One kernel on the GPUs that it was launched on."""

    def __init__(self, compiled: CompiledKernel) -> None:
        self._compiled = compiled
        self._loaded: dict[int, loader.LoadedKernel] = {}

    def launch(self, spec: LaunchSpec, regions: Regions, ordinal: int) -> None:
        """Launch on a GPU.

        Arrays in its memory: queued on the caller's current stream, without waiting. In host memory: finished when this
        returns.

        Raises:
            UnsupportedError, DeviceError: as `warptile.gpu.loader.load` and `LoadedKernel.launch`.
        """
        if ordinal not in self._loaded:
            self._loaded[ordinal] = loader.load(self._compiled, ordinal)
        kernel = self._loaded[ordinal]
        with driver.on_device(ordinal):
            if any(region.device is not None for region in regions.all):
                pointers = {region.name: region.low for region in regions.all}
                kernel.launch(spec, pointers, regions.stream)
                return
            spans, size_bytes = _spans(regions.all)
            with staging.area(ordinal) as area:
                device = area.copy_in([region.low for region in regions.all], spans, size_bytes)
                pointers = {region.name: device + span.start for region, span in zip(regions.all, spans, strict=True)}
                kernel.launch(spec, pointers, area.stream)
                for region, span in zip(regions.all, spans, strict=True):
                    if not region.read_only:
                        area.copy_out(region.low, span, size_bytes)
                driver.synchronize_stream(area.stream)


def _spans(regions: list[Region]) -> tuple[list[staging.Span], int]:
    """Where host memory lies in a staging area, each as far behind a multiple of 256 as in its own allocation."""
    spans, top = [], 0
    for region in regions:
        spans.append(staging.Span(top + region.lead, region.size_bytes, 0))
        top += -(-(region.lead + region.size_bytes) // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
    return spans, max(top, 1)
