"""Process groups of torch.distributed: by which name operators know them, and what is remembered of each."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from warptile.errors import ArgumentError, ArgumentTypeError

_EXAMPLE = "all_gather_matmul(a_shard, b, torch.distributed.group.WORLD)"


@dataclass
class Group:
    """A process group, and what its ranks have agreed on.

    Attributes:
        name: by which torch knows it.
        rank: of this process in it.
        size: how many ranks it has.
        handle: the process group, not kept alive.
        agreed: signatures of calls that all ranks have been seen to make alike, and what follows for them.
        gathers, scatters: buffers for gathered operands and for partials, by shape and type of a rank's part.
        sums: buffers for partials that all ranks add, by size.
        exchanges: how many times the ranks have compared their calls.
    """

    name: str
    rank: int
    size: int
    handle: weakref.ref[Any]
    agreed: dict[Any, bool] = field(default_factory=dict)
    gathers: dict[Any, Any] = field(default_factory=dict)
    scatters: dict[Any, Any] = field(default_factory=dict)
    sums: dict[int, Any] = field(default_factory=dict)
    exchanges: int = 0

    @property
    def process_group(self) -> Any:
        """The ``torch.distributed.ProcessGroup``."""
        return self.handle()

    @property
    def store(self) -> Any:
        """The key-value store by which the ranks of the group found each other."""
        return distributed_c10d._get_process_group_store(self.process_group)

    def timeout(self, device: torch.device) -> timedelta:
        """How long a collective on a device may take; where the group has no backend for it, on another one."""
        where = device if self.serves(device) else self.process_group._device_types[0]
        found: timedelta = self.process_group._get_backend(where).options._timeout
        return found

    def serves(self, device: torch.device) -> bool:
        """Whether the group has a backend for tensors on a device."""
        return any(each.type == device.type for each in self.process_group._device_types)


def name_of(group: Any) -> str:
    """Name of a process group, as operators take it.

    Args:
        group: a ``ProcessGroup``, its name, a ``DeviceMesh`` with one dimension, or None for all ranks.

    Raises:
        ArgumentTypeError: something else.
        ArgumentError: no group, a mesh with several dimensions, or a group without this rank.
    """
    if isinstance(group, str):
        return group
    if group is None:
        if not dist.is_initialized():
            raise ArgumentError(
                "group: torch.distributed is not initialized, so there are no ranks; call "
                "torch.distributed.init_process_group() first, in a program that torchrun starts"
            )
        group = dist.group.WORLD
    elif isinstance(group, dist.DeviceMesh):
        if group.ndim != 1:
            raise ArgumentError(
                f"group: got a DeviceMesh with {group.ndim} dimensions; a call has the ranks of one of them, such as "
                f"mesh['{(group.mesh_dim_names or ('tp',))[-1]}']"
            )
        group = group.get_group()
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError("group: this rank is not in it; only its members make the call")
    if not isinstance(group, dist.ProcessGroup):
        raise ArgumentTypeError(
            f"group: got {type(group).__name__}; it takes a torch.distributed.ProcessGroup, its name, or a DeviceMesh "
            f"with one dimension, such as {_EXAMPLE}"
        )
    name: str = group.group_name
    return name


def group_named(name: str) -> Group:
    """The group of a name, with what was remembered of it.

    Raises:
        ArgumentError: there is none.
    """
    known = _known.get(name)
    try:
        handle = distributed_c10d._resolve_process_group(name)
    except (RuntimeError, ValueError, KeyError):
        raise ArgumentError(
            f"group: there is no process group {name!r} in this process; give the group itself, such as {_EXAMPLE}"
        ) from None
    if known is None or known.handle() is not handle:  # torch gives names again after destroy_process_group
        known = _known[name] = Group(name, handle.rank(), handle.size(), weakref.ref(handle))
    return known


_known: dict[str, Group] = {}
"""Of this process, by name."""
