"""Arrays in GPU memory of which only DLPack is known: the bits of the same call on torch tensors, in place."""

import pytest

import warptile as wt
from warptile.errors import WarptileError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


class Foreign:
    """A torch tensor that offers DLPack and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **given):
        return self.tensor.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def normal(*shape, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("extents", [(200, 120, 333), (1, 7, 64), (0, 5, 3)], ids=str)
def test_the_bits_of_torch_tensors(dtype, extents):
    m, n, k = extents
    a, b = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype).T
    expected = wt.matmul(a, b)
    out = torch.zeros_like(expected)
    foreign = Foreign(a), Foreign(b)
    for _ in range(3):  # the second call and later ones are bound
        out.zero_()
        target = Foreign(out)
        assert wt.matmul(*foreign, out=target) is target
        torch.cuda.synchronize()
        assert torch.equal(out, expected)


def test_one_operand_beside_a_torch_tensor():
    a, b = normal(64, 96), normal(96, 40)
    expected = wt.matmul(a, b)
    assert torch.equal(wt.matmul(a, Foreign(b)), expected)
    out = torch.zeros_like(expected)
    assert wt.matmul(Foreign(a), b, out=out) is out
    torch.cuda.synchronize()
    assert torch.equal(out, expected)
    with pytest.raises(WarptileError, match="Foreign says where its memory is"):
        wt.matmul(Foreign(a), b)


def test_it_waits_for_the_stream_that_wrote_an_operand():
    b = normal(512, 256)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for seed in range(20):
            a = normal(700 + seed, 512)
            out = torch.empty(700 + seed, 256, dtype=a.dtype, device="cuda")
            wt.matmul(Foreign(a), Foreign(b), out=Foreign(out))
            torch.cuda.synchronize()
            assert torch.equal(out, wt.matmul(a, b))


def test_a_tensor_that_needs_a_gradient_is_refused():
    a = normal(8, 8, dtype=torch.float32).requires_grad_()
    with pytest.raises(WarptileError, match="does not lend the memory"):
        wt.matmul(Foreign(a), normal(8, 8, dtype=torch.float32))
