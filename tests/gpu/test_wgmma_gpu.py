"""The wgmma rungs on a GPU: random products between guard bands, graphs, streams, and the same bits twice.

Also a program: ``PYTHONPATH=src python tests/gpu/test_wgmma_gpu.py`` runs every test without pytest.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import warptile as wt
from products import WGMMA_PLAIN
from warptile.arrays.operands import arrange
from warptile.dtypes import DTYPES
from warptile.rungs import RUNGS
from warptile.verify.reference import error_ratio, random_operand, reference

NAMES = [name for name, rung in RUNGS.items() if rung.family == "wgmma" and not rung.sparse]
TYPES = ("float16", "bfloat16", "tfloat32", "float8_e4m3", "float8_e5m2", "int8", "uint8")
MAJORS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
GUARD = 0x5A

SHARING = {
    "STREAM": {**WGMMA_PLAIN, "BK": 64, "STREAM": 1, "SMS": 132},
    "SPLITS": {**WGMMA_PLAIN, "BK": 64, "SPLITS": 4, "SMS": 132},
}


def available():
    """torch with a Hopper GPU, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0) else None


def hopper():
    """torch; without a Hopper GPU the test is skipped."""
    torch = available()
    if torch is None:
        import pytest

        pytest.skip("needs torch and a GPU of sm_90")
    return torch


def placed(torch, values, dtype, major, gap, offset):
    """The matrix on the GPU, and its memory, full of 0x5A: ``offset`` elements before it, ``gap`` between lines."""
    element = DTYPES[dtype]
    stored = values if major == "row" else values.T
    lines, extent = stored.shape
    size = stored.itemsize
    memory = np.full((offset + lines * (extent + gap) + 64) * size, GUARD, np.uint8)
    inside = memory[offset * size : (offset + lines * (extent + gap)) * size].reshape(lines, (extent + gap) * size)
    inside[:, : extent * size] = np.ascontiguousarray(stored).view(np.uint8).reshape(lines, extent * size)
    whole = torch.from_numpy(memory).cuda()
    view = whole.view(getattr(torch, element.torch))
    found = torch.as_strided(view, (lines, extent), (extent + gap, 1), offset)
    return (found if major == "row" else found.T), whole


def host(torch, tensor, dtype):
    """The tensor as an array."""
    storage = np.dtype(DTYPES[dtype].numpy)
    return tensor.contiguous().view(torch.uint8).cpu().numpy().view(storage).reshape(tuple(tensor.shape))


def drawn(shape, dtype, seed):
    return random_operand(shape, DTYPES[dtype], np.random.default_rng(seed))


def check(torch, name, dtype, size, majors, gap, offset, beta, **options):
    """One product: within its bound, and around D every byte as before."""
    m, n, k = size
    element = DTYPES[dtype]
    out = "int32" if element.kind != "float" else options.get("out_dtype", "float32")
    options = {**options, **({"precision": "tf32"} if dtype == "tfloat32" else {})}
    if element.kind == "float":
        options["out_dtype"] = out
    a, b, c = drawn((m, k), dtype, 1), drawn((k, n), dtype, 2), drawn((m, n), out, 3)
    on_gpu = [placed(torch, x, dtype, major, gap, offset)[0] for x, major in zip((a, b), majors, strict=True)]
    there_c = placed(torch, c, out, "row", gap, offset)[0] if beta else None
    d, memory = placed(torch, np.zeros((m, n), c.dtype), out, "row", gap, offset)
    wt.matmul(*on_gpu, there_c, beta=beta, alpha=2, rung=name, out=d, **options)
    expected = reference(arrange(a, b, c if beta else None, beta=beta, **without(options)).problem, a, b,
                         c if beta else None, alpha=2, beta=beta)  # fmt: skip
    ratio = error_ratio(host(torch, d, out), expected)
    assert ratio <= 1, (name, dtype, size, majors, gap, offset, options, ratio)
    d.fill_(0)
    clean = placed(torch, np.zeros((m, n), c.dtype), out, "row", gap, offset)[1]
    assert torch.equal(memory, clean), (name, dtype, size, gap, offset)


