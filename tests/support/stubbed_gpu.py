"""A GPU whose driver records launches and runs nothing, and a torch of a few lines: for tests of what calls hand over.

Memory is host memory, so addresses are real. `cuLaunchKernelEx` is a C function that ctypes makes of a Python one: what
it sees is what the driver would."""

import contextlib
import ctypes
import math
import struct
import sys
import types
from dataclasses import dataclass

import numpy as np

from warptile.codegen.nvrtc import CompiledKernel, Resources
from warptile.gpu import driver, launch_timer, loader, native_launch, staging, stream_state, workspaces
from warptile.gpu import tensor_map as gpu_tensor_map
from warptile.runtime import compilations, execute

CONTEXT, OTHER_CONTEXT = 0xC0DE, 0xBAD

DEVICE = driver.DeviceInfo(
    ordinal=0, name="NVIDIA H200", capability=(9, 0), multiprocessors=132, memory_bytes=2**37, l2_bytes=60 * 2**20,
    shared_bytes_per_block=232448, clock_hz=1.7e9, driver_cuda=(13, 0), uuid="GPU-0",
)  # fmt: skip


@dataclass(frozen=True)
class Launched:
    """One launch as the driver saw it.

    Attributes:
        entry: the kernel.
        grid, block, cluster: as in `LaunchSpec`.
        shared: bytes of dynamic shared memory.
        overlaps: programmatic stream serialization was allowed.
        stream: handle.
        parameters: the bytes of each parameter.
        context: which context was current.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    overlaps: bool
    stream: int
    parameters: tuple[bytes, ...]
    context: int


class StubbedGpu:
    """State of the driver.

    Attributes:
        launches: what was launched, in order.
        status: what the next launches return.
        current: the context that is current.
        prepared: launches that took the long way, through `Function.launch`.
        compiled: number of kernels that were compiled.
        compiling: called with each source; it may wait, or raise.
        capturing: streams are being captured.
        copies: what was copied between host and device, and which streams were waited for, in order.
        specs: the last spec that was bound of each kernel, by its name.
        takes_ms: milliseconds that a launch takes, for events around it.
        passed: what events say when they are asked whether the GPU has passed them; it may raise.
        events: events that were made.
        recorded: streams in which events were recorded, with the number of launches before them.
    """

    def __init__(self):
        self.launches, self.prepared, self.status, self.contexts = [], [], 0, [CONTEXT]
        self.kernels, self.specs, self.sizes, self.compiled = {}, {}, {}, 0
        self.compiling, self.capturing, self.copies = lambda source: None, False, []
        self.takes_ms, self.passed, self.events, self.recorded = lambda launched: 1.0, lambda: True, 0, []

    @property
    def current(self):
        return self.contexts[-1] if self.contexts else 0

    def install(self, monkeypatch):
        gpu = self
        from cuda.bindings import driver as bindings

        monkeypatch.setattr(driver, "_clustered", lambda info: ())

        def get_current(where):
            ctypes.cast(where, ctypes.POINTER(ctypes.c_uint64))[0] = gpu.current
            return 0

        def push(context):
            gpu.contexts.append(context)
            return 0

        def pop(where):
            gpu.contexts.pop()
            return 0

        word, handle = ctypes.c_int, ctypes.c_uint64
        self._functions = (
            ctypes.CFUNCTYPE(word, ctypes.c_void_p)(get_current),
            ctypes.CFUNCTYPE(word, handle)(push),
            ctypes.CFUNCTYPE(word, ctypes.c_void_p)(pop),
            ctypes.CFUNCTYPE(word, ctypes.c_void_p, handle, ctypes.c_void_p, ctypes.c_void_p)(self._launch),
        )
        entries = driver.EntryPoints(*(ctypes.cast(each, ctypes.c_void_p).value for each in self._functions))

        class Allocation:
            def __init__(self, size_bytes):
                self.size_bytes = size_bytes
                self.memory = np.zeros(size_bytes + 256, np.uint8)
                self.address = -(-self.memory.ctypes.data // 256) * 256

            def fill(self, byte, stream=0):
                self.memory[:] = byte

            def close(self):
                self.memory = None

        class Stream:
            handle = 7
            close = lambda self: None  # noqa: E731
            __enter__ = lambda self: self  # noqa: E731
            __exit__ = lambda self, *error: None  # noqa: E731

        class Event:
            def __init__(self):
                gpu.events += 1

            def record(self, stream=0):
                assert not gpu.capturing, "a graph would keep the event"
                self.position = len(gpu.launches)
                gpu.recorded.append((stream, self.position))

            def passed(self):
                return gpu.passed()

            def elapsed_ms(self, later):
                return sum(map(gpu.takes_ms, gpu.launches[self.position : later.position]))

        class Function(driver.Function):
            def set_attribute(self, name, value):
                pass

            def ctas_per_sm(self, threads, dynamic_shared_bytes):
                return 2048 // threads

            def co_resident_clusters(self, spec):
                return DEVICE.multiprocessors // math.prod(spec.cluster)

            def launch(self, spec, stream, parameters):
                gpu.prepared.append(spec)

        class Module:
            def __init__(self, cubin):
                pass

            def function(self, entry):
                handle = gpu.kernels.setdefault(entry, 0x1000 + len(gpu.kernels))
                return Function(bindings.CUfunction(handle), entry, 0)

            def close(self):
                pass

        monkeypatch.setattr(driver, "_cuda", lambda: bindings)
        monkeypatch.setattr(driver, "_explain", lambda status: "no description")
        monkeypatch.setattr(driver, "available", lambda: True)
        monkeypatch.setattr(driver, "enter", lambda ordinal=None: 0)
        monkeypatch.setattr(driver, "on_device", lambda ordinal: contextlib.nullcontext())
        monkeypatch.setattr(driver, "outside_captures", contextlib.nullcontext)
        monkeypatch.setattr(driver, "device_info", lambda ordinal=None: DEVICE)
        monkeypatch.setattr(driver, "context_of", lambda ordinal: CONTEXT)
        monkeypatch.setattr(driver, "entry_points", lambda: entries)
        monkeypatch.setattr(driver, "is_capturing", lambda stream: gpu.capturing)
        monkeypatch.setattr(driver, "Allocation", Allocation)
        monkeypatch.setattr(driver, "PinnedMemory", Allocation)
        monkeypatch.setattr(driver, "copy_to_device", self._copy("in"))
        monkeypatch.setattr(driver, "copy_to_host", self._copy("out"))
        monkeypatch.setattr(driver, "synchronize_stream", lambda stream: self.copies.append(("wait", stream)))
        monkeypatch.setattr(staging, "_KEPT", {})
        monkeypatch.setattr(driver, "Stream", Stream)
        monkeypatch.setattr(driver, "Event", Event)
        monkeypatch.setattr(launch_timer, "_spare", {})
        monkeypatch.setattr(driver, "Module", Module)
        monkeypatch.setattr(gpu_tensor_map, "encode", self.encode)
        gpu_tensor_map._address_is_a_field.cache_clear()
        real = native_launch.native_launch

        def bind(function, spec, image, offsets, patches, operands):
            ends = [*offsets[1:], len(image)]
            gpu.specs[spec.entry] = spec
            gpu.sizes[spec.entry] = [end - start for start, end in zip(offsets, ends, strict=True)]
            return real(function, spec, image, offsets, patches, operands)

        monkeypatch.setattr(loader, "native_launch", bind)
        monkeypatch.setattr(compilations, "compile_source", self.compile)
        monkeypatch.setattr(compilations, "cached_kernel", lambda source, arch: None)
        monkeypatch.setattr(execute, "KERNELS", compilations.Compilations())
        monkeypatch.setattr(execute, "STAND_INS", compilations.StandIns())
        monkeypatch.setattr(execute, "driver_is_installed", lambda: True)
        execute._loaded.cache_clear()
        monkeypatch.setattr(stream_state, "state_function", lambda: lambda stream: 2 * stream + gpu.capturing)
        for known in ("_OF_STREAM", "_SHARED"):
            monkeypatch.setattr(workspaces, known, {})
        return self

    def record_nothing(self, monkeypatch):
        """From now on a launch costs next to nothing: machine code that returns at once, in the device's context."""
        from llvmlite import binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        text = f"""
            define i32 @launch(ptr %config, i64 %function, ptr %parameters, ptr %extra) {{ ret i32 0 }}
            define i32 @current(ptr %where) {{ store i64 {CONTEXT}, ptr %where ret i32 0 }}
        """
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._compiler = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self._compiler.finalize_object()
        address = self._compiler.get_function_address
        entries = driver.EntryPoints(address("current"), 0, 0, address("launch"))
        monkeypatch.setattr(driver, "entry_points", lambda: entries)

    def encode(self, tensor, pointers):
        """128 bytes: the address, then what else there is to say of a map."""
        placed, address = tensor.placed(pointers[tensor.operand] + tensor.offset_bytes)
        said = repr((placed.dtype, placed.dims, placed.strides_bytes, placed.box, placed.swizzle)).encode()
        return address.to_bytes(8, "little") + said[:120].ljust(120, b"\0")

    def compile(self, source, arch):
        self.compiled += 1
        self.compiling(source)
        entry = f"kernel_{abs(hash((source, arch)))}"
        return CompiledKernel(entry, arch, b"", b"", Resources(100, 0, 0, 0, 0), "", "stubbed", key=entry)

    def _copy(self, way):
        def copy(target, source, size_bytes, stream):
            ctypes.memmove(target, source, size_bytes)
            self.copies.append((way, target, source, size_bytes, stream))

        return copy

    def _launch(self, config, function, parameters, extra):
        words = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        attributes = [ctypes.string_at(words[8] + 72 * i, 72) for i in range(words[9])]
        found = {raw[0]: raw for raw in attributes}
        entry = next(name for name, handle in self.kernels.items() if handle == function)
        sizes = self.sizes[entry]
        slots = (ctypes.c_uint64 * len(sizes)).from_address(parameters)
        cluster = struct.unpack("<3I", found[4][8:20]) if 4 in found else (1, 1, 1)
        given = tuple(ctypes.string_at(slot, size) for slot, size in zip(slots, sizes, strict=True))
        self.launches.append(
            Launched(entry, words[:3], words[3:6], cluster, words[6], 6 in found, words[7], given, self.current)
        )
        return self.status

    def expect(self, spec, pointers):
        """What the long way would hand over for ``spec``."""
        packed = loader.PackedArguments(spec, pointers)
        ends = [*packed.offsets[1:], len(packed.image)]
        return tuple(packed.image[start:end] for start, end in zip(packed.offsets, ends, strict=True))


