"""A that is gathered from ranks while wgmma-final multiplies: the option GATHERED_A of that kernel.

Each rank's rows of A, a shard, are copied into A by another stream, behind which the same stream sets a flag. The
producer waits for the shards that a tile needs; tiles come in the order in which shards do, this rank's first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.wgmma import candidates
from warptile.rungs.wgmma.final import WGMMA_FINAL, illegal_on

SHARD_FLAGS = "shard flags"
"""Name of the memory with a 32-bit flag for each shard: zero until the shard's rows are in A."""

FLAG_BYTES = 4
"""Of one flag."""

_OFF = {"ALONG_N": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0}
"""Tunables that the option needs: whole tiles, row by row of A."""


@dataclass(frozen=True)
class Shards:
    """How the rows of A are divided.

    Attributes:
        count: shards, one for each rank; shard i is rows ``[i * rows, (i + 1) * rows)`` of A.
        rows: of a shard.
        first: the shard that is there first, with which the kernel begins: this rank's.
    """

    count: int
    rows: int
    first: int

    def __post_init__(self) -> None:
        assert self.rows > 0, self
        assert 0 <= self.first < self.count, self


def reason_against(problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
    """None where wgmma-final gathers A in ``config``, else the reason."""
    reason = WGMMA_FINAL.illegal(problem, config, device)
    if reason is not None:
        return reason
    for key, value in _OFF.items():
        if config[key] != value:
            return f"{key} is {config[key]}; with shards of A that arrive during the launch it is {value}"
    if problem.batch > 1 or problem.a.major != "row":
        return "A is gathered as one row-major matrix"
    if problem.a.alignment_bytes < MAX_ALIGNMENT_BYTES:
        return f"A is aligned to {problem.a.alignment_bytes} bytes; TMA reads rows of {MAX_ALIGNMENT_BYTES}"
    view = WGMMA_FINAL.resolve(problem, config, device).view
    return "B is misaligned, and repacked during the launch" if view.fused_repacks else None


def config_for(problem: Problem, device: DeviceLimits = REFERENCE) -> Config | None:
    """The configuration of least predicted time that can gather A, or None where none can."""
    ranked = candidates.ranked(problem, illegal_on(device), device)
    return next((config for config in ranked if reason_against(problem, config, device) is None), None)


def resolve(problem: Problem, shards: Shards, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
    """wgmma-final's launch with the option on; `SHARD_FLAGS` is one more operand of it."""
    plain = WGMMA_FINAL.resolve(problem, config, device)
    given: dict[str, Field] = {
        "flags": Pointer(SHARD_FLAGS), "shard_rows": Scalar("s32", shards.rows),
        "first_shard": Scalar("s32", shards.first),
    }  # fmt: skip
    instance = replace(plain.instance, values=(*plain.instance.values, ("GATHERED_A", True)))
    members = tuple((name, given.get(name, field)) for name, field in plain.params.members)
    return replace(plain, instance=instance, params=Params(members))