def without(options):
    return {key: value for key, value in options.items() if key != "config"}


def cases():
    """Arguments of `check`: every rung and type, every major of each rung, every major of three types in the last."""
    draw = np.random.default_rng(7).integers
    for number, name in enumerate(NAMES):
        for turn, dtype in enumerate(TYPES):
            if dtype not in RUNGS[name].dtypes:
                continue
            every = name == "wgmma-final" and dtype in ("float16", "bfloat16", "float8_e4m3")
            for which in range(4) if every else ((number + turn) % 4,):
                sums = {}
                if "float8" in dtype and (which % 2 if name == "wgmma-final" else name != "wgmma-two-level"):
                    sums = {"accumulate": "float32_fast"}
                if dtype == "float16" and which == 3:
                    sums = {"accumulate": "float16", "out_dtype": "float16"}
                gap, offset = (int(each) for each in draw(0, 9, 2))
                size = tuple(int(each) for each in draw(1, 700, 3))
                yield (name, dtype, size, MAJORS[which], gap, offset, (number + turn + which) % 2), sums


def test_misaligned_operands_of_few_rows_or_columns():
    """They are loaded through registers, whatever their type and layout."""
    torch = hopper()
    draw = np.random.default_rng(11).integers
    for turn, (dtype, majors) in enumerate((dtype, majors) for dtype in TYPES[:3] for majors in MAJORS):
        few, many, k = int(draw(1, 40)), int(draw(500, 3000)), int(draw(8, 5000))
        for swap, size in ((1, (few, many, k)), (0, (many, few, k))):
            config = {**WGMMA_PLAIN, "BM": 64 * (1 + turn % 2), "BN": -(-few // 8) * 8, "CONSUMERS": 1 + turn % 2,
                      "BK": 1024 // DTYPES[dtype].bits, "STAGES": 4, "SPLITS": 1 + turn % 4, "SWAP": swap,
                      "SMS": 132}  # fmt: skip
            gap, offset = 1 + 2 * int(draw(0, 4)), int(draw(0, 9))
            check(torch, "wgmma-final", dtype, size, majors, gap, offset, turn % 2, config=config)


def test_every_rung_type_and_major():
    torch = hopper()
    with ThreadPoolExecutor(12) as pool:  # compiling takes longest
        done = [pool.submit(check, torch, *arguments, **options) for arguments, options in cases()]
    for each in done:
        each.result()


def test_shared_depth_in_every_alignment():
    torch = hopper()
    for config in SHARING.values():
        for gap, offset in ((0, 0), (8, 8), (1, 1)):
            check(torch, "wgmma-final", "float16", (300, 200, 1000), ("row", "col"), gap, offset, 1, config=config)


def test_rows_of_a_begin_anywhere():
    torch = hopper()
    flat = {**WGMMA_PLAIN, "BK": 64, "STAGES": 3}
    configs = (
        {**flat, "BM": 128, "BN": 128},
        {**flat, "BM": 128, "BN": 64, "SWAP": 1, "SPLITS": 4, "SMS": 132},
        {**flat, "BM": 64, "BN": 64, "BK": 256, "CONSUMERS": 1, "SWAP": 1},
    )
    for number, config in enumerate(configs):
        size = (90, 520) if config["SWAP"] else (520, 90)
        for offset in range(number, 8, 3):
            for k in (1001 + 2 * offset, 4094):
                options = {"config": config, "out_dtype": "bfloat16"}
                check(torch, "wgmma-final", "bfloat16", (*size, k), ("row", "col"), 0, offset, 1, **options)


def test_rows_of_d_begin_anywhere():
    """Where they are stored in classes, whatever the pitch and the start."""
    torch = hopper()
    flat = {**WGMMA_PLAIN, "BK": 64, "STAGES": 4, "SMS": 132}
    configs = (
        {**flat, "BM": 128, "BN": 192, "PINGPONG": 1},
        {**flat, "BM": 64, "BN": 128, "PINGPONG": 1, "CM": 2},
        {**flat, "BM": 128, "BN": 256, "ALONG_N": 1},
    )
    for number, config in enumerate(configs):
        for gap, offset in ((0, 0), (number, 1), (3, 5 + number)):
            for out in ("bfloat16", "float32"):
                options = {"config": config, "out_dtype": out}
                check(torch, "wgmma-final", "bfloat16", (1024, 1111, 200), ("row", "col"), gap, offset, 0, **options)


def test_the_same_bits_twice():
    torch = hopper()
    a = torch.randn(1000, 3000, device="cuda", dtype=torch.float16)
    b = torch.randn(3000, 333, device="cuda", dtype=torch.float16)
    for name, config in SHARING.items():
        config = {**config, "BM": 256, "BN": 128} if name == "SPLITS" else config
        options = {"rung": "wgmma-final", "config": config, "out_dtype": "float32"}
        first = wt.matmul(a, b, **options)
        for _ in range(20):
            assert torch.equal(wt.matmul(a, b, **options), first), name


def test_every_block_shares_one_tile():
    torch = hopper()
    config = {**WGMMA_PLAIN, "BM": 64, "BK": 64, "CONSUMERS": 1, "SPLITS": 132, "SMS": 132}
    for gap, offset in ((0, 0), (3, 1)):
        check(torch, "wgmma-final", "bfloat16", (61, 57, 140 * 64), ("row", "col"), gap, offset, 1, config=config)
    a = torch.randn(64, 132 * 64, device="cuda", dtype=torch.float16)
    b = torch.randn(64, 132 * 64, device="cuda", dtype=torch.float16).T
    found = [wt.matmul(a, b, rung="wgmma-final", config=config) for _ in range(300)]
    assert all(torch.equal(each, found[0]) for each in found)


def test_workspaces_and_copies_in_a_graph():
    torch = hopper()
    # Odd rows: both operands are copied first, inside the graph.
    a = torch.randn(301, 997, device="cuda", dtype=torch.float16)
    b = torch.randn(997, 203, device="cuda", dtype=torch.float16)
    for config in SHARING.values():
        out = torch.empty(301, 203, device="cuda", dtype=torch.float32)
        options = {"rung": "wgmma-final", "config": config, "out": out, "out_dtype": "float32"}
        assert wt.plan(a, b, rung="wgmma-final", config=config).plan.kernel.copies
        wt.matmul(a, b, **options)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            wt.matmul(a, b, **options)
        for _ in range(3):
            a.copy_(torch.randn_like(a))
            out.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            again = out.clone()
            assert torch.equal(wt.matmul(a, b, **options), again)
            assert torch.allclose(again.double(), a.double() @ b.double(), atol=1e-2, rtol=1e-3)


def test_two_streams_at_once():
    torch = hopper()
    # As many blocks as half of the multiprocessors have room for: blocks that wait for each other all run.
    config = {**SHARING["STREAM"], "SMS": 60}
    options = {"rung": "wgmma-final", "config": config, "out_dtype": "float32"}
    pairs = [
        (torch.randn(700, 2001, device="cuda", dtype=torch.float16),
         torch.randn(2001, 500, device="cuda", dtype=torch.float16))
        for _ in range(2)
    ]  # fmt: skip
    alone = [wt.matmul(a, b, **options) for a, b in pairs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in pairs]
    found = [[], []]
    for _ in range(30):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[index].append(wt.matmul(*pairs[index], **options))
    torch.cuda.synchronize()
    for expected, results in zip(alone, found, strict=True):
        assert all(torch.equal(each, expected) for each in results)


def main():
    """Run every test; 1 if one failed."""
    import time
    import traceback

    if available() is None:
        print("needs torch and a GPU of sm_90")
        return 1
    failures = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            began = time.monotonic()
            try:
                test()
                print(f"{name}: ok, {time.monotonic() - began:.1f} s", flush=True)
            except Exception:
                failures += 1
                print(f"{name}: FAILED\n{traceback.format_exc()}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
