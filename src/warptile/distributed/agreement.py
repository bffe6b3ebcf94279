"""Before ranks send anything they compare what each of them was called with, once for each kind of call.

The comparison goes through the group's store (the one that the ranks found each other by), not through a collective:
it needs no GPU, waits no longer than the group's timeout, and disturbs no collective of a rank that is not there. Every
rank reads what all ranks gave, so all of them raise the same error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch

from warptile.distributed.process_groups import Group
from warptile.errors import ArgumentError, CommunicationError

Said = Mapping[str, Any]
"""What one rank was called with: names of arguments and their values, as JSON can hold them."""


@dataclass(frozen=True)
class RankCall:
    """A call of one rank.

    Attributes:
        name: of the function.
        said: what the rank gave.
        check: raises if calls with these values, one for each rank, do not go together.
        decide: what follows from them, the same on every rank.
    """

    name: str
    said: Said
    check: Callable[[Sequence[Said]], None]
    decide: Callable[[Sequence[Said]], bool] = lambda given: False


def agree(group: Group, signature: Any, device: torch.device, call: Callable[[], RankCall]) -> bool:
    """What all ranks have decided, when they are known to have made a call that fits this one.

    Args:
        group: whose ranks.
        signature: of the call: hashable, and equal only for calls that are checked alike. One that was agreed on
            before costs a look-up.
        device: of the tensors; its timeout counts.
        call: makes what is compared.

    Raises:
        CommunicationError: a rank does not answer within the group's timeout.
        WarptileError: calls that do not go together, on every rank.
    """
    known = group.agreed.get(signature)
    if known is not None:
        return known
    made = call()
    said: Said = {**made.said, "call": made.name}
    given = _exchanged(group, said, device) if group.size > 1 else [said]
    names = [each["call"] for each in given]
    if len(set(names)) > 1:
        raise ArgumentError(
            f"{made.name}: the ranks of group {group.name!r} called different functions: {listed(names)}; each rank "
            f"makes the same calls in the same order"
        )
    made.check(given)
    if group.size > 1 and not group.serves(device):
        raise ArgumentError(
            f"{made.name}: the tensors of all ranks are on {device.type} and group {group.name!r} has no backend for "
            f"that; give tensors where its backend works, or call init_process_group('cpu:gloo,cuda:nccl')"
        )
    decided = group.agreed[signature] = made.decide(given)
    return decided


def listed(values: list[Any]) -> str:
    """What each rank gave, in words."""
    return ", ".join(f"rank {rank} {value}" for rank, value in enumerate(values))


def lost(group: Group, what: str, device: torch.device, cause: BaseException) -> CommunicationError:
    """The error for a collective that failed, with what is known of the other ranks."""
    elsewhere = []
    for rank in range(group.size):
        said = None if rank == group.rank else _posted(group, rank)
        if said is not None:
            elsewhere.append(f"rank {rank} waits in a call of another kind: {_shown(said)}")
    known = "; ".join(elsewhere) or "a rank has ended, or makes no such call"
    return CommunicationError(
        f"{what}: rank {group.rank} of group {group.name!r} did not get the data of all {group.size} ranks within "
        f"{group.timeout(device)}: {known}. Each rank makes the same calls in the same order; after this error make a "
        f"new group (torch.distributed.destroy_process_group(), then init_process_group()). The transport says: "
        f"{' '.join(str(cause).split())[:300]}",
        group=group.name,
    )


def _key(exchange: int, rank: int) -> str:
    return f"warptile/{exchange}/{rank}"


def _shown(said: Said) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in said.items() if name != "call" and value is not None)
    return f"{said['call']}({arguments})"


def _posted(group: Group, rank: int) -> Said | None:
    """What a rank wants to compare with the others, who have not come to that yet."""
    try:
        key = _key(group.exchanges, rank)
        return json.loads(group.store.get(key)) if group.store.check([key]) else None
    except RuntimeError:  # the rank that kept the store may be the one that died
        return None


def _exchanged(group: Group, said: Said, device: torch.device) -> list[Said]:
    """What each rank was called with, by rank."""
    timeout = group.timeout(device)
    end = time.monotonic() + timeout.total_seconds()
    number, group.exchanges = group.exchanges, group.exchanges + 1
    found: list[Said] = []
    rank = group.rank
    try:
        store = group.store
        store.set(_key(number, group.rank), json.dumps(said))
        for rank in range(group.size):
            store.wait([_key(number, rank)], timedelta(seconds=max(end - time.monotonic(), 0.01)))
            found.append(json.loads(store.get(_key(number, rank))))
    except RuntimeError as error:
        raise CommunicationError(
            f"{said['call']}: rank {group.rank} of group {group.name!r} waited {timeout} for rank {rank}, which has "
            f"ended or makes another call; this one is {_shown(said)}. Each rank makes the same calls in the same "
            f"order; after this error make a new group (torch.distributed.destroy_process_group(), then "
            f"init_process_group())",
            group=group.name,
            ranks=(rank,),
        ) from error
    return found
