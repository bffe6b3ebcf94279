"""Buffers that a command line makes: ``--arg zeros:f32:1024`` and ``random:f16:8x8``."""

import json

import ml_dtypes
import numpy as np
import pytest

from warptile.cli._kernel_launch import SCALARS
from warptile.cli._made_arrays import made_array
from warptile.cli.main import run

ADD = "__global__ void add(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }"


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("f32:8", np.float32, (8,)), ("bf16:2x3", ml_dtypes.bfloat16, (2, 3)), ("i8:4", np.int8, (4,)),
        ("u64:1x2x3", np.uint64, (1, 2, 3)), ("s16:4", np.int16, (4,)), ("bool:64", np.bool_, (64,)),
        ("f64:4", np.float64, (4,)), ("f16:4", np.float16, (4,)),
    ],
)  # fmt: skip
def test_types_and_extents(text, dtype, shape):
    made = made_array("random", text, SCALARS)
    assert (made.dtype, made.shape) == (dtype, shape)
    assert made.astype(np.float64).any()
    assert made.tobytes() == made_array("random", text, SCALARS).tobytes()
    assert not made_array("zeros", text, SCALARS).any()


def test_a_kernel_may_write_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.cu").write_text(ADD)
    words = ["emulate", "add.cu", "--block", "32", "--arg", "zeros:f32:32", "--arg", "random:f32:32", "--json"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counters"]["global_store_bytes"] == 128
    assert document["written"] == []


@pytest.mark.parametrize("spec", ["zeros:f33:8", "zeros:f32", "random:f32:8x0", "random:f32:x", "zeros:u8:99999999999"])
def test_what_cannot_be_made(spec, tmp_path, capsys):
    (tmp_path / "add.cu").write_text(ADD)
    assert run(["emulate", str(tmp_path / "add.cu"), "--arg", spec]) == 2
    assert "such as" in (said := capsys.readouterr().err) or "fewer elements" in said
