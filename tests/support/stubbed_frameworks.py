"""CuPy, JAX and Numba of a few lines each, whose arrays are in host memory and say that they are on device 0.

They imitate what warptile touches of the real modules, by the same names: CuPy and JAX's CUDA plugin do not start
without a GPU. The XLA of the imitated JAX calls a registered handler as the real one does, with the structures of its C
API.
"""

import contextlib
import ctypes
import math
import sys
import types

import ml_dtypes
import numpy as np

from warptile.runtime import xla_ffi


def aligned(shape, dtype, offset=0):
    """Zeros whose address is a multiple of 256 bytes, and ``offset`` more."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 512, np.uint8)
    start = -memory.ctypes.data % 256 + offset
    return memory[start : start + size].view(dtype).reshape(shape)


def stubbed_cupy(monkeypatch):
    """A module ``cupy``. ``current`` is the current device, ``stream`` the current stream's handle, ``made`` counts the
    arrays that were allocated."""
    module = types.ModuleType("cupy")

    class ndarray:
        __module__ = "cupy"

        def __init__(self, shape, dtype=np.float32, memory=None, device=None):
            self.array = aligned(tuple(shape), np.dtype(dtype)) if memory is None else memory
            self.dtype, self.shape, self.strides = self.array.dtype, self.array.shape, self.array.strides
            ordinal = module.current if device is None else device
            self.data = types.SimpleNamespace(ptr=self.array.ctypes.data, device_id=ordinal)
            self.device = types.SimpleNamespace(id=ordinal)
            if memory is None:
                module.made += 1

        @property
        def __cuda_array_interface__(self):
            return {
                "shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "version": 3,
                "data": (self.data.ptr, False), "stream": 1,
            }  # fmt: skip

        def __setitem__(self, index, value):
            module.assigned.append((self, value))

    @contextlib.contextmanager
    def device(ordinal):
        before, module.current = module.current, ordinal
        yield
        module.current = before

    module.ndarray, module.made, module.assigned = ndarray, 0, []
    module.current, module.stream = 0, 0x5EED
    module.empty = lambda shape, dtype: ndarray(shape, dtype)
    module.cuda = types.SimpleNamespace(
        get_current_stream=lambda device=-1: types.SimpleNamespace(ptr=module.stream),
        runtime=types.SimpleNamespace(getDevice=lambda: module.current),
        Device=device,
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


class DeviceArray:
    """As Numba's: memory on a GPU that is described by ``__cuda_array_interface__`` alone."""

    def __init__(self, shape, dtype=np.float32, *, stream=0x5EED, read_only=False, memory=None):
        self.array = aligned(tuple(shape), np.dtype(dtype)) if memory is None else memory
        self.stream, self.read_only, self.dtype = stream, read_only, self.array.dtype

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.array.shape, "strides": self.array.strides, "typestr": self.array.dtype.str, "version": 3,
            "data": (self.array.ctypes.data, self.read_only), "stream": self.stream,
        }  # fmt: skip

    def data_ptr(self):
        return self.array.ctypes.data


def stubbed_jax(monkeypatch):
    """A module ``jax``. ``programs`` counts what was jitted, ``hosted`` the arrays that were brought to the host,
    ``runs_on`` is where XLA runs a program."""
    module = types.ModuleType("jax")
    module.programs, module.hosted, module.stream, module.runs_on = 0, 0, 0xA11, 0
    registered = {}

    class SingleDeviceSharding:
        def __init__(self, platform="gpu", ordinal=0, memory_kind="device"):
            client = types.SimpleNamespace(platform_version="PJRT C API\ncuda 13000")
            self.device_set = {_Device(platform, ordinal, client)}
            self.memory_kind, self.said = memory_kind, (platform, ordinal, memory_kind)

        def __eq__(self, other):
            return self.said == other.said

        def __hash__(self):
            return hash(self.said)

    class ArrayImpl:
        __module__ = "jaxlib._jax"

        def __init__(self, shape, dtype=np.float32, *, place=None, memory=None):
            self.array = aligned(tuple(shape), np.dtype(dtype)) if memory is None else memory
            self.shape, self.dtype, self.ndim = self.array.shape, self.array.dtype, self.array.ndim
            self.sharding = place or SingleDeviceSharding()

        def unsafe_buffer_pointer(self):
            return self.array.ctypes.data

        def __array__(self, dtype=None, copy=None):
            module.hosted += 1
            return self.array

    module.Array, module.sharding = ArrayImpl, types.SimpleNamespace(SingleDeviceSharding=SingleDeviceSharding)
    module.Sharding = SingleDeviceSharding
    module.ShapeDtypeStruct = lambda shape, dtype: (shape, dtype)
    module.numpy = types.SimpleNamespace(asarray=lambda array: ArrayImpl(array.shape, array.dtype, memory=array))

    def jit(function):
        module.programs += 1
        return function

    def ffi_call(target, result):
        shape, dtype = result

        def call(*operands, call):
            made = ArrayImpl(shape, dtype)
            pointers = [each.unsafe_buffer_pointer() for each in operands]
            message = execute(
                registered[target], int(call), pointers, [made.unsafe_buffer_pointer()], module.stream, module.runs_on
            )
            if message is not None:
                raise ValueError(f"INTERNAL: {message}")
            return made

        return call

    def register(name, handler, platform):
        assert platform == "CUDA"
        assert describe(handler) == (0, 3)
        registered[name] = handler

    ffi = types.ModuleType("jax.ffi")
    ffi.ffi_call, ffi.register_ffi_target, ffi.pycapsule = ffi_call, register, lambda handler: handler
    module.jit, module.ffi = jit, ffi
    monkeypatch.setitem(sys.modules, "jax", module)
    monkeypatch.setitem(sys.modules, "jax.ffi", ffi)
    return module


