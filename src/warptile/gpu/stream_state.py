"""Which stream a handle means, and whether it is being captured, in one native call.

A handle says little: the driver gives that of a destroyed stream to a new one, and the handle of the per-thread default
stream means another stream in each thread. The driver's identifier of a stream is unique for the life of the process.
It may not be asked for while the stream is captured (that would end the capture), so a captured stream is known by its
handle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from warptile.gpu import driver
from warptile.native.functions import METH_O, callable_of, method

DEFAULT = -2
"""State of the default stream (handles 0 and 1), which lives as long as its context and cannot be captured."""

UNKNOWN = -1
"""The driver refused to say; odd, as of a stream that is captured."""

_LEGACY = 1
"""``CU_STREAM_LEGACY``: the default stream by a handle of its own."""

State = Callable[[int], int]
"""``state(stream)``: twice the identifier of a stream; of one that is captured, twice its handle and one more."""


@cache
def state_function() -> State:
    """`State`, as machine code where LLVM may make some, else through the driver's bindings, which cost more."""
    try:
        return _native(driver.entry_points())
    except (ImportError, OSError, RuntimeError):
        return asked


def is_captured(state: int) -> bool:
    """Whether a `State` is that of a stream that is captured."""
    return state & 1 == 1


def asked(stream: int) -> int:
    """`State` through the driver's bindings.

    Raises:
        DeviceError: the driver refuses to say.
    """
    if stream <= _LEGACY:
        return DEFAULT
    return 2 * stream + 1 if driver.is_capturing(stream) else 2 * driver.stream_id(stream)


@cache
def _native(entries: driver.EntryPoints) -> State:
    made: State = callable_of(method(_module(entries), "stream_state", METH_O, "See State."), None, __name__)
    return made


def _module(entries: driver.EntryPoints) -> Any:
    """The module with ``PyObject *stream_state(PyObject *self, PyObject *stream)``."""
    from llvmlite import ir

    status_type, word = ir.IntType(32), ir.IntType(64)
    pointer = ir.IntType(8).as_pointer()
    module = ir.Module("warptile_streams")
    function = ir.Function(module, ir.FunctionType(pointer, (pointer, pointer)), "stream_state")
    _, given = function.args
    build = ir.IRBuilder(function.append_basic_block())

    def call(address: int, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [each.type for each in arguments]).as_pointer()
        return build.call(build.inttoptr(ir.Constant(word, address), kind), arguments)

    def of_python(name: str) -> int:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0

    def give_back(value: Any) -> None:
        build.ret(call(of_python("PyLong_FromLongLong"), pointer, value))

    stream = call(of_python("PyLong_AsUnsignedLongLongMask"), word, given)
    with build.if_then(build.icmp_unsigned("<=", stream, ir.Constant(word, _LEGACY))):
        give_back(ir.Constant(word, DEFAULT))
    error = build.ptrtoint(call(of_python("PyErr_Occurred"), pointer), word)
    with build.if_then(build.icmp_unsigned("!=", error, ir.Constant(word, 0)), likely=False):
        build.ret(ir.Constant(word, 0).inttoptr(pointer))  # the argument is no integer: the exception is set
    found, captured = build.alloca(word), build.alloca(status_type)
    for entry, result in ((entries.is_capturing, captured), (entries.stream_id, found)):
        status = call(entry, status_type, stream, result)
        with build.if_then(build.icmp_unsigned("!=", status, ir.Constant(status_type, 0)), likely=False):
            give_back(ir.Constant(word, UNKNOWN))
        if result is captured:
            active = build.icmp_unsigned("!=", build.load(captured), ir.Constant(status_type, 0))
            with build.if_then(active, likely=False):
                give_back(build.or_(build.shl(stream, ir.Constant(word, 1)), ir.Constant(word, 1)))
    give_back(build.shl(build.load(found), ir.Constant(word, 1)))
    return module
