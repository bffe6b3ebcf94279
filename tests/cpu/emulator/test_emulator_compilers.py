"""PTX that other compilers wrote: the emulator runs it as it is. The files' sources lie beside them in tests/data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from covering import few
from warptile.cli.main import run
from warptile.emulator import DEFAULT_CHECKS, emulate
from warptile.errors import DataRace, MbarrierMisuse, RedundantStore
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

DATA = Path(__file__).parents[2] / "data"


def test_a_softmax_compiled_by_triton() -> None:
    module = parse((DATA / "triton_softmax.ptx").read_text())
    columns, pitch, rows = 777, 800, 5
    x = np.random.default_rng(3).standard_normal((rows, pitch)).astype(np.float16)
    x[:, columns:] = np.nan  # behind the row: must not be read
    out = np.zeros((rows, pitch), np.float16)
    spec = LaunchSpec(
        "softmax",
        (rows, 1, 1),
        (128, 1, 1),
        (Pointer("out"), Pointer("x"), Scalar("s32", columns), Scalar("s32", pitch), Pointer(None), Pointer(None)),
        dynamic_shared_bytes=16,
    )
    access = Access(writes=True, complete=Rows(rows, columns, 2, 2 * pitch))
    report = emulate(module, spec, {"out": out, "x": x}, accesses={"out": access}, arch="sm_90a")
    e = np.exp(x[:, :columns].astype(np.float64) - x[:, :columns].max(axis=1, keepdims=True))
    exact = e / e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out[:, :columns], exact, rtol=2.0**-10, atol=2.0**-25)
    assert (out[:, columns:] == 0).all()
    assert report.counters["barriers"] > 0
    assert any(line.location.file and line.location.file.endswith(".py") for line in report.lines)


def test_a_wmma_kernel_compiled_by_nvcc_without_optimisation_calls_its_functions() -> None:
    module = parse((DATA / "nvcc_debug.ptx").read_text())
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((16, 64)).astype(np.float16), rng.standard_normal((64, 16)).astype(np.float16)
    c = np.full((16, 16), np.nan, np.float32)
    arguments = (Pointer("A"), Pointer("B"), Pointer("C"), Scalar("s32", 16), Scalar("s32", 64), Scalar("f32", 2.0))
    spec = LaunchSpec("scaled_product", (1, 1, 1), (32, 1, 1), arguments)
    access = Access(writes=True, complete=Rows(16, 16, 4, 64))
    emulate(module, spec, {"A": a, "B": b, "C": c}, accesses={"C": access}, arch="sm_80")
    exact = 2 * (a.astype(np.float64) @ b.astype(np.float64))
    np.testing.assert_allclose(c, exact, rtol=1e-4, atol=1e-4)


# -- products compiled by Triton, through `warptile emulate` -----------------------------------------------------------

M, N, K = 200, 176, 144  # no multiple of the tile of 128 x 64 x 64, in any direction
SCHEDULES = ("latest", "earliest", "random:7")


def described(name: str, array: np.ndarray[Any, Any], box: tuple[int, int], **more: object) -> list[str]:
    """What Triton's host passes for a descriptor: the tensor map, then its extents, then its strides in elements.

    ``box`` is the ``block_size`` of the compiled kernel's metadata; a row of 128 bytes or fewer is its swizzle.
    """
    rows, columns = array.shape
    size = array.itemsize
    fields = {
        "base": f"{name}.npy", "dtype": {1: "u8", 2: "f16"}[size], "dims": [columns, rows],
        "strides_bytes": [columns * size], "box": box[::-1], "swizzle": f"{box[1] * size}B", **more,
    }  # fmt: skip
    Path(f"{name}.json").write_text(json.dumps(fields))
    return [f"tensormap:{name}.json", f"i32:{rows}", f"i32:{columns}", f"i64:{columns}", "i64:1"]


def emulated(file: str, arguments: list[str], shared: int, threads: int, *more: str) -> int:
    """Three persistent blocks through the command line; its exit code."""
    words = ["emulate", str(DATA / file), "--grid", "3", "--block", str(threads), "--smem", str(shared)]
    words += [word for argument in arguments for word in ("--arg", argument)]
    return run([*words, "--out-dir", "out", "--json", *more])


def operands(kind: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((M, K)).astype(kind), rng.standard_normal((K, N)).astype(kind)
    np.save("a.npy", a)
    np.save("b.npy", b)
    return a, b


def check(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], found: np.ndarray[Any, Any], bits: int) -> None:
    """Half a unit of the result's type, and what sums of tensor cores are off: cut to 25 bits, of e4m3 to 13."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    exact = left @ right
    lost = 2.0 ** (-12 if a.dtype.itemsize == 1 else -21)
    bound = 2.0**-bits * np.abs(exact) + lost * (np.abs(left) @ np.abs(right))
    assert (np.abs(found.astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("file", "kind", "shared"),
    [("triton_matmul.ptx", np.float16, 90136), ("triton_matmul_e4m3.ptx", ml_dtypes.float8_e4m3fn, 53296)],
)
def test_persistent_products_with_tensor_maps(
    file: str, kind: Any, shared: int, schedule: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every check is on, races among them: the three blocks load, multiply and store in rings of three stages."""
    monkeypatch.chdir(tmp_path)
    a, b = operands(kind)
    np.save("c.npy", np.full((M, N), np.nan, np.float16))
    arguments = [*described("a", a, (128, 64)), *described("b", b, (64, 64))]
    arguments += described("c", np.load("c.npy"), (128, 64), inout=True)
    arguments += [f"i32:{extent}" for extent in (M, N, K)] + ["u64:0", "u64:0"]
    assert emulated(file, arguments, shared, 128, "--schedule", schedule) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unfinished_copies"] == 0
    assert any(line["file"] == "triton_matmul.py" for line in report["lines"])
    check(a, b, np.load("out/c.npy"), 11)


SPECIALIZED = DATA / "triton_matmul_specialized.ptx"


def specialized(text: str, schedule: str, checks: frozenset[str]) -> np.ndarray[Any, Any]:
    """C of the kernel whose warpgroups have tasks of their own, and which makes its descriptors itself."""
    rng = np.random.default_rng(5)
    arrays = {
        "a": rng.standard_normal((M, K)).astype(ml_dtypes.bfloat16),
        "b": rng.standard_normal((K, N)).astype(ml_dtypes.bfloat16),
        "c": np.full((M, N), np.nan, ml_dtypes.bfloat16),
        "scratch": np.zeros(3 * 512, np.uint8),
    }
    arguments = [Pointer(name) for name in "abc"] + [Scalar("s32", extent) for extent in (M, N, K)]
    arguments += [Pointer("scratch"), Pointer(None)]
    spec = LaunchSpec("specialized", (3, 1, 1), (384, 1, 1), tuple(arguments), dynamic_shared_bytes=90584)
    access = {"c": Access(writes=True, complete=Rows(M, N, 2, 2 * N)), "scratch": Access(writes=True)}
    emulate(parse(text), spec, arrays, accesses=access, arch="sm_90a", schedule=schedule, checks=checks)
    check(arrays["a"], arrays["b"], arrays["c"], 8)
    return arrays["c"]


@pytest.mark.parametrize("schedule", few(SCHEDULES, 1))
def test_a_warp_specialised_product_that_makes_its_tensor_maps(schedule: str) -> None:
    """Triton 3.6 leaves mbarriers that nobody uses in memory that becomes tiles, which the ISA forbids and which
    changes nothing; and all 128 threads write one word, the same. With that mended no store is redundant."""
    text = SPECIALIZED.read_text()
    with pytest.raises(MbarrierMisuse, match=r"initialises the mbarrier .* again: mbarrier\.inval must come before"):
        specialized(text, schedule, DEFAULT_CHECKS)
    without = DEFAULT_CHECKS - {"reuse"}
    with pytest.raises(RedundantStore, match=r"st\.shared\.v2\.b32"):
        specialized(text, schedule, without | {"redundant-stores"})
    specialized(text, schedule, without)
    mended, count = re.subn(r"(\tst\.shared\.v2\.b32 )(.*\{\d+, \d+\};)", r"\t@%p23\1\2", text)
    assert count == 2
    specialized(mended, schedule, without | {"redundant-stores"})


def test_a_warp_specialised_product_without_one_of_its_fences() -> None:
    fence = r"@%p\d+ fence\.proxy\.tensormap::generic\.acquire\.gpu .*;"
    text, count = re.subn(fence, "", SPECIALIZED.read_text(), count=1)
    assert count == 1
    text = re.sub(r"(\tst\.shared\.v2\.b32 )(.*\{\d+, \d+\};)", r"\t@%p23\1\2", text)
    with pytest.raises(DataRace, match=r"a tensor map that this kernel wrote, and no fence\.proxy\.tensormap"):
        specialized(text, "latest", DEFAULT_CHECKS - {"reuse"})


# -- libcu++: what NVRTC makes of cuda::barrier, cuda::memcpy_async and cuda::ptx --------------------------------------

BARRIER = DATA / "nvcc_barrier.ptx"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_ring_of_bulk_copies_on_barriers_of_libcudacxx(schedule: str) -> None:
    x = np.random.default_rng(2).integers(-8, 8, (3, 5, 256)).astype(np.float32)
    out = np.full((3, 256), np.nan, np.float32)
    spec = LaunchSpec("sum_tiles", (3, 1, 1), (64, 1, 1), (Pointer("out"), Pointer("x"), Scalar("s32", 5)))
    access = Access(writes=True, complete=Rows(3, 256, 4, 1024))
    report = emulate(
        parse(BARRIER.read_text()),
        spec,
        {"out": out, "x": x},
        accesses={"out": access},
        arch="sm_90a",
        schedule=schedule,
    )
    np.testing.assert_array_equal(out, x.sum(axis=1))
    assert report.counters["global_load_bytes"] == x.nbytes


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_thread_copies_several_parts_on_one_barrier(schedule: str) -> None:
    x, out = np.arange(1000, dtype=np.int32), np.zeros(1000, np.int32)
    arguments = (Pointer("out"), Pointer("x"), Scalar("s32", 1000))
    spec = LaunchSpec("reversed", (1, 1, 1), (96, 1, 1), arguments, dynamic_shared_bytes=4000)
    access = Access(writes=True, complete=Rows(1, 1000, 4, 4000))
    emulate(
        parse(BARRIER.read_text()),
        spec,
        {"out": out, "x": x},
        accesses={"out": access},
        arch="sm_90a",
        schedule=schedule,
    )
    np.testing.assert_array_equal(out, x[::-1])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_copies_through_libcudacxx(
    schedule: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line; 20 rows of 100 numbers in rows of 104, so that the last boxes are partly outside."""
    monkeypatch.chdir(tmp_path)
    x = np.arange(20 * 104, dtype=np.uint16).reshape(20, 104)
    np.save("x.npy", x)
    np.save("y.npy", np.zeros_like(x))
    for name, more in (("x", {}), ("y", {"inout": True})):
        fields = {"base": f"{name}.npy", "dtype": "u16", "dims": [100, 20], "strides_bytes": [208], "box": [64, 8]}
        Path(f"{name}.json").write_text(json.dumps(fields | more))
    words = ["emulate", str(BARRIER), "--entry", "inverted", "--grid", "2,3", "--block", "96", "--schedule", schedule]
    assert run([*words, "--arg", "tensormap:x.json", "--arg", "tensormap:y.json", "--out-dir", "out"]) == 0
    y = np.load("out/y.npy")
    np.testing.assert_array_equal(y[:, :100], ~x[:, :100])
