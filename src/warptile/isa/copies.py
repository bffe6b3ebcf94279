"""Bulk and tensor copies (TMA) as data. PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy".

A bulk copy moves bytes that follow each other, a tensor copy a box of a tensor that a *tensor map* describes
(`warptile.launch.TensorMap`). Either is started by one thread and done by a unit of its own, through the async proxy.
"""

from __future__ import annotations

from warptile.isa.forms import Form

_BULK = "size and both addresses multiples of 16 bytes"
_BOX = (
    "up to 256 elements a dimension; at a multiple of 128 bytes in shared memory; innermost coordinates at multiples "
    "of 16 bytes"
)
_COORDINATES = {rank: ", ".join(["<x>"] * rank) for rank in range(1, 6)}
_ON_BARRIER = "mbarrier::complete_tx::bytes"


def _bulk(name: str, does: str, limits: str, example: str, since: str = "sm_90") -> Form:
    return Form(name, "bulk copy", does, limits, example, since)


BULK = (
    _bulk(
        "cp.async.bulk.shared::cluster.global",
        "global to shared memory; brings its bytes to an mbarrier",
        _BULK,
        f"cp.async.bulk.shared::cluster.global.{_ON_BARRIER} [<shared>], [<global>], <size>, [<bar>];",
    ),
    _bulk(
        "cp.async.bulk.shared::cluster.global.multicast::cluster",
        "the same, to each block of the mask",
        _BULK,
        f"cp.async.bulk.shared::cluster.global.{_ON_BARRIER}.multicast::cluster "
        "[<shared>], [<global>], <size>, [<bar>], <mask>;",
    ),
    _bulk(
        "cp.async.bulk.shared::cluster.shared::cta",
        "to the shared memory of another block of the cluster",
        _BULK,
        f"cp.async.bulk.shared::cluster.shared::cta.{_ON_BARRIER} [<peer>], [<shared>], <size>, [<bar>];",
    ),
    _bulk(
        "cp.async.bulk.global.shared::cta",
        "shared to global memory; belongs to a bulk group",
        _BULK,
        "cp.async.bulk.global.shared::cta.bulk_group [<global>], [<shared>], <size>;",
    ),
    _bulk(
        "cp.async.bulk.prefetch.L2",
        "global memory into L2",
        _BULK,
        "cp.async.bulk.prefetch.L2.global [<global>], <size>;",
    ),
    _bulk(
        "cp.reduce.async.bulk.global.shared::cta",
        "adds (or min, max, and, or, xor, inc, dec) into global memory",
        f"{_BULK}; f16 and bf16 add with .noftz",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [<global>], [<shared>], <size>;",
    ),
    _bulk(
        "cp.reduce.async.bulk.shared::cluster.shared::cta",
        "reduces into another block's shared memory",
        f"{_BULK}; 32-bit integers, and adds of u64",
        f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_ON_BARRIER}.add.u32 "
        "[<peer>], [<shared>], <size>, [<bar>];",
    ),
    _bulk(
        "cp.async.bulk.commit_group",
        "what the thread has started since the last becomes a group",
        "one thread's own",
        "cp.async.bulk.commit_group;",
    ),
    _bulk(
        "cp.async.bulk.wait_group",
        "until all but the last N groups are over",
        "N is a constant",
        "cp.async.bulk.wait_group 0;",
    ),
    _bulk(
        "cp.async.bulk.wait_group.read",
        "until they have read shared memory",
        "N is a constant",
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
        "the same, to each block of the mask",
        _BOX,
        f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_ON_BARRIER}.multicast::cluster "
        "[<shared>], [<map>, {<x>, <x>}], [<bar>], <mask>;",
    ),
    _tensor(
        "cp.async.bulk.tensor.*d.shared::cluster.global.im2col",
        "windows of a convolution; three to five dimensions",
        "a map of its own kind (cuTensorMapEncodeIm2col)",
        f"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.{_ON_BARRIER} "
        "[<shared>], [<map>, {<x>, <x>, <x>}], [<bar>], {<mask>};",
    ),
    *(
        _tensor(
            f"cp.async.bulk.tensor.{rank}d.global.shared::cta",
            f"a box to a {rank}-D tensor; belongs to a bulk group",
            f"{_BOX}; coordinates from 0",
            f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group "
            f"[<map>, {{{_COORDINATES[rank]}}}], [<shared>];",
        )
        for rank in range(1, 6)
    ),
    _tensor(
        "cp.reduce.async.bulk.tensor.*d.global.shared::cta",
        "adds (or min, max, and, or, xor, inc, dec) a box",
        f"{_BOX}; the map's element type",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [<map>, {<x>, <x>}], [<shared>];",
    ),
    _tensor(
        "cp.async.bulk.prefetch.tensor.*d.L2",
        "a box into L2",
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
        "a tensor map into the cache of the unit that uses it",
        "a parameter, or in global memory; a multiple of 64 bytes",
        "prefetch.tensormap [<map>];",
        "sm_90",
    ),
    _map(
        "tensormap.replace.tile",
        "changes a field of a map in shared or global memory",
        "every field of the launch's maps; one thread",
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [<shared>], <word>;",
        "sm_90a",
    ),
    _map(
        "tensormap.cp_fenceproxy",
        "a map from shared to global memory, released to the copies' proxy",
        "128 bytes; a whole warp",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[<global>], [<shared>], 128;",
        "sm_90",
    ),
    _map(
        "fence.proxy.tensormap::generic.acquire",
        "copies behind it see a map that was changed",
        "128 bytes at its address",
        "fence.proxy.tensormap::generic.acquire.gpu [<global>], 128;",
        "sm_90",
    ),
)
"""Descriptions of tensors."""
