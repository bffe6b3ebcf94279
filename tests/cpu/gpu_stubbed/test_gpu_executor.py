"""What reaches the driver at a launch: packed arguments, limits, clusters. The driver is a recording stand-in."""

import ctypes
import math
import struct
import types

import pytest

from warptile.codegen.nvrtc import CompiledKernel, Resources
from warptile.errors import ArgumentError, LayoutError, UnsupportedError
from warptile.gpu import driver, loader
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec


def _spec(*arguments, **changes):
    fields = {"entry": "k", "grid": (3, 2, 1), "block": (128, 1, 1), "arguments": tuple(arguments)}
    return LaunchSpec(**{**fields, **changes})


def _unpacked(packed, code, position):
    addresses = (ctypes.c_void_p * (position + 1)).from_address(packed.address)
    return struct.unpack(code, ctypes.string_at(addresses[position], struct.calcsize(code)))[0]


@pytest.mark.parametrize(
    ("argument", "code", "expected"),
    [
        (Pointer("A"), "<Q", 0x7F0000001000),
        (Pointer("A", 24), "<Q", 0x7F0000001018),
        (Pointer(None), "<Q", 0),
        (Scalar("s32", -5), "<i", -5),
        (Scalar("u32", 2**32 - 1), "<I", 2**32 - 1),
        (Scalar("s64", -(2**63)), "<q", -(2**63)),
        (Scalar("u64", 2**64 - 1), "<Q", 2**64 - 1),
        (Scalar("f16", 1.5), "<e", 1.5),
        (Scalar("f32", 0.1), "<f", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        (Scalar("f64", 0.1), "<d", 0.1),
        (Scalar("f32", 1), "<f", 1.0),
        (Scalar("f32", 1e39), "<f", math.inf),
        (Scalar("f16", -1e6), "<e", -math.inf),
    ],
)
def test_each_argument_has_its_own_bytes(argument, code, expected):
    spec = _spec(Scalar("s32", 7), argument, Scalar("s64", -1))
    packed = loader.PackedArguments(spec, {"A": 0x7F0000001000})
    assert _unpacked(packed, code, 1) == expected
    assert _unpacked(packed, "<i", 0) == 7
    assert _unpacked(packed, "<q", 2) == -1


def test_nan_stays_nan_and_a_kernel_may_have_no_parameters():
    assert math.isnan(_unpacked(loader.PackedArguments(_spec(Scalar("f32", math.nan)), {}), "<f", 0))
    assert loader.PackedArguments(_spec(), {}).address


@pytest.mark.parametrize("argument", [Scalar("s32", 2**31), Scalar("u32", -1), Scalar("s32", 1.5)])
def test_an_integer_that_does_not_fit_is_never_truncated(argument):
    with pytest.raises(ArgumentError, match=rf"{argument.type} holds whole numbers from"):
        loader.PackedArguments(_spec(argument), {})


def test_an_operand_without_an_address_is_named():
    spec = _spec(Pointer("A"), Pointer("B"), Pointer("D"))
    with pytest.raises(LayoutError, match=r"needs an address for A, B, D and got A, D; add B"):
        loader.PackedArguments(spec, {"A": 1, "D": 2})


class _Function:
    """Records what a driver function is asked to do."""

    ordinal = 0

    def __init__(self):
        self.calls, self.clusters = [], 0

    def set_attribute(self, name, value):
        self.calls.append((name, value))

    def launch(self, spec, stream, parameters):
        assert parameters
        self.calls.append((spec.grid, spec.block, spec.cluster, spec.dynamic_shared_bytes, stream))

    def ctas_per_sm(self, threads, dynamic_shared_bytes):
        return 2048 // threads

    def co_resident_clusters(self, spec):
        self.calls.append(("clusters", spec.cluster, spec.dynamic_shared_bytes))
        return self.clusters


class _Module:
    def __init__(self, function):
        self._function = function

    def function(self, entry):
        assert entry == "k"
        return self._function


H200 = driver.DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 2**37, 60 * 2**20, 232448, 1.98e9, (13, 0), "GPU-0")


@pytest.fixture
def function(monkeypatch):
    import contextlib

    monkeypatch.setattr(driver, "on_device", lambda ordinal: contextlib.nullcontext())
    return _Function()


def _loaded(function, static_shared_bytes=0):
    resources = Resources(40, static_shared_bytes, 0, 0, 0)
    return loader.LoadedKernel(
        CompiledKernel("k", "sm_90a", b"", b"", resources, "", "NVRTC", ""), _Module(function), H200
    )


