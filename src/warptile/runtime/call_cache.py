"""Bound calls, found again by what their arrays and options say: the hot path of `warptile.matmul` on a GPU.

The first call with given shapes, strides, types and options is planned, compiled and bound
(`warptile.runtime.bound_call`). A later call that says the same is one look-up in a dictionary, the result's
allocation, and the launches. Whatever is not that simple (operands that have to be copied; an ``out`` that shares
memory with an operand) is not bound, and takes the long way, which also raises the errors.

Each framework has a subclass, in a module of its own, that reads its arrays in the cheapest way.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Hashable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from warptile.arrays.operands import Product
from warptile.planning import tuned_table
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.bound_call import BoundCall, bind
from warptile.runtime.execute import GpuBackend
from warptile.runtime.fused_calls import NUMBERS, FusedCall

if TYPE_CHECKING:
    from warptile.runtime.online_tuning import OnlineTuning

MOST_CALLS = 4096
"""Bound calls that are kept; the oldest goes first."""

Arrays = tuple[Any, Any, Any, Any]
"""A, B, C and ``out`` as a caller gives them; None for what is not given."""

Outputs = tuple[Any, ...]
"""Arrays that a caller gives for results."""

Fused = tuple[Arrays, tuple[Any, ...], Hashable, Mapping[str, Any]]
"""Arrays, options, identity of the epilogue, and operands by name, of a call with further operands."""

NOT_BOUND = (KeyError, TypeError, AttributeError, RuntimeError, ValueError)
"""What reading arrays raises where a call is not bound, or where an argument is no array of the framework or no key:
the long way says what is wrong."""

BACKEND, AUTOTUNE, FOLDER = b"WARPTILE_BACKEND", b"WARPTILE_AUTOTUNE", b"WARPTILE_CACHE_DIR"
"""Environment variables that a plan depends on."""

# os.environ.get costs a microsecond, most of it encoding; CPython's os.environ keeps encoded names and values here.
environment: Mapping[Any, Any] = getattr(os.environ, "_data", {})


class CallCache:
    """Bound calls on arrays of one framework.

    Args:
        may_change: what tuning finds later replaces what is bound; not so for the calls of one plan.

    Attributes:
        forgotten: how often bound calls were forgotten: whoever keeps one looks whether this has changed.
        binds_linear: calls of `warptile.linear` are bound too, by `learn_linear`.
    """

    binds_linear = False

    def __init__(self, *, may_change: bool = True) -> None:
        self._bound: dict[Any, BoundCall] = {}
        self.forgotten = 0
        self._fused: dict[Any, FusedCall] = {}
        self._recorders: dict[Any, Any] = {}
        self._learning = threading.Lock()
        self._next_look = 0.0 if may_change else math.inf
        self._outcomes: dict[str, str] = {}
        if may_change:
            tuned_table.tell_of_outcomes(self._look_now)

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        raise NotImplementedError

    def repeat_fused(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Any:
        """As `repeat`, of a call with further operands: with an epilogue, identified by ``epilogue``, or a sparse A.

        It may be asked about any call; ``out`` may be a tuple.
        """
        return None

    def learn_fused(
        self,
        arrays: Arrays,
        options: tuple[Any, ...],
        epilogue: Hashable,
        operands: Mapping[str, Any],
        product: Product,
        chosen: Plan | Addend,
        backend: GpuBackend,
        alpha: float,
        beta: float,
    ) -> None:
        """Bind a call with further operands, if it can be, so that `repeat_fused` finds it."""

    def keep(self, key: Hashable, found: FusedCall, gpu: str) -> None:
        """Remember a bound call with further operands, until a search on that model of GPU ends."""
        self.is_stale()  # looked at before: else the first call would find itself forgotten
        with self._learning:
            self._add_fused(key, found)
        self._outcomes.setdefault(gpu, tuned_table.outcomes(gpu))

    def learn_restated(self, given: Fused, restated: Fused, leading: tuple[int, ...] | None = None) -> None:
        """Bind a call that was restated as another one with an epilogue, so that `repeat_fused` finds it as it was
        given: if the other one is bound, and reads and writes the same memory.

        Args:
            given: arrays, what tells the call from others, an identity, and operands.
            restated: the same of the other call.
            leading: extents that the result has in place of its first one; None where both have one shape.
        """
        (a, b, c, out), options, _, operands = given
        (other_a, other_b, other_c, other_out), _, _, other_operands = restated
        outs, other_outs = outputs_of(out), outputs_of(other_out)
        mine = (a, b, c, *outs, *operands.values())
        others = (other_a, other_b, other_c, *other_outs, *other_operands.values())
        if len(outs) != len(other_outs) or list(operands) != list(other_operands) or not self.may_bind(options):
            return
        try:
            key, other_key = self.fused_key(*given), self.fused_key(*restated)
            if not all(map(self.is_same, mine, others)):
                return
        except NOT_BOUND:
            return
        recorder = self._recorders.get(other_key)
        if recorder is not None:
            self.keep_recorder(key, recorder.restated(given))
        found = self._fused.get(other_key)
        if found is None or (leading is not None and any(found.reductions)):
            return
        shapes = found.shapes if leading is None else tuple((*leading, *shape[1:]) for shape in found.shapes)
        with self._learning:
            self._add_fused(key, replace(found, shapes=shapes, gradients=self.wants_gradients(mine)))

    def keep_recorder(self, key: Hashable, recorder: Any) -> None:
        """Remember what makes a bound call and records its gradient; None for nothing.

        Args:
            key: of the call.
            recorder: as of `warptile.torch.bound_epilogues`.
        """
        if recorder is not None:
            with self._learning:
                make_room(self._recorders)
                self._recorders[key] = recorder

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether a launch is given the same of two operands: an address, or a number that is written in one way."""
        return one is other or (one.__class__ is other.__class__ and one.__class__ in NUMBERS)

    def fused_key(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Hashable:
        """As `key`, of a call with further operands; numbers are given to each call, and tell their type alone.

        Raises:
            KeyError: no such call is bound.
        """
        raise KeyError(epilogue)

    def learn_linear(
        self,
        arrays: tuple[Any, Any, Any],
        said: tuple[Any, ...],
        multiplied: tuple[Any, Any, Any],
        options: tuple[Any, ...],
    ) -> None:
        """Bind a linear layer, so that `repeat` finds it, if its GEMM is bound.

        Args:
            arrays: x, w and bias.
            said: what tells the call from others on the same arrays.
            multiplied: A, B and C of the GEMM.
            options: of the GEMM.
        """

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """All that a plan may depend on: addresses only as far as they decide alignment."""
        raise NotImplementedError

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """Whether calls on these arrays can be bound at all."""
        raise NotImplementedError

    @staticmethod
    def may_bind(options: tuple[Any, ...]) -> bool:
        """Whether options are found again: none is an object that may hold something else at the next call."""
        return not any(map(_may_change, options))

    def result_of(self, product: Product) -> tuple[Any, Any]:
        """Element type and device of a new result, as the framework names them."""
        return None, None

    def wants_gradients(self, arrays: Iterable[Any]) -> bool:
        """Whether an array asks for gradients; what is none does not."""
        return False

    def may_be_cast(self, arrays: Arrays) -> bool:
        """Whether the framework may be told to multiply in another type than the arrays'."""
        return False

    def completed(self, key: Any, found: BoundCall) -> BoundCall:
        """A call that is about to be kept, with what its framework adds."""
        return found

    def learnt(self, arrays: Arrays, options: tuple[Any, ...], found: BoundCall) -> None:
        """Called with every call that has been bound."""

    def learn(
        self,
        arrays: Arrays,
        options: tuple[Any, ...],
        product: Product,
        chosen: Plan | Addend,
        backend: GpuBackend,
        alpha: float,
        beta: float,
        until: Future[Any] | None = None,
        tuning: OnlineTuning | None = None,
    ) -> bool:
        """Bind a call that was planned, so that `repeat` finds it, ``until`` something is done; whether it can be.

        With a ``tuning`` its launches try configurations until one is settled on."""
        if not self.takes(arrays, product, backend) or not self.may_bind(options):
            return False
        self.is_stale()  # looked at before binding: else the first call would find itself forgotten
        dtype, device = self.result_of(product)
        found = bind(
            product, chosen, backend, alpha, beta, dtype=dtype, device=device,
            gradients=self.wants_gradients(arrays), stands_in=until is not None, may_be_cast=self.may_be_cast(arrays),
        )  # fmt: skip
        if found is None:
            return False
        if tuning is not None and until is None:
            found, until = tuning.applied(found, partial(bind, product, backend=backend, alpha=alpha, beta=beta))
        with self._learning:
            key = self.key(*arrays, options)
            found = self.completed(key, found)
            self._add(key, found)
        if until is not None:
            until.add_done_callback(lambda done: self._forget(key, found))
        self.learnt(arrays, options, found)
        if self._next_look < math.inf:
            self._outcomes.setdefault(backend.info.name, tuned_table.outcomes(backend.info.name))
        return True

    def _add(self, key: Any, found: BoundCall) -> None:
        """Keep a bound call, in the place of the oldest where there are too many. Whoever calls it holds the lock."""
        if len(self._bound) >= MOST_CALLS:
            del self._bound[next(iter(self._bound))]
            self.forgotten += 1
        self._bound[key] = found

    def _add_fused(self, key: Hashable, found: FusedCall) -> None:
        """The same of one with further operands."""
        make_room(self._fused)
        self._fused[key] = found

    def _forget(self, key: Any, found: BoundCall) -> None:
        with self._learning:
            kept = self._bound.get(key)
            if kept is not None and kept.launch is found.launch:
                del self._bound[key]
                self.forgotten += 1

    def changed(self, key: Any, found: BoundCall, **changes: Any) -> None:
        """Keep a bound call with changes, if it is still the one that is kept."""
        with self._learning:
            if self._bound.get(key) is found:
                self._bound[key] = replace(found, **changes)

    def _look_now(self) -> None:
        self._next_look = 0.0

    def is_stale(self) -> bool:
        """Whether a search has ended since calls were bound (looked at now and then); they are forgotten then."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + tuned_table.LOOK_S
        outcomes = {gpu: tuned_table.outcomes(gpu) for gpu in self._outcomes}
        if outcomes == self._outcomes:
            return False
        with self._learning:
            self._bound.clear()
            self._fused.clear()
            self._recorders.clear()
            self.forgotten += 1
        self._outcomes.clear()
        return True


def make_room(kept: dict[Any, Any]) -> None:
    """Forget the oldest entry where there are too many."""
    if len(kept) >= MOST_CALLS:
        del kept[next(iter(kept))]


def outputs_of(out: Any) -> Outputs:
    """The arrays of an ``out``, which may be a tuple."""
    if out is None:
        return ()
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def _may_change(option: Any) -> bool:
    """Whether an option is an object whose value may be another one at the next call: an array, a mapping, a list."""
    array = hasattr(option, "__array__") or hasattr(option, "__cuda_array_interface__")
    return isinstance(option, dict | list) or (array and not isinstance(option, type | np.generic))
