"""mbarrier, proxy fences, clusters, and what warps do to each other's registers, as data.

PTX ISA, "Parallel Synchronization and Communication Instructions" and "Miscellaneous Instructions".
"""

from __future__ import annotations

from warptile.isa.forms import Form

_OBJECT = "8 bytes in the block's shared memory"


def _mbarrier(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "mbarrier", does, limits, example, since)


MBARRIER = (
    _mbarrier(
        "mbarrier.init",
        "a barrier whose phases end with so many arrivals",
        f"{_OBJECT}; 1 to 2^20 - 1",
        "mbarrier.init.shared::cta.b64 [<bar>], 128;",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.inval",
        "its memory is free for other use",
        _OBJECT,
        "mbarrier.inval.shared::cta.b64 [<bar>];",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.arrive",
        "one arrival; the state before it",
        _OBJECT,
        "mbarrier.arrive.shared::cta.b64 <state>, [<bar>];",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.arrive.shared::cluster",
        "an arrival at another block's",
        "an address of mapa; no state",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [<peer>];",
    ),
    _mbarrier(
        "mbarrier.arrive.expect_tx",
        "an arrival, and the phase waits for so many bytes more",
        f"{_OBJECT}; up to 2^20 - 1 bytes",
        "mbarrier.arrive.expect_tx.shared::cta.b64 <state>, [<bar>], <size>;",
    ),
    _mbarrier(
        "mbarrier.expect_tx",
        "the phase waits for so many bytes more",
        _OBJECT,
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [<bar>], <size>;",
    ),
    _mbarrier(
        "mbarrier.complete_tx",
        "so many bytes have come, without a copy",
        _OBJECT,
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [<bar>], <size>;",
    ),
    _mbarrier(
        "mbarrier.arrive_drop",
        "an arrival, and one fewer from the next phase on",
        _OBJECT,
        "mbarrier.arrive_drop.shared::cta.b64 <state>, [<bar>];",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.test_wait",
        "whether the phase of a state is over",
        "the current phase or the one before",
        "mbarrier.test_wait.shared::cta.b64 q, [<bar>], <word>; selp.u32 <d>, 1, 0, q;",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.try_wait.parity",
        "the same by parity; may wait for some time first",
        "the current phase or the one before",
        "mbarrier.try_wait.parity.shared::cta.b64 q, [<bar>], <x>; selp.u32 <d>, 1, 0, q;",
    ),
    _mbarrier(
        "mbarrier.pending_count",
        "arrivals that a state lacks",
        "a state of this block's",
        "mbarrier.pending_count.b64 <d>, <word>;",
        "sm_80",
    ),
    _mbarrier(
        "cp.async.mbarrier.arrive",
        "an arrival when the thread's cp.async copies so far are over",
        ".noinc leaves the count of arrivals as it is",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [<bar>];",
        "sm_80",
    ),
)
"""Barriers in shared memory."""


_PRODUCT = (
    "wgmma.fence.sync.aligned; .reg .f32 f0, f1, f2, f3; mov.f32 f0, 0f00000000; "
    "mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0; setp.eq.u32 q, <x>, 0; "
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, <word>, <word>, q, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; cvt.rzi.u32.f32 <d>, f0;"
)


def _fence(name: str, does: str, limits: str, example: str, since: str = "sm_90", own: str = "") -> Form:
    return Form(name, "fence", does, limits, example, since, own)


FENCES = (
    _fence(
        "fence.proxy.async",
        "plain accesses before it, and bulk copies and wgmma behind it",
        "in the thread that wrote, before the barrier; for one space or all",
        "fence.proxy.async.shared::cta;",
    ),
    _fence(
        "fence.mbarrier_init",
        "other blocks of the cluster may use what has been initialised",
        ".release.cluster alone",
        "fence.mbarrier_init.release.cluster;",
    ),
    _fence(
        "wgmma.fence",
        "registers and shared memory before it, and products behind it",
        "the warps of a warpgroup",
        _PRODUCT,
        "sm_90a",
        "WARPGROUP.ARRIVE",
    ),
    _fence(
        "wgmma.commit_group",
        "products since the last become a group: a mark on the last of them",
        "the warps of a warpgroup",
        _PRODUCT,
        "sm_90a",
        "HGMMA",
    ),
    _fence(
        "wgmma.wait_group",
        "until all but the last N groups are over",
        "N is a constant",
        _PRODUCT,
        "sm_90a",
        "WARPGROUP.DEPBAR",
    ),
)
"""Between plain accesses and what reads through the async proxy."""


def _cluster(name: str, does: str, limits: str, example: str) -> Form:
    return Form(name, "cluster", does, limits, example)


CLUSTER = (
    _cluster(
        "barrier.cluster.arrive",
        "an arrival at the barrier of all threads of the cluster",
        ".relaxed orders no access",
        "barrier.cluster.arrive.aligned;",
    ),
    _cluster(
        "barrier.cluster.wait",
        "until all have arrived",
        "behind an arrival of the thread",
        "barrier.cluster.wait.aligned;",
    ),
    _cluster(
        "mapa",
        "where a shared address of this block lies in another",
        "a rank below the cluster's blocks",
        "mapa.shared::cluster.u32 <d>, <shared>, <x>;",
    ),
    _cluster(
        "getctarank",
        "which block a shared::cluster address belongs to",
        "an address of mapa",
        "getctarank.shared::cluster.u32 <d>, <peer>;",
    ),
    _cluster(
        "ld.shared::cluster",
        "a load from another block's shared memory",
        "the block must be there",
        "ld.shared::cluster.u32 <d>, [<peer>];",
    ),
    _cluster(
        "st.async",
        "a store that brings its bytes to an mbarrier beside it",
        "4, 8 or 16 bytes; the same block's",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [<peer>], <x>, [<bar>];",
    ),
    _cluster(
        "red.async",
        "a reduction that does",
        "32-bit integers, and adds of u64; the same block's",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [<peer>], <x>, [<bar>];",
    ),
)
"""Blocks that share their memory."""


def _warp(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "warp", does, limits, example, since)


WARP = (
    _warp(
        "setmaxnreg.inc",
        "registers of the block's pool for this warp; waits for them",
        "24 to 256, multiples of 8; every warp of a warpgroup",
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "sm_90a",
    ),
    _warp(
        "setmaxnreg.dec",
        "registers of this warp for the pool",
        "the same",
        "setmaxnreg.dec.sync.aligned.u32 24;",
        "sm_90a",
    ),
    _warp(
        "elect.sync",
        "one lane of the warp: a predicate",
        "a mask of those that take part",
        "elect.sync _|q, 0xffffffff; selp.u32 <d>, 1, 0, q;",
    ),
    _warp(
        "stmatrix",
        "8 x 8 matrices of 16 bits from fragments to shared memory",
        "rows of 16 bytes at such addresses",
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [<shared>], {<x>, <x>, <x>, <x>};",
    ),
    _warp("griddepcontrol.wait", "until the launches that this one depends on are over", "", "griddepcontrol.wait;"),
    _warp(
        "griddepcontrol.launch_dependents",
        "those that depend on this one may start",
        "",
        "griddepcontrol.launch_dependents;",
    ),
)
"""What warps do as a whole."""
