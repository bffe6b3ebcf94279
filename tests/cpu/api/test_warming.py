"""`warptile.warm`: which kernels it compiles, and what it says of arguments that it does not take."""

import numpy as np
import pytest

import warptile as wt
from warptile import warming
from warptile.codegen.translation_unit import translation_unit
from warptile.device import KNOWN, REFERENCE
from warptile.planning.shipped_kernels import shipped_plans
from warptile.runtime import execute
from warptile.runtime.compile_ahead import WarmReport


@pytest.fixture
def plans(monkeypatch, tmp_path):
    """What would be compiled: the plans of the last call, and its device and number of jobs."""
    said = {}

    def compile_ahead(plans, device, jobs, progress):
        said.update(plans=list(plans), device=device, jobs=jobs)
        return WarmReport(device.name, device.arch, tmp_path, 0.0, ())

    monkeypatch.setattr(warming, "compile_ahead", compile_ahead)
    monkeypatch.setattr(warming, "has_gpu", lambda: False)
    monkeypatch.setattr(execute, "has_gpu", lambda: False)
    monkeypatch.delenv("WARPTILE_ARCH", raising=False)
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    return said


def units(plans):
    return {translation_unit(plan.kernel) for plan in plans}


def test_with_nothing_said_it_compiles_what_ships_for_the_gpu_that_is_there(plans, monkeypatch):
    monkeypatch.setattr(warming, "target_of", lambda arch, device: warming.Target(REFERENCE, REFERENCE.name))
    report = wt.warm()
    assert (report.device, report.arch) == ("NVIDIA H200", "sm_90a")
    assert units(plans["plans"]) == units(shipped_plans(REFERENCE))


@pytest.mark.parametrize("dtypes", ["f16", ["float16"], np.float16, (np.dtype("float16"), "half")])
def test_shipped_kernels_of_some_types(plans, dtypes):
    wt.warm(dtypes=dtypes, arch="sm_90a", jobs=3)
    assert {plan.problem.a.dtype.name for plan in plans["plans"]} == {"float16"}
    assert plans["jobs"] == 3


def test_shapes_are_planned_as_matmul_plans_them(plans):
    wt.warm(
        [(512, 512, 512), np.array((64, 4096, 1024)).tolist()], dtypes=["bf16", "e4m3"], b_major="col", arch="sm_90a"
    )
    said = [(plan.problem.m, plan.problem.n, plan.problem.k, plan.problem.a.dtype.name) for plan in plans["plans"]]
    assert said == [
        (512, 512, 512, "bfloat16"), (512, 512, 512, "float8_e4m3"),
        (64, 4096, 1024, "bfloat16"), (64, 4096, 1024, "float8_e4m3"),
    ]  # fmt: skip
    target = warming.Target(REFERENCE, REFERENCE.name)
    for plan in plans["plans"]:
        assert plan.problem.b.major == "col"
        assert plan == execute.planned(plan.problem, target)
    wt.warm([(512, 512, 512)], dtypes="bf16", out_dtype="float32", with_c=True, device="NVIDIA H100 PCIe")
    [plan] = plans["plans"]
    assert (plan.problem.d.dtype.name, plan.problem.c is not None) == ("float32", True)
    assert plan.device == KNOWN["NVIDIA H100 PCIe"]


def test_arrays_and_plans_are_planned_for_the_gpu_that_is_named(plans):
    a, b = np.zeros((96, 64), np.float16), np.zeros((128, 64), np.float16)
    made = wt.plan(a, b.T, alpha=2, out_dtype="float32", backend="emulator")
    named = wt.plan(a, b.T, rung="wmma-final", backend="emulator")
    wt.warm([(a, b.T), made, named, (a, b.T, np.zeros((96, 128), np.float16))], device="NVIDIA H20")
    first, second, third, with_c = plans["plans"]
    assert all(plan.device == KNOWN["NVIDIA H20"] for plan in plans["plans"])
    assert (first.problem.m, first.problem.n, first.problem.k, first.problem.b.major) == (96, 128, 64, "col")
    assert second.problem.d.dtype.name == "float32"
    assert third.rung.name == "wmma-final"
    assert with_c.problem.c is not None


