"""The launcher of the hot path: one native call writes addresses into kernel parameters and queues a launch.

Packing parameters, entering a context and launching cost Python about as much as the rest of a call. Here they are a
function of machine code that LLVM compiles once a process (llvmlite comes with Numba), so that nothing has to be
compiled where warptile is installed. It is called as any function of CPython that is written in C:
``launch(stream, *addresses)``, METH_FASTCALL (Python/C API, "Implementing functions and methods").

A call copies the parameters to the stack before it writes into them: calls of several threads do not meet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warptile.gpu import driver
from warptile.launch.spec import LaunchSpec

Launch = Callable[..., int]
"""``launch(stream, *addresses)`` queues a launch without waiting for it; it returns the driver's status, 0 if all is
well."""

PARAMETER_ALIGNMENT = 64
"""Alignment of kernel parameters in the image: that of a tensor map, the widest there is."""

_METH_FASTCALL = 0x0080
_CONFIG_BYTES, _CONFIG_STREAM = 56, 32
"""Size of ``CUlaunchConfig`` and offset of its ``hStream`` (CUDA Driver API, "CUlaunchConfig_st")."""

_SOURCE = """
%Fixed = type {{ i64, i64, ptr, ptr, i64, i64, ptr, i64, ptr, i64 }}
%Patch = type {{ i64, i64, i64 }}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @launch(ptr %self, ptr %given, i64 %count) {{
start:
  %where = call i64 inttoptr (i64 {as_integer} to ptr)(ptr %self)
  %fixed = inttoptr i64 %where to ptr
  %values = load %Fixed, ptr %fixed
  %context = extractvalue %Fixed %values, 0
  %function = extractvalue %Fixed %values, 1
  %config_given = extractvalue %Fixed %values, 2
  %image_given = extractvalue %Fixed %values, 3
  %image_bytes = extractvalue %Fixed %values, 4
  %parameters = extractvalue %Fixed %values, 5
  %offsets = extractvalue %Fixed %values, 6
  %patches = extractvalue %Fixed %values, 7
  %patch_list = extractvalue %Fixed %values, 8
  %wanted = extractvalue %Fixed %values, 9
  %agrees = icmp eq i64 %count, %wanted
  br i1 %agrees, label %copy, label %miscounted

miscounted:
  %minus_one = call ptr inttoptr (i64 {from_integer} to ptr)(i64 -1)
  ret ptr %minus_one

copy:
  %image = alloca i8, i64 %image_bytes, align {alignment}
  call void @llvm.memcpy.p0.p0.i64(ptr align {alignment} %image, ptr %image_given, i64 %image_bytes, i1 false)
  %slots = alloca ptr, i64 %parameters, align 8
  %config = alloca i8, i64 {config_bytes}, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %config, ptr align 8 %config_given, i64 {config_bytes}, i1 false)
  br label %next_slot

next_slot:
  %slot = phi i64 [ 0, %copy ], [ %slot_after, %fill_slot ]
  %slots_done = icmp uge i64 %slot, %parameters
  br i1 %slots_done, label %next_patch, label %fill_slot

fill_slot:
  %offset_at = getelementptr i64, ptr %offsets, i64 %slot
  %offset = load i64, ptr %offset_at
  %parameter = getelementptr i8, ptr %image, i64 %offset
  %slot_at = getelementptr ptr, ptr %slots, i64 %slot
  store ptr %parameter, ptr %slot_at
  %slot_after = add i64 %slot, 1
  br label %next_slot

next_patch:
  %patch = phi i64 [ 0, %next_slot ], [ %patch_after, %write ]
  %patches_done = icmp uge i64 %patch, %patches
  br i1 %patches_done, label %stream, label %write

write:
  %patch_at = getelementptr %Patch, ptr %patch_list, i64 %patch
  %what = load %Patch, ptr %patch_at
  %into = extractvalue %Patch %what, 0
  %argument = extractvalue %Patch %what, 1
  %distance = extractvalue %Patch %what, 2
  %argument_at = getelementptr ptr, ptr %given, i64 %argument
  %object = load ptr, ptr %argument_at
  %address = call i64 inttoptr (i64 {as_integer} to ptr)(ptr %object)
  %moved = add i64 %address, %distance
  %target = getelementptr i8, ptr %image, i64 %into
  store i64 %moved, ptr %target
  %patch_after = add i64 %patch, 1
  br label %next_patch

stream:
  %stream_object = load ptr, ptr %given
  %handle = call i64 inttoptr (i64 {as_integer} to ptr)(ptr %stream_object)
  %stream_at = getelementptr i8, ptr %config, i64 {config_stream}
  store i64 %handle, ptr %stream_at
  %error = call ptr inttoptr (i64 {error_occurred} to ptr)()
  %no_integer = icmp ne ptr %error, null
  br i1 %no_integer, label %raise, label %enter

raise:
  ret ptr null

enter:
  %current_at = alloca i64, align 8
  store i64 0, ptr %current_at
  %asked = call i32 inttoptr (i64 {get_current} to ptr)(ptr %current_at)
  %current = load i64, ptr %current_at
  %is_current = icmp eq i64 %current, %context
  br i1 %is_current, label %queue, label %push

push:
  %pushed = call i32 inttoptr (i64 {push_current} to ptr)(i64 %context)
  %entered = icmp eq i32 %pushed, 0
  br i1 %entered, label %queue, label %refused

refused:
  %status_pushed = zext i32 %pushed to i64
  %answer_refused = call ptr inttoptr (i64 {from_integer} to ptr)(i64 %status_pushed)
  ret ptr %answer_refused

queue:
  %thread = call ptr inttoptr (i64 {release_interpreter} to ptr)()
  %status = call i32 inttoptr (i64 {launch_kernel} to ptr)(ptr %config, i64 %function, ptr %slots, ptr null)
  br i1 %is_current, label %answer, label %pop

pop:
  %popped = call i32 inttoptr (i64 {pop_current} to ptr)(ptr %current_at)
  br label %answer

answer:
  call void inttoptr (i64 {take_interpreter} to ptr)(ptr %thread)
  %status_wide = zext i32 %status to i64
  %answered = call ptr inttoptr (i64 {from_integer} to ptr)(i64 %status_wide)
  ret ptr %answered
}}
"""


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


class _MethodDef(ctypes.Structure):
    """``PyMethodDef`` (Python/C API, "Common Object Structures")."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Fixed(ctypes.Structure):
    """What does not change from call to call: ``%Fixed`` in the source."""

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
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    described, _ = _compiled(driver.entry_points())
    itself = _Address(ctypes.addressof(fixed))
    itself.parts = function, config, starts, changes, content, fixed
    made: Launch = new(ctypes.addressof(described), itself, __name__)
    return made


