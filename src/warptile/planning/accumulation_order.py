"""Which configurations of a kernel give results with the same bits.

An element of D is a sum along K, and a sum of floating-point numbers depends on the order of the additions. In
wgmma-final that order is the same whatever the tile: one wgmma after the other along K, each with the K extent of the
type, whichever warpgroup, CTA or schedule issues it; 8-bit floats with float32 accumulators are promoted at every 128
of K whatever the stage. An operand swap keeps it too: it exchanges the factors of each product. Splitting K among CTAs
(SPLITS, and the tiles that stream-K splits) changes the order.

`mma-unaligned` and `mma-specialized` do not split K and have one instruction each: every configuration adds in one
order.

The epilogue is the same everywhere: one multiplication, with a C one fused multiply-add, and one conversion
(kernels/tile/scale.cuh). Problems that ask for batch invariance have configurations of the first kind only
(`warptile.rungs.legality.keeps_order`).
"""

from __future__ import annotations

from warptile.planning.plan import Plan
from warptile.rungs.legality import ANY_ORDER
from warptile.rungs.rung import Rung
from warptile.rungs.wgmma.stream_k import PARTIAL_ACCUMULATORS

UNSPLIT = ("one CTA accumulates K of a tile",)
"""Zeros that fill the last stage behind K are accumulated as well, and change nothing: the adder of a tensor core never
returns -0, so that there is no sum whose sign they could change."""

IN_ONE_ORDER = ("mma-unaligned", "mma-specialized")
"""Rungs whose configurations all add in one order."""

OF_SPLITS = ("BM", "BN", "BK", "CONSUMERS", "SPLITS", "SWAP")
"""Tunables that decide which splits of K there are, and in which order they are reduced."""

NOT_OF_STREAM_K = ("STAGES",)
"""Tunables on which it does not depend which K tiles a CTA of a stream-K kernel accumulates."""


def is_known(rung: Rung) -> bool:
    """Whether anything is known of the order in which a rung's configurations add."""
    return rung.name == "wgmma-final" or rung.name in IN_ONE_ORDER


def same_bits(plan: Plan, other: Plan) -> bool:
    """Whether two plans of one problem give results with the same bits, whatever the operands hold.

    It says no where it is not known: of other rungs every configuration counts as different.
    """
    if plan.problem != other.problem or plan.rung is not other.rung:
        return False
    if plan.config == other.config:
        return True
    order = _order(plan)
    return order is not None and order == _order(other)


def _order(plan: Plan) -> tuple[object, ...] | None:
    """What the order of additions depends on; None where it is not known."""
    problem, config, kernel = plan.problem, plan.config, plan.kernel
    if not is_known(plan.rung):
        return None
    if plan.rung.name in IN_ONE_ORDER:
        return UNSPLIT
    if problem.accumulator.name in ANY_ORDER:
        return ANY_ORDER
    if config["SPLITS"] > 1:
        in_cluster = kernel.cluster[0] > config["CM"] * config["CN"]
        return (in_cluster, *(config[name] for name in OF_SPLITS))
    if config["STREAM"] and any(each.name == PARTIAL_ACCUMULATORS for each in kernel.workspaces):
        return tuple(value for name, value in config.items() if name not in NOT_OF_STREAM_K)
    return UNSPLIT
