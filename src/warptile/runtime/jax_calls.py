"""Bound calls on JAX arrays in GPU memory: XLA runs them, on its own stream and in memory of its own.

A JAX array has an address, but what computes it may still be queued, and XLA hands its memory to the next computation
as soon as the last reference is gone: only XLA knows when either is over. So a bound call is a small jitted program
whose one instruction calls back (`warptile.runtime.xla_ffi`) with the stream and the addresses. XLA has then made that
stream wait for the operands, has allocated the result, and keeps all of them for as long as the stream needs them.
Nothing waits on the host, and nothing is copied.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.arrays.jax_arrays import is_jax_array
from warptile.arrays.operands import Product
from warptile.runtime import xla_ffi
from warptile.runtime.bound_call import BoundCall
from warptile.runtime.call_cache import AUTOTUNE, BACKEND, FOLDER, MOST_CALLS, NOT_BOUND, Arrays, CallCache, environment
from warptile.runtime.execute import GpuBackend

_log = logging.getLogger("warptile")

TARGET = "warptile_launch"
"""Name of the handler in XLA's registry."""
PLATFORM = "CUDA"


class _MisplacedError(Exception):
    """XLA gave a program other places than its launches were bound for."""


class _Program:
    """A jitted program whose one instruction queues the launches of a call.

    XLA holds a program's number for good. What the number stands for may change: `bound` is replaced when a better
    kernel has been compiled or found.
    """

    def __init__(self, bound: BoundCall) -> None:
        self.bound = bound
        self.raised: Exception | None = None
        number = next(_numbers)
        _programs[number] = self
        jax = sys.modules["jax"]
        call = _interface().ffi_call(TARGET, jax.ShapeDtypeStruct(bound.shape, bound.dtype))
        self._jitted: Callable[..., Any] = jax.jit(lambda *operands: call(*operands, call=np.int64(number)))

    def run(self, *operands: Any) -> Any:
        """The result, which XLA may still be computing."""
        self.raised = None
        _last_run.append(self)
        try:
            return self._jitted(*operands)
        except Exception:
            # XLA makes a sentence of what its handler raises, and JAX an exception of some type of that. Where
            # XLA calls the handler on a thread of its own, that is all there is, and comes where the result is used.
            error, self.raised = self.raised, None
            if error is None:
                raise
            raise error from None

    def launch(self, place: xla_ffi.XlaPlace, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Called by XLA: queue the launches."""
        bound = self.bound
        try:
            a, b, *addend = arguments
            c = addend[0] if addend else 0
            (d,) = results
            if place.ordinal != bound.ordinal or (a | b | c | d) & 15:
                raise _MisplacedError(f"{bound.ordinal}: got GPU {place.ordinal} and addresses {a, b, c, d}")
            status = bound.launch(place.stream, a, b, c, d)
            if status:
                raise bound.refuse(status)
        except Exception as error:
            self.raised = error
            raise


_numbers = count()
_programs: WeakValueDictionary[int, _Program] = WeakValueDictionary()
"""Programs by their numbers, for as long as a cache of calls keeps them."""
_last_run: deque[_Program] = deque(maxlen=MOST_CALLS)
"""Keeps programs of plans that are gone until XLA, which may call them later, certainly has."""


def _launch(number: int, place: xla_ffi.XlaPlace, arguments: Sequence[int], results: Sequence[int]) -> None:
    _programs[number].launch(place, arguments, results)


@cache
def _registered() -> Any:
    """The handler, known to XLA; kept alive for good."""
    made = xla_ffi.handler(_launch)
    _interface().register_ffi_target(TARGET, _interface().pycapsule(made), platform=PLATFORM)
    return made


@cache
def _refusal() -> str | None:
    """Why JAX arrays go through host memory, said once on the log; None where they need not."""
    try:
        _registered()
    except (ImportError, AttributeError, RuntimeError, ValueError) as error:
        _log.warning("JAX arrays go through host memory (its foreign function interface: %s)", error)
        return str(error)
    return None


def _interface() -> Any:
    import jax.ffi

    return jax.ffi


class JaxCalls(CallCache):
    """Bound calls on JAX arrays, each on one GPU, by what the arrays and options say.

    Args:
        may_change: as of `CallCache`.
    """

    def __init__(self, *, may_change: bool = True) -> None:
        super().__init__(may_change=may_change)
        self._known: dict[Any, _Program] = {}

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        if out is not None:  # JAX arrays cannot be written
            return None
        try:
            program: _Program = self._bound[self.key(a, b, c, out, options)].device
        except NOT_BOUND:
            return None
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        given = (a, b) if c is None else (a, b, c)
        if any(each.unsafe_buffer_pointer() & 15 for each in given):
            return None  # made from DLPack: XLA takes none in a program, and may say so where the result is used
        try:
            return program.run(*given)
        except _MisplacedError:  # jax.default_device moves uncommitted arrays
            return None

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As of `CallCache`. Outside XLA arrays are row-major; `repeat` looks at their alignment."""
        get = environment.get
        said = (
            a.__class__, a.shape, a.dtype, a.sharding, b.__class__, b.shape, b.dtype, b.sharding,
            options, get(BACKEND), get(AUTOTUNE), get(FOLDER),
        )  # fmt: skip
        return said if c is None else (*said, c.__class__, c.shape, c.dtype, c.sharding)

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """Aligned arrays on a GPU, no ``out``, and a JAX that has a foreign function interface."""
        given = [each for each in arrays[:3] if each is not None]
        if product.like.device is None or arrays[3] is not None or not all(map(is_jax_array, given)):
            return False
        if any(each.unsafe_buffer_pointer() & 15 for each in given):
            return False
        return _refusal() is None

    def result_of(self, product: Product) -> tuple[Any, Any]:
        """NumPy's type; XLA places the result."""
        return numpy_dtype(product.problem.d.dtype), None

    def completed(self, key: Any, found: BoundCall) -> BoundCall:
        """The call with its program in the place of a device: a new one, or the one that there is for this key."""
        program = self._known.pop(key, None)
        if program is None:
            if len(self._known) >= MOST_CALLS:
                del self._known[next(iter(self._known))]
            program = _Program(found)
        program.bound = found
        self._known[key] = program
        return replace(found, device=program)
