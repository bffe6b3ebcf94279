"""Which launches are counted by Nsight Compute and looked at by compute-sanitizer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from warptile.bench.campaign.wgmma_checks import SANITIZED, SHAPE, mode_config
from warptile.bench.profiling.profile import LaunchRequest
from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.workloads import (
    BF16,
    F16_F32,
    F64,
    S8,
    SMALL_SHAPES,
    TF32,
    TypeGroup,
    default_config,
    groups_of,
    square,
    to_problem,
)
from warptile.device import usual as usual_device
from warptile.planning.plan import config_text
from warptile.rungs.rung import Rung

LARGER = 4096
"""What is added to a small problem's extents to find the configuration of a large one whose rows are aligned alike."""


def group_for(rung: Rung, arch: str) -> TypeGroup | None:
    """The group in which a rung is profiled: its first."""
    groups = groups_of(rung, arch)
    return groups[0] if groups else None


def _request(rung: Rung, key: ProblemKey, arch: str, *, beta: float = 0.0) -> list[LaunchRequest]:
    """A launch in the configuration of the small problem and in that of a large one whose rows are aligned alike."""
    problem = to_problem(key, with_c=beta != 0)
    large = to_problem(
        msgspec.structs.replace(key, m=key.m + LARGER, n=key.n + LARGER, k=key.k + LARGER), with_c=beta != 0
    )
    configs = [default_config(rung, each, arch) for each in (problem, large)]
    legal = {
        config_text(c): c for c in configs if c is not None and rung.illegal(problem, c, usual_device(arch)) is None
    }
    alpha = 1.0 if beta == 0 else 0.5
    return [LaunchRequest(rung.name, key, dict(config), alpha, beta) for config in legal.values()]


def profile_requests(rungs: Sequence[Rung], arch: str, shape: tuple[int, int, int]) -> list[LaunchRequest]:
    """Each rung on one problem of its first group."""
    grouped = [(rung, group_for(rung, arch)) for rung in rungs]
    return [
        request
        for rung, group in grouped
        if group is not None
        for request in _request(rung, _of_shape(rung, group, shape), arch)
    ]


def _of_shape(rung: Rung, group: TypeGroup, shape: tuple[int, int, int]) -> ProblemKey:
    """A rung's usual problem with other extents."""
    m, n, k = shape
    return msgspec.structs.replace(square(rung, group, m), m=m, n=n, k=k)


def sanitize_requests(rungs: Sequence[Rung], arch: str) -> list[LaunchRequest]:
    """Each rung on the small problems, once with a C; the mma family also on A and B that do not lie along K, the last
    rung of wgmma also in its modes."""
    requests = [request for shape in SMALL_SHAPES for request in profile_requests(rungs, arch, shape)]
    for rung in rungs:
        group = group_for(rung, arch)
        if group is not None:
            shape = SMALL_SHAPES[2] if rung.sparse else SMALL_SHAPES[1]
            requests += _request(rung, _of_shape(rung, group, shape), arch, beta=2.0)
        if rung.family == "mma" and not rung.sparse:
            for other in (F16_F32, TF32, F64, S8):  # each brings operands that lie along M and N in its own way
                requests += _request(rung, other.key(*SMALL_SHAPES[1], "row", "col"), arch)
        if rung.name == "wgmma-final":
            for grown, mode in SANITIZED:
                m, n, k = (extent + more for extent, more in zip(SHAPE, grown, strict=True))
                config = dict(mode_config(mode, BF16, 16))
                requests.append(LaunchRequest(rung.name, BF16.key(m, n, k, "col"), config))
    return sorted(requests, key=lambda request: [rung.name for rung in rungs].index(request.rung))
