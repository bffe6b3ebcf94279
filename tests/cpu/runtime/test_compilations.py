"""A kernel that is not compiled yet is compiled in the background while a compiled one serves."""

import threading
import time

import pytest

import warptile as wt
from stubbed_gpu import StubbedGpu, stubbed_torch
from warptile import api
from warptile.errors import CompileError, SlowCodeError
from warptile.runtime import compilations, execute


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    monkeypatch.delenv("WARPTILE_COMPILE", raising=False)
    return stubbed_torch(monkeypatch)


@pytest.fixture
def gpu(monkeypatch, torch):
    execute._planned.cache_clear()
    return StubbedGpu().install(monkeypatch)


def operands(torch, m, n, k):
    return torch.empty((m, k), torch.bfloat16), torch.empty((k, n), torch.bfloat16)


SMALL, LARGE = (64, 64, 64), (4096, 4096, 4096)
"""Two problems whose planned kernels differ."""


def held_up(gpu):
    """Let every compilation wait, from now on, for what is returned."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(source):
        begun.set()
        assert go_on.wait(30)

    gpu.compiling = wait
    return begun, go_on


def settle():
    """Wait until nothing is being compiled any more."""
    deadline = time.monotonic() + 30
    while execute.KERNELS._under_way:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_another_kernel_serves_until_the_planned_one_is_compiled(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    served = gpu.launches[-1].entry
    begun, go_on = held_up(gpu)
    a, b = operands(torch, *LARGE)
    for _ in range(3):
        d = wt.matmul(a, b)
        assert d.shape == (4096, 4096)
        assert gpu.launches[-1].entry == served
    assert begun.wait(30)
    assert gpu.compiled == 2, "once, however many calls"
    go_on.set()
    settle()
    wt.matmul(a, b)
    assert gpu.launches[-1].entry != served
    planned = gpu.launches[-1].entry
    wt.matmul(a, b)
    assert (gpu.launches[-1].entry, gpu.compiled) == (planned, 2)


def test_compiling_begins_when_the_stand_in_is_launched(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    launched, seen = len(gpu.launches), []
    gpu.compiling = lambda source: seen.append(len(gpu.launches))
    wt.matmul(*operands(torch, *LARGE))
    settle()
    assert seen == [launched + 1]


def test_compiling_begins_where_the_stand_in_cannot_be_launched(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    gpu.status = 700
    with pytest.raises(wt.DeviceError):
        wt.matmul(*operands(torch, *LARGE))
    settle()
    assert gpu.compiled == 2


def test_of_many_kernels_those_of_the_nearest_problems_are_compared(gpu, torch):
    tiles = {}
    for size in (64, 512, 1024, 2048):
        served = wt.plan(*operands(torch, size, size, size)).plan
        tiles[size] = {name: served.config[name] for name in ("BM", "BN", "BK", "SWAP")}
        execute.STAND_INS.note(served)
    plans = execute.STAND_INS.plans_for(wt.plan(*operands(torch, *LARGE)).plan)
    assert 1 <= len(plans) <= compilations.NEAREST
    for each in plans:
        assert {name: each.config[name] for name in tiles[64]} in (tiles[1024], tiles[2048])


def test_the_stand_in_multiplies_the_problem_that_was_asked_for(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    _, go_on = held_up(gpu)
    a, b = operands(torch, *LARGE)
    d = wt.matmul(a, b)
    launched = gpu.launches[-1]
    spec = gpu.specs[launched.entry]
    [params] = spec.arguments
    said = {name: field.value for name, field in params.members if name in ("m", "n", "k")}
    assert said == {"m": 4096, "n": 4096, "k": 4096}
    assert launched.parameters == gpu.expect(spec, {"A": a.data_ptr(), "B": b.data_ptr(), "D": d.data_ptr()})
    go_on.set()
    settle()


def test_the_first_call_of_a_kind_waits(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    half = torch.empty((64, 64), torch.float16)
    wt.matmul(half, half)
    assert gpu.compiled == 2
    assert len({each.entry for each in gpu.launches}) == 2


def test_wait_compiles_before_anything_is_launched(gpu, torch, monkeypatch):
    monkeypatch.setenv("WARPTILE_COMPILE", "wait")
    wt.matmul(*operands(torch, *SMALL))
    wt.matmul(*operands(torch, *LARGE))
    assert gpu.compiled == 2
    assert len({each.entry for each in gpu.launches}) == 2
    monkeypatch.setenv("WARPTILE_COMPILE", "later")
    with pytest.raises(wt.UnsupportedError, match="it takes background or wait"):
        wt.matmul(*operands(torch, 128, 128, 4096))


@pytest.mark.parametrize("held", [True, False])
def test_a_named_rung_and_a_held_plan_run_their_own_kernel(gpu, torch, held):
    wt.matmul(*operands(torch, *SMALL))
    a, b = operands(torch, *LARGE)
    call = wt.plan(a, b) if held else lambda a, b: wt.matmul(a, b, rung="wgmma-final")
    call(a, b)
    assert gpu.compiled == 2
    assert len({each.entry for each in gpu.launches}) == 2


def test_a_kernel_that_does_not_compile_leaves_the_other_one_serving(gpu, torch, caplog):
    wt.matmul(*operands(torch, *SMALL))
    served = gpu.launches[-1].entry

    def refuse(source):
        raise CompileError("registers spill")

    gpu.compiling = refuse
    a, b = operands(torch, *LARGE)
    for _ in range(3):
        wt.matmul(a, b)
        settle()
        assert gpu.launches[-1].entry == served
    assert gpu.compiled == 2, "it is not tried again and again"
    assert [each.getMessage() for each in caplog.records if "does not compile" in each.getMessage()] == [
        "a kernel does not compile, so another one goes on serving: registers spill"
    ]


def test_a_kernel_that_spills_serves_all_the_same(gpu, torch):
    """Its results are right; that it is slower than planned is no reason to refuse a call."""
    real, seen = gpu.compiling, []

    def spill(source):
        seen.append(source)
        if not source.may_spill:
            raise SlowCodeError("it compiled, but registers spill")
        if real is not None:
            real(source)

    gpu.compiling = spill
    a, b = operands(torch, *LARGE)
    wt.matmul(a, b)
    settle()
    strict, lenient = seen
    assert (strict.may_spill, lenient.may_spill, lenient.may_serialise) == (False, True, True)
    assert strict.text == lenient.text
    assert gpu.launches


def test_a_graph_gets_the_planned_kernel(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    served = gpu.launches[-1].entry
    begun, go_on = held_up(gpu)
    a, b = operands(torch, *LARGE)
    wt.matmul(a, b)
    assert gpu.launches[-1].entry == served
    assert begun.wait(30)
    gpu.capturing = True
    threading.Timer(0.05, go_on.set).start()
    wt.matmul(a, b)
    assert gpu.launches[-1].entry != served
    settle()
    assert gpu.compiled == 2


def test_a_kernel_that_is_waited_for_is_compiled_once(gpu, torch):
    wt.matmul(*operands(torch, *SMALL))
    begun, go_on = held_up(gpu)
    a, b = operands(torch, *LARGE)
    wt.matmul(a, b)
    plan = wt.plan(a, b)
    assert begun.wait(30)
    waiting = threading.Thread(target=plan, args=(a, b))
    waiting.start()
    go_on.set()
    waiting.join(30)
    settle()
    assert gpu.compiled == 2