def test_a_launch_passes_its_geometry_and_stream_on(function):
    _loaded(function).launch(_spec(dynamic_shared_bytes=1024), {}, 99)
    assert function.calls == [((3, 2, 1), (128, 1, 1), (1, 1, 1), 1024, 99)]


def test_more_than_48_kb_of_dynamic_shared_memory_is_asked_for_once(function):
    loaded = _loaded(function)
    for size in (48 * 1024, 100_000, 80_000, 100_000, 120_000):
        loaded.launch(_spec(dynamic_shared_bytes=size), {})
    assert [call for call in function.calls if call[0] == "MAX_DYNAMIC_SHARED_SIZE_BYTES"] == [
        ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 100_000),
        ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 120_000),
    ]
    assert function.calls[0][3] == 48 * 1024


def test_static_shared_memory_counts_towards_the_48_kb(function):
    loaded = _loaded(function, static_shared_bytes=16)
    loaded.launch(_spec(dynamic_shared_bytes=48 * 1024 - 16), {})
    assert len(function.calls) == 1
    loaded.launch(_spec(dynamic_shared_bytes=48 * 1024), {})
    assert function.calls[1] == ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 48 * 1024)


def test_more_shared_memory_than_a_block_can_have_is_refused_before_the_driver(function):
    loaded = _loaded(function, static_shared_bytes=1024)
    loaded.launch(_spec(dynamic_shared_bytes=232448 - 1024), {})
    function.calls.clear()
    with pytest.raises(UnsupportedError, match=r"231425 bytes of dynamic.*can have 231424 beside its 1024 static"):
        loaded.launch(_spec(dynamic_shared_bytes=232448 - 1023), {})
    assert function.calls == []


@pytest.mark.parametrize(("threads", "most"), [(1024, 264), (2048, 132)])
def test_ctas_that_wait_for_each_other_are_all_resident(function, threads, most):
    loaded = _loaded(function)
    for co_resident, ctas in ((True, most), (False, most + 1)):
        loaded.launch(_spec(grid=(ctas, 1, 1), block=(threads, 1, 1), co_resident=co_resident), {})
    words = f"its {most + 1} CTAs wait for each other, and NVIDIA H200 with its 132 SMs holds {most} of them at a time"
    with pytest.raises(UnsupportedError, match=f"{words}; .* max_sms={most}"):
        loaded.launch(_spec(grid=(most + 1, 1, 1), block=(threads, 1, 1), co_resident=True), {})
    assert len(function.calls) == 2


