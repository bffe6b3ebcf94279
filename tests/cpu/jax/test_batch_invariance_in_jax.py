"""``batch_invariant=True`` in programs of JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import warptile as wt  # noqa: E402
import warptile.jax  # noqa: E402
from warptile.errors import ArgumentTypeError  # noqa: E402

ROWS, N, K = 16, 64, 4096


def test_programs_say_it_to_the_kernel(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    generator = np.random.default_rng(6)
    a, b = (generator.standard_normal(shape).astype("float16") for shape in ((300, K), (K, N)))
    whole = wt.matmul(a, b, out_dtype="float32", batch_invariant=True)[:ROWS]
    few, weights = jax.numpy.asarray(a[:ROWS]), jax.numpy.asarray(b)

    def product(batch_invariant, **more):
        return jax.jit(lambda a, b: wt.jax.matmul(a, b, out_dtype="float32", batch_invariant=batch_invariant, **more))(
            few, weights
        )

    assert np.asarray(product(True)).tobytes() == whole.tobytes()
    assert np.asarray(product(False)).tobytes() != whole.tobytes()
    fused = product(True, epilogue=lambda acc: wt.relu(acc))
    assert np.asarray(fused).tobytes() == np.maximum(whole, 0).tobytes()
    with pytest.raises(ArgumentTypeError, match=r"batch_invariant.*static_argnames='batch_invariant'"):
        jax.jit(lambda a, b, flag: wt.jax.matmul(a, b, batch_invariant=flag))(few, weights, True)
