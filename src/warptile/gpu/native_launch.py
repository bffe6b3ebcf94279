"""The launcher of the hot path: one native call writes addresses into kernel parameters and queues a launch.

Packing parameters, entering a context and launching cost Python about as much as the rest of a call. Here they are a
function of machine code that LLVM compiles once a process (llvmlite comes with Numba), so that nothing has to be
compiled where warptile is installed. It is called as any function of CPython that is written in C:
``launch(stream, *addresses)``, METH_FASTCALL (Python/C API, "Implementing functions and methods").

A call copies the parameters to the stack before it writes into them: calls of several threads do not meet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from warptile.gpu import driver
from warptile.launch.spec import LaunchSpec
from warptile.native.functions import METH_FASTCALL, MethodDef, callable_of, method

Launch = Callable[..., int]
"""``launch(stream, *addresses)`` queues a launch without waiting for it; it returns the driver's status, 0 if all is
well."""

PARAMETER_ALIGNMENT = 64
"""Alignment of kernel parameters in the image: that of a tensor map, the widest there is."""

_CONFIG_BYTES, _CONFIG_STREAM = 56, 32
"""Size of ``CUlaunchConfig`` and offset of its ``hStream`` (CUDA Driver API, "CUlaunchConfig_st")."""


@dataclass(frozen=True)
class Patch:
    """A part of the parameters that changes from call to call: 8 bytes that hold an address.

    Attributes:
        offset: where in the image of all parameters.
        operand: which of the addresses that a call is given.
        distance: bytes from that address to the one that is written.
    """

    offset: int
    operand: int
    distance: int


class _Fixed(ctypes.Structure):
    """What does not change from call to call; every field has 8 bytes."""

    _fields_ = (
        ("context", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("config", ctypes.c_void_p),
        ("image", ctypes.c_void_p),
        ("image_bytes", ctypes.c_uint64),
        ("parameters", ctypes.c_uint64),
        ("offsets", ctypes.c_void_p),
        ("patches", ctypes.c_uint64),
        ("patch_list", ctypes.c_void_p),
        ("arguments", ctypes.c_uint64),
    )


def native_launch(
    function: driver.Function,
    spec: LaunchSpec,
    image: bytes,
    offsets: Sequence[int],
    patches: Sequence[Patch],
    operands: int,
) -> Launch:
    """A function that queues launches of one kernel which differ in addresses and stream alone.

    Args:
        function: the kernel; its module must stay loaded for as long as the result is called.
        spec: geometry of the launch.
        image: all kernel parameters, one behind the other.
        offsets: where each begins in ``image``.
        patches: where addresses go; operands are numbered in the order in which a call gives them.
        operands: number of addresses that a call gives.

    Returns:
        ``launch(stream, *addresses)``, from any thread, whatever context is current there.
    """
    config = function.launch_config(spec)
    starts = (ctypes.c_uint64 * max(len(offsets), 1))(*offsets)
    numbers = [number for each in patches for number in (each.offset, 1 + each.operand, each.distance % 2**64)]
    changes = (ctypes.c_uint64 * max(len(numbers), 1))(*numbers)
    content = ctypes.create_string_buffer(image, max(len(image), 1))
    fixed = _Fixed(
        driver.context_of(function.ordinal), function.handle, config.getPtr(), ctypes.addressof(content), len(image),
        len(offsets), ctypes.addressof(starts), len(patches), ctypes.addressof(changes), 1 + operands,
    )  # fmt: skip
    itself = _Address(ctypes.addressof(fixed))
    itself.parts = function, config, starts, changes, content, fixed
    made: Launch = callable_of(_method(driver.entry_points()), itself, __name__)
    return made


class _Address(int):
    """Where the fixed part of a launch lies; as the ``self`` of the native function it keeps all of it alive."""

    parts: tuple[object, ...]


@cache
def _method(entries: driver.EntryPoints) -> MethodDef:
    """The native function, as CPython wants it described."""
    return method(_module(entries), "launch", METH_FASTCALL, "Queue one launch.")


def _module(entries: driver.EntryPoints) -> Any:
    """The module with ``PyObject *launch(PyObject *self, PyObject *const *given, Py_ssize_t count)``."""
    from llvmlite import ir

    byte, status_type, word = ir.IntType(8), ir.IntType(32), ir.IntType(64)
    pointer = byte.as_pointer()
    module = ir.Module("warptile")
    function = ir.Function(module, ir.FunctionType(pointer, (pointer, pointer, word)), "launch")
    itself, given, count = function.args
    build = ir.IRBuilder(function.append_basic_block())

    def callee(address: int, result: Any, *arguments: Any) -> Any:
        return build.inttoptr(ir.Constant(word, address), ir.FunctionType(result, arguments).as_pointer())

    def of_python(name: str, result: Any, *arguments: Any) -> Any:
        return callee(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0, result, *arguments)

    def at(start: Any, offset: Any, kind: Any = word) -> Any:
        """Address of what lies ``offset`` bytes from ``start``."""
        return build.bitcast(build.gep(start, [offset]), kind.as_pointer())

    def times(index: Any, size: int) -> Any:
        return build.mul(index, ir.Constant(word, size))

    as_integer = of_python("PyLong_AsUnsignedLongLongMask", word, pointer)
    from_integer = of_python("PyLong_FromLong", pointer, word)

    def integer_given(index: Any) -> Any:
        return build.call(as_integer, [build.load(at(given, times(index, 8), pointer))])

    def give_back(status: Any) -> None:
        build.ret(build.call(from_integer, [status]))

    copy_bytes = module.declare_intrinsic("llvm.memcpy", [pointer, pointer, word])
    no = ir.Constant(ir.IntType(1), 0)

    def copied(origin: Any, size: Any, alignment: int) -> Any:
        """A copy on the stack."""
        made = build.alloca(byte, size)
        made.align = alignment
        build.call(copy_bytes, [made, origin, size, no])
        return made

    fixed = build.inttoptr(build.call(as_integer, [itself]), pointer)
    fields = {
        name: build.load(at(fixed, ir.Constant(word, getattr(_Fixed, name).offset))) for name, _ in _Fixed._fields_
    }
    with build.if_then(build.icmp_unsigned("!=", count, fields["arguments"]), likely=False):
        give_back(ir.Constant(word, -1))

    image = copied(build.inttoptr(fields["image"], pointer), fields["image_bytes"], PARAMETER_ALIGNMENT)
    config = copied(build.inttoptr(fields["config"], pointer), ir.Constant(word, _CONFIG_BYTES), 8)
    slots = build.alloca(byte, times(fields["parameters"], 8))
    slots.align = 8
    starts, patches = build.inttoptr(fields["offsets"], pointer), build.inttoptr(fields["patch_list"], pointer)

    with _counting(build, function, fields["parameters"]) as index:
        start = build.load(at(starts, times(index, 8)))
        build.store(build.ptrtoint(build.gep(image, [start]), word), at(slots, times(index, 8)))
    with _counting(build, function, fields["patches"]) as index:
        patch = times(index, 24)
        offset, operand, distance = (
            build.load(at(patches, build.add(patch, ir.Constant(word, part)))) for part in (0, 8, 16)
        )
        build.store(build.add(integer_given(operand), distance), at(image, offset))
    build.store(integer_given(ir.Constant(word, 0)), at(config, ir.Constant(word, _CONFIG_STREAM)))
    error = build.ptrtoint(build.call(of_python("PyErr_Occurred", pointer), []), word)
    with build.if_then(build.icmp_unsigned("!=", error, ir.Constant(word, 0)), likely=False):
        build.ret(ir.Constant(word, 0).inttoptr(pointer))  # an argument is no integer: the exception is set

    current = build.alloca(word)
    build.store(ir.Constant(word, 0), current)
    build.call(callee(entries.get_current, status_type, word.as_pointer()), [current])
    elsewhere = build.icmp_unsigned("!=", build.load(current), fields["context"])
    with build.if_then(elsewhere, likely=False):
        pushed = build.call(callee(entries.push_current, status_type, word), [fields["context"]])
        with build.if_then(build.icmp_unsigned("!=", pushed, ir.Constant(status_type, 0)), likely=False):
            give_back(build.zext(pushed, word))
    thread = build.call(of_python("PyEval_SaveThread", pointer), [])
    launch = callee(entries.launch_kernel, status_type, pointer, word, pointer, word)
    status = build.call(launch, [config, fields["function"], slots, ir.Constant(word, 0)])
    with build.if_then(elsewhere, likely=False):
        build.call(callee(entries.pop_current, status_type, word.as_pointer()), [current])
    build.call(of_python("PyEval_RestoreThread", ir.VoidType(), pointer), [thread])
    give_back(build.zext(status, word))
    return module


@contextmanager
def _counting(build: Any, function: Any, limit: Any) -> Iterator[Any]:
    """A loop; yields its counter, which goes from 0 to ``limit``, excluded. The body must be one basic block."""
    from llvmlite import ir

    word = ir.IntType(64)
    before, check = build.block, function.append_basic_block()
    body, behind = function.append_basic_block(), function.append_basic_block()
    build.branch(check)
    build.position_at_end(check)
    index = build.phi(word)
    index.add_incoming(ir.Constant(word, 0), before)
    build.cbranch(build.icmp_unsigned("<", index, limit), body, behind)
    build.position_at_end(body)
    yield index
    index.add_incoming(build.add(index, ir.Constant(word, 1)), body)
    build.branch(check)
    build.position_at_end(behind)