def test_what_launches_nothing_needs_no_kernel_and_addends_have_one(plans):
    empty, thin = np.zeros((0, 64), np.float16), np.zeros((32, 0), np.float16)
    wt.warm([(empty, np.zeros((64, 8), np.float16)), (thin, np.zeros((0, 8), np.float16))], arch="sm_90a")
    [addend] = plans["plans"]
    assert not hasattr(addend, "rung")


def test_without_a_gpu_the_environment_may_name_the_architecture(plans, monkeypatch):
    with pytest.raises(wt.NoDeviceError, match=r"warptile\.warm\(arch='sm_90a'\)"):
        wt.warm()
    with pytest.raises(wt.NoDeviceError, match="device='NVIDIA H200'"):
        wt.warm(device=0)
    monkeypatch.setenv("WARPTILE_ARCH", "sm_90a")
    assert wt.warm().arch == "sm_90a"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"arch": "sm_90a", "device": "NVIDIA H200"}, wt.ArgumentError, "give one of them"),
        ({"device": "H200"}, wt.UnsupportedError, "did you mean 'NVIDIA H200'"),
        ({"device": 1.5}, wt.ArgumentTypeError, "a model or an ordinal"),
        ({"arch": "sm_1"}, wt.UnsupportedError, "sm_1"),
        ({"arch": 90}, wt.ArgumentTypeError, "arch='sm_90a'"),
        ({"arch": "sm_90a", "jobs": 0}, wt.ArgumentError, "jobs=120"),
        ({"arch": "sm_90a", "jobs": "two"}, wt.ArgumentTypeError, "jobs is 'two'"),
        ({"arch": "sm_90a", "dtypes": []}, wt.ArgumentError, r"dtypes=\['bfloat16'\]"),
        ({"arch": "sm_90a", "dtypes": "int4"}, wt.DTypeError, "matmul does not multiply int4"),
        ({"arch": "sm_90a", "dtypes": "float64"}, wt.UnsupportedError, r"dtypes=\['float64'\]"),
        ({"arch": "sm_90a", "b_major": "col"}, wt.ArgumentError, "describe shapes"),
        ({"arch": "sm_90a", "b_major": "T"}, wt.ArgumentError, "b_major='col'"),
        ({"arch": "sm_90a", "problems": [(1, 2, 3)]}, wt.ArgumentError, r"dtypes=\['bfloat16'\]"),
        ({"arch": "sm_90a", "problems": (1, 2, 3), "dtypes": "bf16"}, wt.ArgumentTypeError, "a list of them"),
        ({"arch": "sm_90a", "problems": 5, "dtypes": "bf16"}, wt.ArgumentTypeError, "a list of them"),
        ({"arch": "sm_90a", "problems": ["x"], "dtypes": "bf16"}, wt.ArgumentTypeError, "each one is a shape"),
        ({"arch": "sm_90a", "problems": [(0, 2, 3)], "dtypes": "bf16"}, wt.ArgumentError, "M of"),
        ({"arch": "sm_90a", "problems": [(8, 8, 8)], "dtypes": "int8", "out_dtype": "float16"}, wt.DTypeError, "int32"),
    ],
)  # fmt: skip
def test_an_argument_that_it_does_not_take_is_answered_with_one_that_it_does(plans, arguments, error, message):
    with pytest.raises(error, match=message):
        wt.warm(**arguments)
    assert not plans


def test_the_calls_that_messages_show_run(plans):
    assert eval(warming.EXAMPLE.replace("(4096", "(64").replace("'])", "'], arch='sm_90a')"), {"warptile": wt})


def test_all_kernels_of_a_plan_of_two_gemms_or_of_scales_are_compiled(plans):
    a, b = np.zeros((96, 64), np.float16), np.zeros((64, 128), np.float16)
    gated = wt.plan(a, b, epilogue=lambda acc: wt.silu(wt.halves(acc)[0]) * wt.halves(acc)[1], backend="emulator")
    scaled = wt.plan(
        a.astype(np.int8), b.astype(np.int8), scale_a=np.ones((96, 1), np.float32), backend="emulator"
    )  # fmt: skip
    wt.warm([gated, scaled], device="NVIDIA H20")
    second, of_d, of_scaled = plans["plans"]
    assert (second.problem.d.dtype.name, of_d.problem.d.dtype.name) == ("float32", "float16")
    assert of_scaled.problem.epilogue is not None
    assert all(plan.device == KNOWN["NVIDIA H20"] for plan in plans["plans"])
