"""Empty tensors: by torch's function for compiled code where it allocates on the right GPU."""

from types import SimpleNamespace

import pytest

from warptile.runtime.torch_allocation import allocator


def torch_with(made, *, devices, current=0, names=("_empty_strided_cuda", "_cuda_getDevice")):
    """A torch of what an allocator asks for; ``made`` notes down what is called."""
    functions = {
        "_empty_strided_cuda": lambda *arguments: made.append(("fast", *arguments)),
        "_cuda_getDevice": lambda: current,
    }
    known = {name: functions[name] for name in names}
    guards = SimpleNamespace(**{name: each for name, each in known.items() if name == "_empty_strided_cuda"})
    inner = SimpleNamespace(_dynamo=SimpleNamespace(guards=guards))
    if "_cuda_getDevice" in known:
        inner._cuda_getDevice = known["_cuda_getDevice"]
    return SimpleNamespace(
        _C=inner,
        cuda=SimpleNamespace(device_count=lambda: devices),
        empty=lambda shape, dtype, device: made.append(("torch.empty", shape, dtype, device)),
    )


@pytest.mark.parametrize(
    ("devices", "current", "ordinal", "fast"), [(1, 0, 0, True), (2, 0, 0, True), (2, 1, 1, True), (2, 0, 1, False)]
)
def test_it_allocates_on_the_device_that_was_asked_for(devices, current, ordinal, fast):
    made = []
    new = allocator(torch_with(made, devices=devices, current=current))
    new((3, 5), "bfloat16", f"cuda:{ordinal}", ordinal)
    assert made == [("fast", (3, 5), (5, 1), "bfloat16") if fast else ("torch.empty", (3, 5), "bfloat16", "cuda:1")]


@pytest.mark.parametrize("names", [(), ("_empty_strided_cuda",), ("_cuda_getDevice",)])
def test_a_torch_without_these_functions_allocates_as_documented(names):
    made = []
    allocator(torch_with(made, devices=1, names=names))((4,), "float32", "cuda:0", 0)
    assert made == [("torch.empty", (4,), "float32", "cuda:0")]


def test_strides_are_those_of_rows_without_gaps():
    made = []
    new = allocator(torch_with(made, devices=1))
    for shape in ((), (7,), (2, 3, 4), (2, 0, 4)):
        new(shape, "float16", "cuda:0", 0)
    assert [strides for _, _, strides, _ in made] == [(), (1,), (12, 4, 1), (4, 4, 1)]
