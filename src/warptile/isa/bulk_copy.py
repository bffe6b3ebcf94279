"""Bulk and tensor copies (TMA) as data. PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy".

A bulk copy moves contiguous bytes, a tensor copy a box of a tensor that a *tensor map* describes
(`warptile.launch.tensor_map.TensorMap`). One thread starts either; TMA performs it through the async proxy.
"""

from __future__ import annotations

from warptile.isa.forms import Form

_BULK = "size and both addresses multiples of 16 bytes"
_BOX = (
    "up to 256 elements per dimension; 128-byte alignment in shared memory; innermost coordinates at multiples of "
    "16 bytes"
)
_COORDINATES = {rank: ", ".join(["<x>"] * rank) for rank in range(1, 6)}
_ON_BARRIER = "mbarrier::complete_tx::bytes"


def _bulk(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "bulk copy", does, limits, example, since)


BULK = (
    _bulk(
        "cp.async.bulk.shared::cluster.global",
        "global to shared memory; completes its bytes on an mbarrier",
        _BULK,
        f"cp.async.bulk.shared::cluster.global.{_ON_BARRIER} [<shared>], [<global>], <size>, [<bar>];",
    ),
    _bulk(
        "cp.async.bulk.shared::cluster.global.multicast::cluster",
        "the same, to each CTA of the mask",
        _BULK,
        f"cp.async.bulk.shared::cluster.global.{_ON_BARRIER}.multicast::cluster "
        "[<shared>], [<global>], <size>, [<bar>], <mask>;",
    ),
    _bulk(
        "cp.async.bulk.shared::cluster.shared::cta",
        "to the shared memory of another CTA of the cluster",
        _BULK,
        f"cp.async.bulk.shared::cluster.shared::cta.{_ON_BARRIER} [<peer>], [<shared>], <size>, [<bar>];",
    ),
    _bulk(
        "cp.async.bulk.global.shared::cta",
        "shared to global memory; completion by bulk group",
        _BULK,
        "cp.async.bulk.global.shared::cta.bulk_group [<global>], [<shared>], <size>;",
    ),
    _bulk(
        "cp.async.bulk.prefetch.L2",
        "prefetches global memory into L2",
        _BULK,
        "cp.async.bulk.prefetch.L2.global [<global>], <size>;",
    ),
    _bulk(
        "cp.reduce.async.bulk.global.shared::cta",
        "reduces (add, min, max, and, or, xor, inc, dec) into global memory",
        f"{_BULK}; f16 and bf16 add with .noftz",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [<global>], [<shared>], <size>;",
    ),
    _bulk(
        "cp.reduce.async.bulk.shared::cluster.shared::cta",
        "reduces into another CTA's shared memory",
        f"{_BULK}; 32-bit integers, and adds of u64",
        f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_ON_BARRIER}.add.u32 "
        "[<peer>], [<shared>], <size>, [<bar>];",
    ),
    _bulk(
        "cp.async.bulk.commit_group",
        "commits the thread's bulk operations since the last commit as a group",
        "of one thread",
        "cp.async.bulk.commit_group;",
    ),
    _bulk(
        "cp.async.bulk.wait_group",
        "waits until at most the last N groups are pending",
        "N is an immediate",
        "cp.async.bulk.wait_group 0;",
    ),
    _bulk(
        "cp.async.bulk.wait_group.read",
        "waits until their sources in shared memory have been read",
        "N is an immediate",
        "cp.async.bulk.wait_group.read 0;",
    ),
)
"""Bytes that follow each other, and the groups of all copies out of shared memory."""


def _tensor(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "tensor copy", does, limits, example, since)


TENSOR = (
    *(
        _tensor(
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global",
            f"a box of a {rank}-D tensor to shared memory",
            _BOX,
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.{_ON_BARRIER} "
            f"[<shared>], [<map>, {{{_COORDINATES[rank]}}}], [<bar>];",
        )
        for rank in range(1, 6)
    ),
    _tensor(
        "cp.async.bulk.tensor.*d.shared::cluster.global.multicast::cluster",
        "the same, to each CTA of the mask",
        _BOX,
        f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_ON_BARRIER}.multicast::cluster "
        "[<shared>], [<map>, {<x>, <x>}], [<bar>], <mask>;",
    ),
    _tensor(
        "cp.async.bulk.tensor.*d.shared::cluster.global.im2col",
        "windows of a convolution; three to five dimensions",
        "an im2col tensor map (cuTensorMapEncodeIm2col)",
        f"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.{_ON_BARRIER} "
        "[<shared>], [<map>, {<x>, <x>, <x>}], [<bar>], {<mask>};",
    ),
    *(
        _tensor(
            f"cp.async.bulk.tensor.{rank}d.global.shared::cta",
            f"a box to a {rank}-D tensor; completion by bulk group",
            f"{_BOX}; coordinates not negative",
            f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group "
            f"[<map>, {{{_COORDINATES[rank]}}}], [<shared>];",
        )
        for rank in range(1, 6)
    ),
    _tensor(
        "cp.reduce.async.bulk.tensor.*d.global.shared::cta",
        "reduces (add, min, max, and, or, xor, inc, dec) a box into the tensor",
        f"{_BOX}; the map's element type",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [<map>, {<x>, <x>}], [<shared>];",
    ),
    _tensor(
        "cp.async.bulk.prefetch.tensor.*d.L2",
        "prefetches a box into L2",
        _BOX,
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [<map>, {<x>, <x>}];",
    ),
)
"""Boxes of tensors."""


def _map(name: str, does: str, limits: str, example: str, since: str) -> Form:
    return Form(name, "tensor map", does, limits, example, since)


MAPS = (
    _map(
        "prefetch.tensormap",
        "prefetches a tensor map into TMA's descriptor cache",
        "a kernel parameter or global memory; 64-byte alignment",
        "prefetch.tensormap [<map>];",
        "sm_90",
    ),
    _map(
        "tensormap.replace.tile",
        "changes a field of a map in shared or global memory",
        "every field; one thread",
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [<shared>], <word>;",
        "sm_90a",
    ),
    _map(
        "tensormap.cp_fenceproxy",
        "copies a map from shared to global memory and releases it to the tensormap proxy",
        "128 bytes; a whole warp",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[<global>], [<shared>], 128;",
        "sm_90",
    ),
    _map(
        "fence.proxy.tensormap::generic.acquire",
        "later copies see the changed map",
        "size 128, the map's address",
        "fence.proxy.tensormap::generic.acquire.gpu [<global>], 128;",
        "sm_90",
    ),
)
"""Descriptions of tensors."""
