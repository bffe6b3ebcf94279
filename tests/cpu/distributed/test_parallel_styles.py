"""Layers divided by `parallelize_module`: a Llama-like model trained on two ranks, and every layout of a layer."""

import importlib.util
import sys
from pathlib import Path

import pytest

import two_ranks
from two_ranks import answers

torch = pytest.importorskip("torch", reason="torch is not installed")

import quick_products  # noqa: E402
import warptile as wt  # noqa: E402
import warptile.distributed as wd  # noqa: E402
import warptile.torch  # noqa: E402

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_llama_parallel.py"
STEPS = 6


def trained(rank):
    quick_products.install(pytest.MonkeyPatch())
    spec = importlib.util.spec_from_file_location("train_llama_parallel", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.train(module.TINY, STEPS, "cpu")["losses"]


def test_a_llama_like_model_learns_the_same_on_two_ranks_as_on_one(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    (expected,) = answers(two_ranks.run(trained, folders[0], size=1))
    first, second = answers(two_ranks.run(trained, folders[1]))
    assert first == second
    assert len(expected) == STEPS
    assert expected[-1] < expected[0] - 0.1
    assert first == pytest.approx(expected, rel=1e-4)


def layouts(rank):
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import parallelize_module

    quick_products.install(pytest.MonkeyPatch())
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    towards = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def placed(tensor, placement):
        return tensor if placement == Replicate() else tensor.chunk(2, placement.dim)[rank]

    def check(style, given, returned, kind=torch.nn.Linear, bias=True, local=True, compiled=False):
        torch.manual_seed(0)
        whole = kind(6, 8, bias=bias, dtype=torch.float64)
        divided = kind(6, 8, bias=bias, dtype=torch.float64)
        divided.load_state_dict(whole.state_dict())
        parallelize_module(divided, mesh, style)
        assert isinstance(divided, torch.nn.Linear)
        of_whole = x.clone().requires_grad_()
        expected = whole(of_whole)
        expected.backward(towards)
        mine = placed(x, given).clone().requires_grad_()
        run = torch.compile(divided, fullgraph=True, backend="aot_eager") if compiled else divided
        y = run(mine)
        assert isinstance(y, DTensor) != local
        (y if local else y.to_local()).backward(placed(towards, returned))
        torch.testing.assert_close(y if local else y.to_local(), placed(expected, returned))
        torch.testing.assert_close(mine.grad, placed(of_whole.grad, given))
        for name, parameter in divided.named_parameters():
            torch.testing.assert_close(parameter.grad.full_tensor(), getattr(whole, name).grad)

    columns, rows = Shard(-1), Shard(1)
    check(wd.ColwiseParallel(), Replicate(), columns)
    check(wd.ColwiseParallel(input_layouts=rows), rows, columns)
    check(wd.ColwiseParallel(input_layouts=Shard(0)), Shard(0), columns, warptile.torch.Linear, local=True)
    check(wd.ColwiseParallel(input_layouts=rows, use_local_output=False), rows, columns, local=False)
    check(wd.ColwiseParallel(input_layouts=columns), columns, columns)
    check(wd.ColwiseParallel(input_layouts=rows, output_layouts=Replicate()), rows, Replicate(), bias=False)
    check(wd.RowwiseParallel(), columns, Replicate())
    check(wd.RowwiseParallel(output_layouts=rows), columns, rows)
    check(wd.RowwiseParallel(output_layouts=Shard(0)), columns, Shard(0), bias=False)
    check(wd.RowwiseParallel(input_layouts=Replicate()), Replicate(), Replicate())
    check(wd.ColwiseParallel(input_layouts=rows), rows, columns, compiled=True)
    check(wd.RowwiseParallel(output_layouts=rows), columns, rows, compiled=True)

    linear = torch.nn.Linear(6, 8)
    for style, module, message in (
        (wd.ColwiseParallel(), torch.nn.Embedding(4, 6), "torch.distributed.tensor.parallel.ColwiseParallel()"),
        (wd.ColwiseParallel(input_layouts=torch.distributed.tensor.Partial()), linear, "input_layouts"),
        (wd.RowwiseParallel(output_layouts=torch.distributed.tensor.Partial()), linear, "output_layouts"),
    ):
        with pytest.raises(wt.UnsupportedError) as raised:
            parallelize_module(module, mesh, style)
        assert message in str(raised.value)
    divided = parallelize_module(torch.nn.Linear(6, 8), mesh, wd.RowwiseParallel(output_layouts=Shard(2)))
    with pytest.raises(wt.UnsupportedError, match=r"output_layouts=Shard\(1\)"):
        divided(torch.randn(2, 4, 3))
    two = torch.distributed.init_device_mesh("cpu", (2, 1), mesh_dim_names=("tp", "dp"))
    with pytest.raises(wt.ArgumentError, match="2 dimensions"):
        wd.matmul_all_reduce(x, x[0].T, two)


def test_every_layout_of_a_layer_has_the_values_and_gradients_of_one_rank(tmp_path):
    answers(two_ranks.run(layouts, tmp_path))