class _Address(int):
    """Where the fixed part of a launch lies; as the ``self`` of the native function it keeps all of it alive."""

    parts: tuple[object, ...]


@lru_cache(maxsize=2)
def _compiled(entries: driver.EntryPoints) -> tuple[_MethodDef, Any]:
    """The native function, as CPython wants it described, and the compiler that owns its machine code."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()

    def of_python(name: str) -> int:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0

    source = _SOURCE.format(
        alignment=PARAMETER_ALIGNMENT,
        config_bytes=_CONFIG_BYTES,
        config_stream=_CONFIG_STREAM,
        as_integer=of_python("PyLong_AsUnsignedLongLongMask"),
        from_integer=of_python("PyLong_FromLong"),
        error_occurred=of_python("PyErr_Occurred"),
        release_interpreter=of_python("PyEval_SaveThread"),
        take_interpreter=of_python("PyEval_RestoreThread"),
        get_current=entries.get_current,
        push_current=entries.push_current,
        pop_current=entries.pop_current,
        launch_kernel=entries.launch_kernel,
    )
    module = llvm.parse_assembly(source)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    compiler = llvm.create_mcjit_compiler(module, machine)
    compiler.finalize_object()
    described = _MethodDef(b"launch", compiler.get_function_address("launch"), _METH_FASTCALL, b"Queue one launch.")
    return described, compiler