def stubbed_torch(monkeypatch):
    """A module ``torch`` with tensors that are NumPy arrays and say that they are on device 0."""
    module = types.ModuleType("torch")

    class dtype:
        def __init__(self, name):
            self.name = name

        def __repr__(self):
            return f"torch.{self.name}"

    class Tensor:
        __module__ = "torch"
        requires_grad = False
        is_nested = False
        layout = "strided"

        def __init__(self, array, kind, grad=False):
            self.array, self.dtype, self.requires_grad = array, kind, grad
            self.device = types.SimpleNamespace(type="cuda", index=0)
            self.shape, self.strides = array.shape, tuple(each // array.itemsize for each in array.strides)
            self.address = array.ctypes.data

        def stride(self):
            return self.strides

        def data_ptr(self):
            return self.address

        def get_device(self):
            return 0

        def is_neg(self):
            return False

        def is_floating_point(self):
            return True

    class Parameter(Tensor):
        __module__ = "torch"

    module.Tensor, module.nn = Tensor, types.SimpleNamespace(Parameter=Parameter)
    module.strided, module.grad_enabled = "strided", True
    module.is_grad_enabled = lambda: module.grad_enabled
    module.autocasts = False
    module.is_autocast_enabled = lambda device: module.autocasts
    module.autograd = types.SimpleNamespace(forward_ad=types.SimpleNamespace(_current_level=-1))
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32"):
        setattr(module, name, dtype(name))
    import ml_dtypes

    numpy_of = {"bfloat16": ml_dtypes.bfloat16}

    def aligned(shape, kind):
        kind_of = np.dtype(numpy_of.get(kind.name, kind.name))
        memory = np.zeros(math.prod(shape) * kind_of.itemsize + 256, np.uint8)
        start = -memory.ctypes.data % 256
        return memory[start : start + math.prod(shape) * kind_of.itemsize].view(kind_of).reshape(shape)

    module.empty = lambda shape, dtype, device=None: Tensor(aligned(tuple(shape), dtype), dtype)
    module.stream = 0x5EED

    class TensorGuards:
        """As torch's: whether tensors are as those that it was made of."""

        def __init__(self, *tensors, dynamic_dims_sizes, dynamic_dims_strides):
            self.said = [self.say(each) for each in tensors]

        def say(self, x):
            if not isinstance(x, Tensor):
                raise TypeError("expected Tensor()")
            return type(x), x.dtype, x.shape, x.stride(), x.requires_grad and module.grad_enabled

        def check(self, *tensors):
            module.guarded += 1
            return [self.say(each) for each in tensors] == self.said

    module.guarded = 0
    module._C = types.SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: module.stream,
        _dynamo=types.SimpleNamespace(guards=types.SimpleNamespace(TensorGuards=TensorGuards)),
        _functorch=types.SimpleNamespace(is_functorch_wrapped_tensor=lambda tensor: False),
    )
    module.cuda = types.SimpleNamespace(
        current_stream=lambda device=None: types.SimpleNamespace(cuda_stream=module.stream),
        is_current_stream_capturing=lambda: driver.is_capturing(module.stream),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module