@pytest.mark.parametrize("cluster", [(2, 1, 1), (2, 2, 1)])
def test_the_driver_says_how_many_clusters_are_resident_with_the_attributes_of_the_launch_set(function, cluster):
    loaded, size = _loaded(function), math.prod(cluster)
    function.clusters = 29
    how = {"cluster": cluster, "co_resident": True, "dynamic_shared_bytes": 200_000}
    for _ in range(3):
        loaded.launch(_spec(grid=(2, 29 * size // 2, 1), **how), {})
    with pytest.raises(
        UnsupportedError, match=rf"its {30 * size} CTAs in clusters of {size} wait .* holds {29 * size}"
    ):
        loaded.launch(_spec(grid=(2, 30 * size // 2, 1), **how), {})
    asked = [("MAX_DYNAMIC_SHARED_SIZE_BYTES", 200_000), ("clusters", cluster, 200_000)]
    assert [call for call in function.calls if len(call) < 5] == asked, "once, and after what it depends on"


def test_a_launch_without_waiting_ctas_asks_for_no_occupancy(function):
    _loaded(function).launch(_spec(grid=(4000, 1, 1), cluster=(2, 1, 1)), {})
    assert [len(call) for call in function.calls] == [5]


def test_large_clusters_are_opted_in_to(function):
    loaded = _loaded(function)
    loaded.launch(_spec(cluster=(2, 1, 1)), {})
    assert [call[0] for call in function.calls] == [(3, 2, 1)]
    loaded.launch(_spec(cluster=(16, 1, 1)), {})
    assert ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1) in function.calls


@pytest.fixture
def launched(monkeypatch):
    """Bindings that keep what they were asked to launch."""
    kept = []

    attribute = lambda: types.SimpleNamespace(value=types.SimpleNamespace(clusterDim=types.SimpleNamespace()))  # noqa: E731
    ids = types.SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster",
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="early",
    )
    made = types.SimpleNamespace(
        CUstream=int, CUlaunchConfig=types.SimpleNamespace, CUlaunchAttribute=attribute, CUlaunchAttributeID=ids,
        cuLaunchKernel=lambda *given: kept.append(given) or (0,),
        cuLaunchKernelEx=lambda config, *given: kept.append(config) or (0,),
        cuOccupancyMaxActiveClusters=lambda handle, config: (kept.append((handle, config)) or 0, 58),
    )  # fmt: skip
    monkeypatch.setattr(driver, "_cuda", lambda: made)
    driver._launch_attributes.cache_clear()
    yield kept
    driver._launch_attributes.cache_clear()


def test_a_launch_that_overlaps_the_one_before_says_so_to_the_driver(launched):
    kernel = driver.Function("handle", "k", 0)
    kernel.launch(_spec(), 5, 4096)
    assert launched.pop() == ("handle", 3, 2, 1, 128, 1, 1, 0, 5, 4096, 0)
    for cluster, expected in (((1, 1, 1), ["early"]), ((2, 1, 1), ["cluster", "early"])):
        kernel.launch(_spec(overlaps_previous=True, cluster=cluster), 5, 4096)
        config = launched.pop()
        assert [each.id for each in config.attrs] == expected
        assert config.numAttrs == len(expected)
        assert config.attrs[-1].value.programmaticStreamSerializationAllowed == 1
        assert (config.gridDimX, config.gridDimY, config.blockDimX, config.hStream) == (3, 2, 128, 5)
    kernel.launch(_spec(cluster=(2, 1, 1)), 5, 4096)
    assert [each.id for each in launched.pop().attrs] == ["cluster"]


def test_occupancy_in_clusters_is_asked_for_the_configuration_that_is_launched(launched):
    spec = _spec(grid=(4, 33, 1), cluster=(2, 1, 1), overlaps_previous=True, dynamic_shared_bytes=4096)
    assert driver.Function("handle", "k", 0).co_resident_clusters(spec) == 58
    ((handle, config),) = launched
    assert (handle, config.gridDimX, config.gridDimY, config.blockDimX) == ("handle", 4, 33, 128)
    assert config.sharedMemBytes == 4096
    assert [each.id for each in config.attrs] == ["cluster"]


@pytest.mark.parametrize("grid", [(0, 1, 1), (4, 0, 1), (4, 4, 0)])
def test_a_grid_without_blocks_launches_nothing(function, grid):
    _loaded(function).launch(_spec(grid=grid), {})
    assert function.calls == []


def test_a_spec_of_another_kernel_is_refused(function):
    with pytest.raises(UnsupportedError, match=r"launches other, this kernel is k"):
        _loaded(function).launch(_spec(entry="other"), {})


def test_a_prepared_launch_runs_many_times_on_any_stream(function):
    prepared = _loaded(function).prepare(_spec(Pointer("A")), {"A": 4096})
    for stream in (0, 5, 7):
        prepared.launch(stream)
    assert [call[4] for call in function.calls] == [0, 5, 7]


def test_occupancy_counts_all_threads_of_a_block(function):
    assert _loaded(function).ctas_per_sm(_spec(block=(32, 4, 2))) == 8


@pytest.mark.parametrize(
    ("capability", "arch", "runs"),
    [
        ((9, 0), "sm_90a", True), ((9, 0), "sm_90", True), ((9, 0), "sm_80", False), ((10, 0), "sm_90a", False),
        ((8, 9), "sm_80", True), ((8, 9), "sm_89", True), ((8, 0), "sm_86", False), ((7, 5), "sm_75", True),
        ((12, 1), "sm_120a", False), ((12, 1), "sm_120", True), ((10, 3), "sm_100", True),
    ],
)  # fmt: skip
def test_a_cubin_runs_on_its_major_and_no_older_minor(capability, arch, runs):
    import dataclasses

    assert dataclasses.replace(H200, capability=capability).runs(arch) is runs


def test_a_kernel_for_another_gpu_is_refused_with_the_target_to_compile_for(monkeypatch):
    monkeypatch.setattr(driver, "enter", lambda ordinal: 0)
    monkeypatch.setattr(driver, "device_info", lambda ordinal: H200)
    kernel = CompiledKernel("k", "sm_80", b"", b"", Resources(1, 0, 0, 0, 0), "", "NVRTC", "")
    with pytest.raises(UnsupportedError, match=r"compiled for sm_80, which NVIDIA H200.*compile with arch='sm_90a'"):
        loader.load(kernel)
