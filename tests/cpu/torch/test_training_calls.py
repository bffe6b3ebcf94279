"""Training on a GPU whose driver is stubbed: after the first steps every GEMM is a bound call, forward and backward."""

from dataclasses import replace

import pytest

import warptile.api as api
from stubbed_gpu import StubbedGpu
from warptile.arrays import array_view

torch = pytest.importorskip("torch")
import warptile.torch  # noqa: E402

STREAM = 0x5EED


@pytest.fixture
def gpu(monkeypatch):
    """Tensors in host memory that warptile takes for tensors on the stubbed GPU."""
    made = StubbedGpu().install(monkeypatch)
    made.record_nothing(monkeypatch)
    viewed = array_view._view_torch
    monkeypatch.setattr(array_view, "_view_torch", lambda x, name: replace(viewed(x, name), device=0, stream=STREAM))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(api, "_calls", {})
    return made


@pytest.fixture
def planned(monkeypatch):
    """Shapes of the calls that were not bound."""
    found = []
    real = api._matmul

    def counted(arrays, *arguments, **options):
        found.append([None if each is None else tuple(each.shape) for each in arrays])
        return real(arrays, *arguments, **options)

    monkeypatch.setattr(api, "_matmul", counted)
    return found


@pytest.mark.parametrize("autocast", [True, False])
def test_a_training_step_plans_nothing(gpu, planned, autocast):
    model = torch.nn.Sequential(
        torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 48, bias=False), torch.nn.Linear(48, 33)
    )
    warptile.torch.convert(model)
    x = torch.randn(4, 8, 48, requires_grad=True)
    if not autocast:  # the model itself is of 16 bits
        model, x = model.bfloat16(), x.detach().bfloat16().requires_grad_()
    for step in range(4):
        del planned[:]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y = model(x)
        y.float().square().mean().backward()
        assert planned or step > 0, "the first step plans"
        assert not planned or step < 2, planned
    assert gpu.copies == []
