"""Functions of machine code, made of LLVM's intermediate representation, and how CPython calls them directly."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

METH_FASTCALL, METH_O = 0x0080, 0x0008
"""Calling conventions (Python/C API, "Implementing functions and methods")."""


class MethodDef(ctypes.Structure):
    """``PyMethodDef`` (Python/C API, "Common Object Structures")."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_ALIVE: list[Any] = []
"""Compilers, which own their machine code, and descriptions of functions, which CPython reads even when it frees a
function: kept for the life of the process. Threads may make the same function at once, and each calls its own."""


def machine_code(module: str, name: str) -> int:
    """The address of a function of an LLVM module, valid for the life of the process.

    Args:
        module: LLVM assembly.
        name: of the function.

    Raises:
        ImportError, OSError, RuntimeError: no machine code can be made here.
    """
    from llvmlite import binding as llvm

    with suppress(RuntimeError):  # newer releases need it no more, and say so by raising
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(module)
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    compiler = llvm.create_mcjit_compiler(parsed, machine)
    compiler.finalize_object()
    _ALIVE.append(compiler)
    return int(compiler.get_function_address(name))


def elements_of(ir: Any, builder: Any, array: Any, element: Any) -> Any:
    """The address of the first element of a NumPy array, in a function that is given the array itself: asking NumPy for
    it takes longer than a short loop. It follows the header of the object (``PyArrayObject``, NumPy C-API).

    Args:
        ir: llvmlite's module of that name.
        builder: where the code goes.
        array: the object's address.
        element: LLVM's type of elements.
    """
    place = builder.gep(array, [ir.Constant(ir.IntType(64), object.__basicsize__)])
    return builder.load(builder.bitcast(place, element.as_pointer().as_pointer()))


def function_of_arrays(address: int, numbers: int, arrays: int) -> Any:
    """The Python function of machine code that is given so many whole numbers and then NumPy arrays (`elements_of`). It
    holds the interpreter's lock: for what takes less time than to wait for that again."""
    return ctypes.PYFUNCTYPE(None, *[ctypes.c_int64] * numbers, *[ctypes.py_object] * arrays)(address)


def method(module: Any, name: str, flags: int, doc: str) -> MethodDef:
    """A function of an LLVM module as CPython wants it described, valid for the life of the process.

    Args:
        module: of ``llvmlite.ir``.
        name: of the function.
        flags: its calling convention.
        doc: what it does.

    Raises:
        ImportError, OSError, RuntimeError: as `machine_code`.
    """
    described = MethodDef(name.encode(), machine_code(str(module), name), flags, doc.encode())
    _ALIVE.append(described)
    return described


def callable_of(described: MethodDef, itself: Any, module_name: str | None) -> Any:
    """The Python function of a description, with its ``self``."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return new(ctypes.addressof(described), itself, module_name)
