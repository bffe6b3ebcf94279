"""The machine code of this folder: compiled once a machine, kept in the cache on disk.

Compiling takes some seconds, so it begins once a process has emulated for a while, in the background, and the
interpreter goes on until it is done. From the cache the code is there at once.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from warptile.codegen.cache import Cache, key_of
from warptile.emulator.compiled_steps import (
    access_counts,
    access_races,
    atomics,
    dispatch,
    elementwise,
    memory_access,
    warp_collectives,
    word_code,
)

THREAD = "warptile-compiled-steps"
"""Name of the thread that compiles."""

PATIENCE_S = 3.0
"""Processor seconds of a process, from its first launch on, after which compiling is worth its time: a short run would
only wait for it at its end."""

_BLOB = "object"
_EXPORTED = ("run", "load", "store", "atomic", "collective")
_WORD_FUNCTIONS = (
    *access_counts.FUNCTIONS, *access_races.FUNCTIONS, *memory_access.FUNCTIONS, *atomics.FUNCTIONS,
    *warp_collectives.FUNCTIONS, *dispatch.FUNCTIONS,
)  # fmt: skip
_log = logging.getLogger(__name__)


class Library:
    """Loaded machine code.

    Attributes:
        functions: address of each loop of `elementwise`, and of what else is called, by name.
        run: `dispatch.run`.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine  # owns the code
        names = [*elementwise.function_names(), *_EXPORTED]
        self.functions = {name: engine.get_function_address(name) for name in names}
        self.run: Callable[[int], int] = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.functions["run"])


class _Loader:
    """Finds or makes the library of this process, once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_s: float | None = None
        self._to_compile: tuple[Any, str, str] | None = None
        self._thread: threading.Thread | None = None
        self.library: Library | None = None

    def get(self, *, wait: bool) -> Library | None:
        with self._lock:
            if self._asked_s is None:
                self._asked_s = time.process_time()
                self._find()
            patient = not wait and time.process_time() - self._asked_s < PATIENCE_S
            if self._to_compile is not None and not patient:
                # No daemon: the interpreter waits for it at exit instead of unloading LLVM while it runs.
                self._thread = threading.Thread(target=self._compile, args=self._to_compile, name=THREAD)
                self._to_compile = None
                self._thread.start()
        if wait and self._thread is not None:
            self._thread.join()
        return self.library

    def _find(self) -> None:
        """Load the library from the cache, or note what has to be compiled."""
        try:
            text = f"{elementwise.assembly()}\n{word_code.assembly(_WORD_FUNCTIONS, _EXPORTED)}"
            machine, key = target_of(text)
            entry = Cache().get(key)
            if entry is None:
                self._to_compile = machine, key, text
            else:
                self.library = Library(linked(machine, entry.blobs[_BLOB]))
        except (ImportError, OSError, RuntimeError, KeyError) as error:
            _log.info("the emulator compiles nothing here: %s", error)

    def _compile(self, machine: Any, key: str, text: str) -> None:
        try:
            code = object_of(machine, text)
            self.library = Library(linked(machine, code))
        except (OSError, RuntimeError) as error:
            _log.info("the emulator compiles nothing here: %s", error)
            return
        Cache().put(key, {"what": "loops of the emulator"}, {_BLOB: code})


_LOADER = _Loader()


def library(*, wait: bool = False) -> Library | None:
    """The library, or None where it is not compiled yet or none can be made.

    Args:
        wait: compile it now if it is in no cache, and wait until it is there.
    """
    return _LOADER.get(wait=wait)


def target_of(text: str) -> tuple[Any, str]:
    """LLVM's description of this processor, and the key of ``text`` compiled for it."""
    import llvmlite
    from llvmlite import binding as llvm

    with suppress(RuntimeError):  # newer releases need it no more, and say so by raising
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    processor, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=processor, features=features, opt=2, jit=True)
    parts = {
        "kind": "compiled steps", "llvm": ".".join(map(str, llvm.llvm_version_info)), "llvmlite": llvmlite.__version__,
        "triple": target.triple, "processor": processor, "features": features, "text": text,
    }  # fmt: skip
    return machine, key_of(parts)


def object_of(machine: Any, text: str) -> bytes:
    """An object file."""
    from llvmlite import binding as llvm

    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization, options.loop_interleaving = True, False
    options.loop_unrolling, options.slp_vectorization = False, False  # they take long and gain little here
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
        module, llvm.create_pass_builder(machine, options)
    )
    code: bytes = machine.emit_object(module)
    return code


def linked(machine: Any, code: bytes) -> Any:
    """An execution engine, which owns the loaded code of an object file."""
    from llvmlite import binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
