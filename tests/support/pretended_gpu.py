"""A GPU that is not there, for the programs that measure on one: memory is host memory, kernels are NumPy, and time is
a number that each launch moves forward. Rungs can be slow, wrong, or take the context down."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.bench.campaign import ladder_sweep
from warptile.codegen.nvrtc import CompiledKernel, Resources
from warptile.errors import DeviceError, UnsupportedError
from warptile.gpu import driver, timing
from warptile.planning.plan import config_text
from warptile.runtime import device_product
from warptile.runtime.device_product import DENSE
from warptile.verify.reference import stored_shape

DEVICE = driver.DeviceInfo(
    ordinal=0, name="NVIDIA H200", capability=(9, 0), multiprocessors=132, memory_bytes=2**37, l2_bytes=60 * 2**20,
    shared_bytes_per_block=232448, clock_hz=1.7e9, driver_cuda=(13, 0), uuid="GPU-0",
)  # fmt: skip

L2_SIZES = timing._L2_SIZES
"""Of operands, before a set of them is used again on a real GPU."""

FEW_L2_SIZES = 1 / 64
"""The same on the pretended one, where a problem has many sets still: nothing is faster for being used again, and
copying hundreds of sets would take most of the time of a test."""


def unpacked(stored, element):
    """Elements narrower than a byte, one in each byte, from rows of bytes that hold the first in their lowest bits."""
    shifts = np.arange(8 // element.bits) * element.bits
    values = (stored[:, :, None] >> shifts) & ((1 << element.bits) - 1)
    values = values.reshape(len(stored), -1).astype(np.int64)
    return values - ((values >> 3) << 4) if element.name == "int4" else values


class PretendedGpu:
    """State of the pretended GPU: its clock, and what each rung does.

    Attributes:
        time_ms: (rung, config) -> milliseconds of a launch.
        faults: names of rungs whose launch loses the context.
        copied: of each copy before a product, its kernel and the names that its launch was given.
        wrong: names of rungs whose result is off; ``outside``: that write behind D; ``lazy``: that skip the last row;
            ``between``: that write behind the first row of D.
        library_ms: milliseconds of each of the library's algorithms.
        without_library: operand types that the library does not multiply.
    """

    def __init__(self):
        self.now_ms = 0.0
        self.launches = 0
        self.time_ms = lambda rung, config: 1.0
        self.faults, self.wrong, self.outside, self.lazy, self.between = set(), set(), set(), set(), set()
        self.library_ms = (0.75, 0.5, 1.0)
        self.without_library = set()
        self.plans, self.copied = {}, []
        self.alive = True

    def install(self, monkeypatch, l2_sizes=FEW_L2_SIZES):
        gpu = self

        class Allocation:
            def __init__(self, size_bytes):
                self.size_bytes = size_bytes
                self.memory = np.zeros(max(size_bytes, 1) + 256, np.uint8)
                self.address = -(-self.memory.ctypes.data // 256) * 256
                self.start = self.address - self.memory.ctypes.data

            @classmethod
            def from_array(cls, array):
                made = cls(array.nbytes)
                made.from_host(array)
                return made

            def _view(self, offset_bytes, count):
                assert offset_bytes >= 0
                assert offset_bytes + count <= self.size_bytes
                return self.memory[self.start + offset_bytes : self.start + offset_bytes + count]

            def from_host(self, array, offset_bytes=0):
                assert array.flags.c_contiguous
                self._view(offset_bytes, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

            def to_host(self, array, offset_bytes=0):
                gpu.check()
                array.reshape(-1).view(np.uint8)[:] = self._view(offset_bytes, array.nbytes)
                return array

            def fill(self, byte, stream=0):
                self._view(0, self.size_bytes)[:] = byte

            def close(self):
                self.memory = None

        class Event:
            def record(self, stream=0):
                self.at_ms = gpu.now_ms

            def synchronize(self):
                gpu.check()

            def elapsed_ms(self, later):
                return later.at_ms - self.at_ms

        class Stream:
            handle = 7

            def __enter__(self):
                return self

            def __exit__(self, *error):
                pass

        class Capture:
            """Counts the time of what is captured, and gives it back at each launch."""

            def __init__(self, stream):
                pass

            def __enter__(self):
                self.start_ms, self.made = gpu.now_ms, []
                return self.made

            def __exit__(self, *error):
                unit_ms = gpu.now_ms - self.start_ms
                gpu.now_ms = self.start_ms

                def launch(stream):
                    gpu.now_ms += unit_ms

                self.made.append(SimpleNamespace(launch=launch))

        class Product(list):
            """Its length is the number of algorithms."""

            def __init__(self):
                super().__init__(gpu.library_ms)

            launch = staticmethod(gpu.library_launch)
            name = staticmethod(lambda index: f"heuristic {index}")
            close = staticmethod(lambda: None)

        class Library:
            version = "cublasLt 13.1.2"

            def product(self, key, alignment_bytes=256):
                if key.dtype in gpu.without_library:
                    raise UnsupportedError(f"baseline: no {key.dtype}")
                return Product()

        monkeypatch.setattr(timing, "_L2_SIZES", l2_sizes)
        monkeypatch.setattr(driver, "enter", lambda ordinal=None: 0)
        monkeypatch.setattr(driver, "device_info", lambda ordinal=None: DEVICE)
        monkeypatch.setattr(driver, "_clustered", lambda info: ())
        monkeypatch.setattr(driver, "synchronize", gpu.check)
        monkeypatch.setattr(driver, "Allocation", Allocation)
        monkeypatch.setattr(driver, "Event", Event)
        monkeypatch.setattr(driver, "Stream", Stream)
        monkeypatch.setattr(driver, "Graph", SimpleNamespace(capture=Capture))
        monkeypatch.setattr(driver, "outside_captures", nullcontext)
        monkeypatch.setattr(device_product, "compiled", self.compiled)
        monkeypatch.setattr(device_product, "load", self.load)
        monkeypatch.setattr(ladder_sweep, "CublasLt", Library)
        return self

    def check(self):
        if not self.alive:
            raise DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS; the GPU context is lost", context_lost=True)

    def library_launch(self, algorithm, a, b, d, workspace, stream):
        self.check()
        self.now_ms += self.library_ms[algorithm]

    def compiled(self, plan):
        entry = f"{plan.rung.name} {config_text(plan.config)} {plan.problem}"
        self.plans[entry] = plan
        return CompiledKernel(entry, plan.arch, b"", b"", Resources(100, 1024, 0, 0, 0), "", "pretended", key=entry)

    def load(self, kernel):
        plan = self.plans.get(kernel.entry)

        def launch(spec, pointers, stream=0):
            self.check()
            assert spec.entry == kernel.entry
            self.launches += 1
            if plan is None:
                self.copied.append((kernel.entry, *(pointers[name] for name in spec.operands)))
                return
            self.now_ms += self.time_ms(plan.rung.name, plan.config)
            if plan.rung.name in self.faults:
                self.alive = False
            elif stream == 0:  # results are looked at, and only timed launches have a stream of their own
                self.compute(plan, spec, pointers)

        prepare = lambda spec, pointers: SimpleNamespace(launch=lambda stream=0: launch(spec, pointers, stream))  # noqa: E731
        return SimpleNamespace(kernel=kernel, launch=launch, prepare=prepare, close=lambda: None)

    def compute(self, plan, spec, pointers):
        problem = plan.problem
        operands = {"A": problem.a, "B": problem.b, "C": problem.c, "D": problem.d}
        for index in range(problem.batch):
            moved = {
                name: index * operand.batch_stride * operand.dtype.bits // 8
                for name, operand in operands.items()
                if operand is not None
            }
            here = {name: address + moved.get(name, 0) for name, address in pointers.items()}
            self.compute_one(problem.single, plan.rung.name, spec, here)

    def compute_one(self, problem, name, spec, pointers):

        def at(operand, shape, element):
            columns = shape[1]
            if operand != DENSE:
                described = getattr(problem, operand.lower())
                assert pointers[operand] % described.alignment_bytes == 0
                columns = columns if described.sparse else described.leading_dimension
            size = shape[0] * columns * element.bits // 8
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointers[operand]))
            if element.bits < 8:
                return unpacked(memory.reshape(shape[0], -1), element)[:, : shape[1]]
            return memory.view(numpy_dtype(element)).reshape(shape[0], columns)[:, : shape[1]]

        m, n, k = problem.m, problem.n, problem.k
        a = at(DENSE if problem.a.sparse else "A", stored_shape(m, k, problem.a), problem.a.dtype)
        a = a if problem.a.major == "row" else a.T
        b = at("B", stored_shape(k, n, problem.b), problem.b.dtype)
        (params,) = spec.arguments
        members = dict(params.members)
        alpha, beta = members["alpha"].value, members["beta"].value
        d = at("D", (m, n), problem.d.dtype)
        wide = np.int64 if problem.a.dtype.kind != "float" else np.float64
        b = b if problem.b.major == "row" else b.T
        product = a.astype(wide) @ b.astype(wide)
        if problem.accumulator.name == "int32_xor":
            product = (a[:, :, None] != b[None]).sum(axis=1)
        result = alpha * product
        if beta:
            result = result + beta * at("C", (m, n), problem.c.dtype).astype(np.float64)
        result = result.astype(wide).astype(np.int32) if problem.a.dtype.kind != "float" else result
        if name in self.wrong:
            result = result + 1000
        rows = m - 1 if name in self.lazy else m
        d[:rows] = result[:rows]
        if name in self.outside:
            ctypes.memset(pointers["D"] + m * problem.d.leading_dimension * problem.d.dtype.bits // 8, 0, 2)
        if name in self.between:
            ctypes.memset(pointers["D"] + n * problem.d.dtype.bits // 8, 0, 1)