class _Device:
    def __init__(self, platform, ordinal, client):
        self.platform, self.local_hardware_id, self.client = platform, ordinal, client


class _Xla:
    """The side of XLA's foreign function interface that calls handlers."""

    def __init__(self, stream, ordinal, version=(0, 3)):
        self.message = None
        xla_ffi._questions.cache_clear()  # the real XLA has one table of functions for good

        def create(given):
            made = ctypes.cast(given, ctypes.POINTER(xla_ffi._ErrorCreate)).contents
            self.message = made.message.decode()
            return 0xE44

        def stream_get(given):
            if stream is None:
                return 0xBAD
            ctypes.cast(given, ctypes.POINTER(xla_ffi._StreamGet)).contents.stream = stream
            return None

        def ordinal_get(given):
            ctypes.cast(given, ctypes.POINTER(xla_ffi._OrdinalGet)).contents.ordinal = ordinal

        types_of = dict(xla_ffi._Api._fields_)
        self.api = xla_ffi._Api(struct_size=ctypes.sizeof(xla_ffi._Api))
        self.api.version.major, self.api.version.minor = version
        self.api.error_create = types_of["error_create"](create)
        self.api.stream_get = types_of["stream_get"](stream_get)
        self.api.ordinal_get = types_of["ordinal_get"](ordinal_get)


def _buffers(pointers):
    each = [xla_ffi._Buffer(data=pointer) for pointer in pointers]
    array = (ctypes.POINTER(xla_ffi._Buffer) * max(len(each), 1))(*map(ctypes.pointer, each))
    made = xla_ffi._Buffers(size=len(each), each=ctypes.addressof(array))
    made.kept = each, array
    return made


def execute(handler, said, arguments, results, stream=7, ordinal=0, stage=xla_ffi.EXECUTE_STAGE):
    """Call a handler as XLA does, with an integer or a text as its attribute; the message of its error, or None. With a
    stream of None, XLA has no GPU."""
    xla = _Xla(stream, ordinal)
    if isinstance(said, bytes):
        memory = ctypes.create_string_buffer(said)
        attribute = xla_ffi._Text(ctypes.addressof(memory), len(said))
    else:
        value = ctypes.c_int64(said)
        attribute = xla_ffi._Scalar(value=ctypes.pointer(value))
    attributes = (ctypes.c_void_p * 1)(ctypes.addressof(attribute))
    given, made = _buffers(arguments), _buffers(results)
    frame = xla_ffi.CallFrame(
        api=ctypes.pointer(xla.api), stage=stage, arguments=given, results=made,
        attributes=xla_ffi._Attributes(size=1, each=ctypes.addressof(attributes)),
    )  # fmt: skip
    error = handler(ctypes.pointer(frame))
    if not error:
        return None
    return xla.message if error == 0xE44 else f"XLA's own error {error:#x}"


def describe(handler, version=(0, 3)):
    """Ask a handler for its API version, as XLA does at registration; or the message of its error."""
    xla = _Xla(7, 0, version)
    metadata = xla_ffi._Metadata()
    extension = xla_ffi._MetadataExtension(metadata=ctypes.pointer(metadata))
    extension.base.type = xla_ffi.METADATA_EXTENSION
    frame = xla_ffi.CallFrame(
        api=ctypes.pointer(xla.api),
        extension=ctypes.cast(ctypes.pointer(extension), ctypes.POINTER(xla_ffi._Extension)),
    )
    error = handler(ctypes.pointer(frame))
    return xla.message if error else (metadata.version.major, metadata.version.minor)


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
