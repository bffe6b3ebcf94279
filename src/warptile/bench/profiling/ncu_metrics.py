"""Nsight Compute metrics that are read for the suites, and the figures derived from them."""

from __future__ import annotations

import msgspec

from warptile.bench.protocol.measurements import ProblemKey

SECTOR_BYTES = 32
"""What caches move at once."""

TIME, CLOCK = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
HBM = "dram__bytes.sum.pct_of_peak_sustained_elapsed"
HBM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
L2 = "lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed"
L2_SECTORS, L2_HITS = "lts__t_sectors_srcunit_tex.sum", "lts__t_sectors_srcunit_tex_lookup_hit.sum"
L2_TO_SM = ("lts__t_sectors_srcunit_tex_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum")
"""Sectors that L2 reads for SMs, a multicast once; bytes that arrive at SMs, a multicast at each CTA."""
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"
ISSUE, INSTRUCTIONS = "smsp__issue_active.avg.pct_of_peak_sustained_elapsed", "smsp__inst_executed.sum"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
REGISTERS, STREAM = "launch__registers_per_thread", "launch__stream_id"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = ("barrier", "gmma", "long_scoreboard", "math_pipe_throttle", "mio_throttle", "short_scoreboard", "sleeping",
          "wait")  # fmt: skip
"""Reasons for which a warp of a tensor-core kernel waits: `mbarrier` waits are long scoreboards."""

METRICS = (
    TIME, CLOCK, TENSOR, HBM, *HBM_BYTES, L2, L2_SECTORS, L2_HITS, *L2_TO_SM, SHARED, ISSUE, INSTRUCTIONS, WARPS,
    *(STALL.format(reason) for reason in STALLS),
)  # fmt: skip
"""What is asked for, few, so that few passes do; REGISTERS and STREAM come with the launch."""

KEPT = frozenset((*METRICS, REGISTERS, STREAM, "launch__grid_size", "launch__block_size"))


class KernelCounters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kernel of a product: its name, and metrics by Nsight Compute's names."""

    name: str
    metrics: dict[str, float]


class ParticipantCounters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One participant of a row.

    Attributes:
        problem: what was computed.
        offset: elements from where memory is aligned to the beginning of each matrix.
        max_sms: the most SMs that it was given, or None for all.
        beside: the other product of the row, or None.
        who: the participant (`warptile.bench.protocol.row_result`).
        rung: its kernel, empty for the library's.
        config: its tunables.
        algorithm: the library's algorithm, or None.
        kernels: in the order of their launches, repacking passes included.
        failed: why there are none, or None.
    """

    problem: ProblemKey
    who: str
    offset: int = 0
    max_sms: int | None = None
    beside: ProblemKey | None = None
    rung: str = ""
    config: dict[str, int] = {}
    algorithm: str | None = None
    kernels: tuple[KernelCounters, ...] = ()
    failed: str | None = None

    @property
    def row(self) -> tuple[ProblemKey, int, int | None, ProblemKey | None]:
        """Which row of a suite it belongs to."""
        return self.problem, self.offset, self.max_sms, self.beside

    def total(self, *metrics: str) -> float | None:
        """The sum of some metrics over all kernels, or None where one has none of them."""
        each = [kernel.metrics.get(metric) for kernel in self.kernels for metric in metrics]
        known = [value for value in each if value is not None]
        return sum(known) if known and len(known) == len(each) else None

    def over_time(self, metric: str) -> float | None:
        """A metric that is a share or a rate, the mean over all kernels' time."""
        pairs = [(kernel.metrics.get(metric), kernel.metrics.get(TIME)) for kernel in self.kernels]
        known = [(value, time_ns) for value, time_ns in pairs if value is not None and time_ns is not None]
        if not known or len(known) < len(pairs):
            return None
        return sum(value * time_ns for value, time_ns in known) / sum(time_ns for _, time_ns in known)

    @property
    def longest(self) -> KernelCounters | None:
        """The kernel that took most of the time, or None."""
        return max(self.kernels, key=lambda kernel: kernel.metrics.get(TIME, 0.0), default=None)

    @property
    def stalls(self) -> dict[str, float]:
        """Warps of the longest kernel that wait at a time, per issued instruction, by reason, most first."""
        if self.longest is None:
            return {}
        found = {reason: self.longest.metrics.get(STALL.format(reason), 0.0) for reason in STALLS}
        return dict(sorted(found.items(), key=lambda each: -each[1]))
