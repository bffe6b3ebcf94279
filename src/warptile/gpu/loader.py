"""Compiled kernels on the GPU: load a cubin, pack a `LaunchSpec`'s arguments, launch on the caller's stream."""

from __future__ import annotations

import ctypes
import logging
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate

from warptile.codegen.nvrtc import CompiledKernel
from warptile.device import PORTABLE_CLUSTER_CTAS
from warptile.errors import DeviceError, LayoutError, UnsupportedError
from warptile.gpu import driver, tensor_map
from warptile.gpu.native_launch import PARAMETER_ALIGNMENT, Launch, Patch, native_launch
from warptile.launch.params import MapPointer, Params, Pointer, Scalar, StructBytes
from warptile.launch.spec import Argument, Dim3, LaunchSpec, placed_fields
from warptile.launch.tensor_map import TensorMap

PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory, static and dynamic, that a kernel may use without asking (CUDA C++ Programming Guide, "Shared
Memory")."""

_log = logging.getLogger("warptile.gpu")

_SLOT_BYTES = PARAMETER_ALIGNMENT
"""Parameters are packed this far apart at least."""


def _encode(argument: Argument, pointers: Mapping[str, int]) -> bytes:
    """The bytes of one kernel parameter, little endian."""
    if isinstance(argument, Params | StructBytes):
        return argument.encoded(lambda field: _encode(field, pointers))
    if isinstance(argument, Pointer):
        if argument.operand is None:
            return struct.pack("<Q", 0)
        return struct.pack("<Q", pointers[argument.operand] + argument.offset_bytes)
    if isinstance(argument, TensorMap):
        return tensor_map.encode(argument, pointers)
    if isinstance(argument, MapPointer):
        raise UnsupportedError(
            "a pointer to a tensor map is passed on the emulator only; for a GPU, let the kernel take the map itself: "
            "const __grid_constant__ CUtensorMap map"
        )
    return argument.encoded


class PackedArguments:
    """Kernel parameters in host memory, as the driver reads them; they live as long as this object.

    Attributes:
        address: host address of an array with the address of each parameter.
        image: the bytes of all parameters, with gaps between them.
        offsets: where each parameter begins in ``image``.
    """

    def __init__(self, spec: LaunchSpec, pointers: Mapping[str, int]) -> None:
        """Pack the arguments of ``spec``, operands at the device addresses ``pointers``.

        Raises:
            LayoutError: an operand has no address.
        """
        missing = [name for name in spec.operands if name not in pointers]
        if missing:
            raise LayoutError(
                f"pointers: {spec.entry} needs an address for {', '.join(spec.operands)} and got "
                f"{', '.join(pointers) or 'none'}; add {', '.join(missing)}, such as "
                f"pointers={{'{missing[0]}': tensor.data_ptr()}}"
            )
        encoded = [_encode(argument, pointers) for argument in spec.arguments]
        slots = [each.ljust(-(-len(each) // _SLOT_BYTES) * _SLOT_BYTES, b"\0") for each in encoded]
        self.image = b"".join(slots)
        self.offsets = [0, *accumulate(map(len, slots))][: len(slots)]
        self._values = (ctypes.c_char * (len(self.image) + _SLOT_BYTES))()
        start = -(-ctypes.addressof(self._values) // _SLOT_BYTES) * _SLOT_BYTES
        ctypes.memmove(start, self.image, len(self.image))
        self._addresses = (ctypes.c_void_p * max(len(encoded), 1))(*(start + offset for offset in self.offsets))
        self.address = ctypes.addressof(self._addresses)


def _patches(
    spec: LaunchSpec, arguments: PackedArguments, names: Sequence[str], pointers: Mapping[str, int]
) -> list[Patch] | None:
    """Where the arguments hold what calls give; None where a tensor map holds an address elsewhere too."""
    patches: list[Patch] = []
    for argument, slot in zip(spec.arguments, arguments.offsets, strict=True):
        for name, place, field in placed_fields(argument):
            offset = slot + place
            if isinstance(field, Scalar) and name in names:
                patches.append(Patch(offset, names.index(name), 0))
            if isinstance(field, Scalar) or field.operand is None:
                continue
            start = pointers[field.operand]
            if isinstance(field, Pointer):
                written = start + field.offset_bytes
            else:
                placed, written = field.placed(start + field.offset_bytes)
                if not tensor_map.address_is_a_field(placed):
                    return None
            patches.append(Patch(offset, names.index(field.operand), written - start))
    return patches


class LoadedKernel:
    """A kernel on one GPU, ready to launch."""

    def __init__(self, kernel: CompiledKernel, module: driver.Module, device: driver.DeviceInfo) -> None:
        self.kernel = kernel
        self.device = device
        self._module = module
        self._function = module.function(kernel.entry)
        self._dynamic_shared_bytes = PLAIN_SHARED_BYTES - kernel.resources.static_shared_bytes
        self._large_clusters = False
        self._most_co_resident: dict[tuple[Dim3, Dim3, int], int] = {}

    def launch(self, spec: LaunchSpec, pointers: Mapping[str, int], stream: int = 0) -> None:
        """Queue one launch and return without waiting for it. An empty grid launches nothing.

        Args:
            spec: what to launch.
            pointers: device address of each operand that the spec names.
            stream: handle of the caller's stream; 0 is the default stream.

        Raises:
            LayoutError: an operand has no address.
            UnsupportedError: the spec is of another kernel, needs more shared memory than a CTA can have, or has more
                CTAs that wait for each other than the GPU holds at a time.
            DeviceError: the driver refuses the launch. Errors of the kernel itself show at the next synchronisation.
        """
        self.prepare(spec, pointers).launch(stream)

    def prepare(self, spec: LaunchSpec, pointers: Mapping[str, int]) -> PreparedLaunch:
        """Check and pack a launch once, to queue it many times at less host cost. Raises as `launch` does."""
        self._check_entry(spec)
        self._allow(spec)
        return PreparedLaunch(self, self._function, spec, PackedArguments(spec, pointers))

    def bind(self, spec: LaunchSpec, names: Sequence[str], pointers: Mapping[str, int]) -> Launch | None:
        """Check a launch once, for many calls that differ in addresses alone.

        Args:
            spec: what to launch; its grid is not empty.
            names: operands in the order in which a call gives their addresses. A scalar member of the parameters, of
                eight bytes with its padding, may be one of them: a call then gives these bytes as an integer.
            pointers: their addresses in the first call. Where a tensor may start at any element, those of later calls
                lie as far behind a multiple of 16 bytes.

        Returns:
            ``launch(stream, *addresses)``, which queues a launch from any thread and returns the driver's status; None
            where tensor maps cannot be rewritten in place, or no machine code can be made here. Keep this kernel
            loaded for as long.

        Raises:
            As `launch`.
        """
        self._check_entry(spec)
        self._allow(spec)
        with driver.on_device(self.device.ordinal):  # the driver encodes no tensor map without a context
            arguments = PackedArguments(spec, pointers)
            patches = _patches(spec, arguments, names, pointers)
        if patches is None:
            return None
        try:
            return native_launch(self._function, spec, arguments.image, arguments.offsets, patches, len(names))
        except (ImportError, OSError, RuntimeError) as error:  # a machine on which LLVM may not make code
            _say_that_calls_cost_more(str(error))
            return None

    def launcher(self, spec: LaunchSpec, names: Sequence[str], pointers: Mapping[str, int]) -> Callable[..., None]:
        """``launch(stream, *addresses)``, which queues a launch or raises `DeviceError`: as `bind`, and where that
        finds none, a launch that is packed each time. Arguments and errors are those of `bind`."""
        native = self.bind(spec, names, pointers)

        def launch(stream: int, *addresses: int) -> None:
            if native is None:
                self.launch(spec, dict(zip(names, addresses, strict=True)), stream)
                return
            status = native(stream, *addresses)
            if status:
                raise self.refusal(spec, status)

        return launch

    def refusal(self, spec: LaunchSpec, status: int) -> DeviceError:
        """The error for a launch that the driver refused with ``status``."""
        return self._function.refusal(spec, status)

    def _check_entry(self, spec: LaunchSpec) -> None:
        if spec.entry != self.kernel.entry:
            raise UnsupportedError(
                f"spec: it launches {spec.entry}, this kernel is {self.kernel.entry}; load(...) the kernel it names"
            )

    def _allow(self, spec: LaunchSpec) -> None:
        """Opt in to what ``spec`` needs, and refuse it where its CTAs would wait for others that never start."""
        self._opt_in(spec)
        if spec.co_resident:
            self._check_co_residency(spec)

    def _opt_in(self, spec: LaunchSpec) -> None:
        """Opt in to what ``spec`` needs beyond the plain limits."""
        wanted = spec.dynamic_shared_bytes
        most = self.device.shared_bytes_per_block - self.kernel.resources.static_shared_bytes
        if wanted > most:
            raise UnsupportedError(
                f"{spec.entry}: {wanted} bytes of dynamic shared memory; a CTA on {self.device.name} can have {most} "
                f"beside its {self.kernel.resources.static_shared_bytes} static ones; take a smaller tile or fewer "
                f"stages"
            )
        with driver.on_device(self.device.ordinal):
            if wanted > self._dynamic_shared_bytes:
                self._function.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", wanted)
                self._dynamic_shared_bytes = wanted
            if math.prod(spec.cluster) > PORTABLE_CLUSTER_CTAS and not self._large_clusters:
                self._function.set_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
                self._large_clusters = True

    def _check_co_residency(self, spec: LaunchSpec) -> None:
        """Refuse a grid of which some CTAs would wait for others that never start."""
        ctas, most = math.prod(spec.grid), self.co_resident_ctas(spec)
        if ctas > most:
            clusters = f" in clusters of {math.prod(spec.cluster)}" if spec.cluster != (1, 1, 1) else ""
            raise UnsupportedError(
                f"{spec.entry}: its {ctas} CTAs{clusters} wait for each other, and {self.device.name} with its "
                f"{self.device.multiprocessors} SMs holds {most} of them at a time; take a configuration with at most "
                f"{most} CTAs, such as warptile.plan(a, b, max_sms={most})"
            )

    def co_resident_ctas(self, spec: LaunchSpec) -> int:
        """The most CTAs of ``spec`` that this GPU holds at a time, as the driver computes it for its clusters."""
        key = spec.block, spec.cluster, spec.dynamic_shared_bytes
        if key not in self._most_co_resident:
            self._opt_in(spec)
            with driver.on_device(self.device.ordinal):
                if spec.cluster == (1, 1, 1):
                    threads = math.prod(spec.block)
                    on_each = self._function.ctas_per_sm(threads, spec.dynamic_shared_bytes)
                    found = on_each * self.device.multiprocessors
                else:
                    found = self._function.co_resident_clusters(spec) * math.prod(spec.cluster)
            self._most_co_resident[key] = found
        return self._most_co_resident[key]

    def ctas_per_sm(self, spec: LaunchSpec) -> int:
        """CTAs of ``spec`` that are resident on one SM at a time, as the driver computes it."""
        self._opt_in(spec)
        with driver.on_device(self.device.ordinal):
            return self._function.ctas_per_sm(math.prod(spec.block), spec.dynamic_shared_bytes)

    def attribute(self, name: str) -> int:
        """What the driver says of the kernel: ``"NUM_REGS"``, ``"LOCAL_SIZE_BYTES"``, ``"SHARED_SIZE_BYTES"`` ..."""
        with driver.on_device(self.device.ordinal):
            return self._function.attribute(name)

    def close(self) -> None:
        """Unload the kernel. Launches still running must have ended."""
        self._module.close()


@cache
def _say_that_calls_cost_more(reason: str) -> None:
    _log.warning("launches cannot be bound (%s): every call packs its parameters, which costs the host more", reason)


class PreparedLaunch:
    """A checked launch with its packed arguments: fixed operands, any stream, any number of times."""

    def __init__(
        self, kernel: LoadedKernel, function: driver.Function, spec: LaunchSpec, arguments: PackedArguments
    ) -> None:
        self._kernel = kernel  # keeps the module loaded
        self._function = function
        self._spec = spec
        self._arguments = arguments
        self._empty = 0 in spec.grid

    def launch(self, stream: int = 0) -> None:
        """Queue the launch; it does not wait for it."""
        if self._empty:
            return
        with driver.on_device(self._function.ordinal):
            self._function.launch(self._spec, stream, self._arguments.address)


def load(kernel: CompiledKernel, ordinal: int | None = None) -> LoadedKernel:
    """Load a compiled kernel onto a GPU: by default the one whose context is current, else the first.

    Raises:
        NoDeviceError: there is no GPU.
        UnsupportedError: the kernel was compiled for an architecture that the GPU does not run.
        DeviceError: the driver refuses the cubin.
    """
    ordinal = driver.enter(ordinal)
    device = driver.device_info(ordinal)
    if not device.runs(kernel.arch):
        raise UnsupportedError(
            f"arch: {kernel.entry} was compiled for {kernel.arch}, which {device.name} (compute capability "
            f"{device.capability[0]}.{device.capability[1]}) does not run; compile with arch='{device.arch}'"
        )
    return LoadedKernel(kernel, driver.Module(kernel.cubin), device)
