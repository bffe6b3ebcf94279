"""mbarriers, proxy fences, clusters, and register reallocation (setmaxnreg), as data.

PTX ISA, "Parallel Synchronization and Communication Instructions" and "Miscellaneous Instructions".
"""

from __future__ import annotations

from warptile.isa.forms import Form

_OBJECT = "8 bytes in the CTA's shared memory"


def _mbarrier(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "mbarrier", does, limits, example, since)


MBARRIER = (
    _mbarrier(
        "mbarrier.init",
        "initializes the number of arrivals that complete a phase",
        f"{_OBJECT}; 1 to 2^20 - 1",
        "mbarrier.init.shared::cta.b64 [<bar>], 128;",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.inval",
        "invalidates it, so that its memory can be reused",
        _OBJECT,
        "mbarrier.inval.shared::cta.b64 [<bar>];",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.arrive",
        "one arrival; returns the previous state",
        _OBJECT,
        "mbarrier.arrive.shared::cta.b64 <state>, [<bar>];",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.arrive.shared::cluster",
        "an arrival at another CTA's mbarrier",
        "an address from mapa; no state",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [<peer>];",
    ),
    _mbarrier(
        "mbarrier.arrive.expect_tx",
        "an arrival that also raises the phase's expected bytes",
        f"{_OBJECT}; up to 2^20 - 1 bytes",
        "mbarrier.arrive.expect_tx.shared::cta.b64 <state>, [<bar>], <size>;",
    ),
    _mbarrier(
        "mbarrier.expect_tx",
        "raises the phase's expected bytes",
        _OBJECT,
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [<bar>], <size>;",
    ),
    _mbarrier(
        "mbarrier.complete_tx",
        "counts bytes as completed, without a copy",
        _OBJECT,
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [<bar>], <size>;",
    ),
    _mbarrier(
        "mbarrier.arrive_drop",
        "an arrival, and one fewer expected from the next phase on",
        _OBJECT,
        "mbarrier.arrive_drop.shared::cta.b64 <state>, [<bar>];",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.test_wait",
        "tests whether the phase of a state has completed",
        "the current or the preceding phase",
        "mbarrier.test_wait.shared::cta.b64 q, [<bar>], <word>; selp.u32 <d>, 1, 0, q;",
        "sm_80",
    ),
    _mbarrier(
        "mbarrier.try_wait.parity",
        "the same by parity; potentially blocking",
        "the current or the preceding phase",
        "mbarrier.try_wait.parity.shared::cta.b64 q, [<bar>], <x>; selp.u32 <d>, 1, 0, q;",
    ),
    _mbarrier(
        "mbarrier.pending_count",
        "pending arrivals of a state",
        "a state of this CTA's mbarrier",
        "mbarrier.pending_count.b64 <d>, <word>;",
        "sm_80",
    ),
    _mbarrier(
        "cp.async.mbarrier.arrive",
        "an arrival once the thread's earlier cp.async copies have completed",
        ".noinc does not raise the pending count",
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
        "orders earlier generic-proxy accesses before later bulk copies and wgmma",
        "in the writing thread, before the barrier; one state space or all",
        "fence.proxy.async.shared::cta;",
    ),
    _fence(
        "fence.mbarrier_init",
        "makes mbarrier initialization visible to the cluster",
        "only .release.cluster",
        "fence.mbarrier_init.release.cluster;",
    ),
    _fence(
        "wgmma.fence",
        "orders earlier register and shared-memory accesses before later wgmma",
        "all warps of a warpgroup",
        _PRODUCT,
        "sm_90a",
        "WARPGROUP.ARRIVE",
    ),
    _fence(
        "wgmma.commit_group",
        "commits the wgmma since the last commit as a group; a flag on the last of them",
        "all warps of a warpgroup",
        _PRODUCT,
        "sm_90a",
        "HGMMA",
    ),
    _fence(
        "wgmma.wait_group",
        "waits until at most the last N groups are pending",
        "N is an immediate",
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
        "an arrival at the cluster barrier",
        ".relaxed orders no accesses",
        "barrier.cluster.arrive.aligned;",
    ),
    _cluster(
        "barrier.cluster.wait",
        "waits until all threads of the cluster have arrived",
        "after the thread's own arrival",
        "barrier.cluster.wait.aligned;",
    ),
    _cluster(
        "mapa",
        "maps a shared address of this CTA to another CTA of the cluster",
        "a rank within the cluster",
        "mapa.shared::cluster.u32 <d>, <shared>, <x>;",
    ),
    _cluster(
        "getctarank",
        "the rank of the CTA that owns a shared::cluster address",
        "an address from mapa",
        "getctarank.shared::cluster.u32 <d>, <peer>;",
    ),
    _cluster(
        "ld.shared::cluster",
        "a load from another CTA's shared memory",
        "that CTA must be running",
        "ld.shared::cluster.u32 <d>, [<peer>];",
    ),
    _cluster(
        "st.async",
        "an asynchronous store that completes its bytes on an mbarrier of the same CTA",
        "4, 8 or 16 bytes",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [<peer>], <x>, [<bar>];",
    ),
    _cluster(
        "red.async",
        "an asynchronous reduction that does the same",
        "32-bit integers, and add of u64",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [<peer>], <x>, [<bar>];",
    ),
)
"""Blocks that share their memory."""


def _warp(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "warp", does, limits, example, since)


WARP = (
    _warp(
        "setmaxnreg.inc",
        "takes registers from the CTA's pool; waits for them",
        "24 to 256, multiples of 8; all warps of a warpgroup",
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "sm_90a",
    ),
    _warp(
        "setmaxnreg.dec",
        "returns registers to the CTA's pool",
        "the same",
        "setmaxnreg.dec.sync.aligned.u32 24;",
        "sm_90a",
    ),
    _warp(
        "elect.sync",
        "elects one lane of the warp: a predicate",
        "a mask of participating lanes",
        "elect.sync _|q, 0xffffffff; selp.u32 <d>, 1, 0, q;",
    ),
    _warp(
        "stmatrix",
        "stores 8x8 matrices of 16-bit elements from fragments to shared memory",
        "16-byte aligned rows",
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [<shared>], {<x>, <x>, <x>, <x>};",
    ),
    _warp(
        "griddepcontrol.wait",
        "waits until the launches that this one depends on have completed",
        "",
        "griddepcontrol.wait;",
    ),
    _warp(
        "griddepcontrol.launch_dependents",
        "lets dependent launches start",
        "",
        "griddepcontrol.launch_dependents;",
    ),
)
"""What warps do as a whole."""
