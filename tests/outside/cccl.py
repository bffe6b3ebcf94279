"""CUB, libcu++ and cooperative groups: kernels of ours on the headers in FOLDER, those of CCCL.

python tests/outside/cccl.py FOLDER [--json RECORDS], after
python3 -m pip download --no-deps 'nvidia-cuda-cccl>=13.0,<14' and unzip; FOLDER is its ``nvidia/cu13/include/cccl``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from outside_suite import Case, main

KERNELS = Path(__file__).with_name("cccl_kernels.cu")
RELAXED, ACQUIRE, RELEASE = 0, 2, 3
"""Of ``cuda::memory_order``."""

Check = Callable[[Sequence[Any]], bool]


def cases(folder: Path) -> Iterator[Case]:
    """All launches."""
    random = np.random.default_rng(2)

    def integers(*shape: int, dtype: Any = np.int32) -> Any:
        return random.integers(0, 200, shape).astype(dtype)

    def case(entry: str, launch: tuple[Any, ...], given: Sequence[Any], right: Check | None, **more: Any) -> Case:
        options = {"include_folders": [folder], **more.pop("options", {})}

        def arguments() -> list[Any]:
            return [each.copy() if isinstance(each, np.ndarray) else each for each in given]

        return Case(entry, KERNELS, entry, launch, arguments, right=right, options=options, **more)

    x, wide, items = integers(128), integers(256), integers(512)
    yield case("block_sum<128>", (4, 128), [blank(4), items], lambda g: equal(g[0], items.reshape(4, 128).sum(1)))
    yield case("block_sum_twice<128>", (1, 128), [blank(1), x], None, finds=("races",))
    yield case("block_scan<128>", (1, 128), [blank(128), x], lambda g: equal(g[0], np.cumsum(x)))
    keys = integers(512, dtype=np.uint32) * np.uint32(20_000_000)
    yield case("block_radix_sort<128, 4>", (1, 128), [keys], lambda g: equal(g[0], np.sort(keys)))
    yield case("negate<128, 4>", (1, 128), [blank(512), items], lambda g: equal(g[0], -items))
    letters = integers(512, dtype=np.uint8)
    yield case(
        "block_histogram<128>", (1, 128), [np.zeros(256, np.uint32), letters],
        lambda g: equal(g[0], np.bincount(letters, minlength=256)),
    )  # fmt: skip
    floats = x.astype(np.float32).reshape(4, 32)
    sums = (np.cumsum(floats, 1) + floats.max(1, keepdims=True)).ravel()
    yield case("warp_scan_and_maximum", (1, 128), [np.zeros(128, np.float32), floats], lambda g: equal(g[0], sums))
    yield case("add_in_every_order", (2, 64), [blank(1)], lambda g: g[0][0] == 5 * 128)

    sent = [blank(1), blank(1), blank(1)]
    yield case(f"message<{RELEASE}, {ACQUIRE}>", (2, 1), sent, lambda g: g[0][0] == 42)
    for store, load in ((RELAXED, ACQUIRE), (RELEASE, RELAXED), (RELAXED, RELAXED)):
        yield case(f"message<{store}, {load}>", (2, 1), sent, None, finds=("races",))
    yield case("wait_for_message", (2, 1), sent, lambda g: g[0][0] == 42)

    yield case("barrier_phases", (1, 128), [blank(128), x], lambda g: equal(g[0], 3 * x[::-1] + 3))
    batches = integers(5, 128)
    added = batches.sum(0)[::-1]
    fed = [blank(128), batches, 5]
    for stages in (1, 2, 3):
        yield case(
            f"pipeline<{stages}, true>", (1, 128), fed, lambda g: equal(g[0], added), options={"model": "common"}
        )
    lanes = "cuda::pipeline lets one lane arrive for those that it has voted with, which PTX does not order"
    yield case("pipeline<4, true>", (1, 128), fed, None, finds=("warp-order",), note=lanes)
    yield case("pipeline<2, false>", (1, 128), fed, None, finds=("races",), options={"model": "common"})
    yield case("bulk_copy", (1, 128), [blank(128), x], lambda g: equal(g[0], x[::-1]))
    yield case("count_under_semaphore", (1, 64), [blank(1)], lambda g: g[0][0] == 64)

    rows = x.reshape(8, 16)
    reduced = rows.sum(1, keepdims=True) + np.cumsum(rows, 1) - rows + rows.max(1, keepdims=True)
    yield case("tiles", (1, 128), [blank(128), x], lambda g: equal(g[0], reduced.ravel()))
    thirds = (x[:32] % 3 == 0).astype(np.int64)
    ranks = thirds * (100 * thirds.sum() + np.cumsum(thirds) - 1)
    yield case("ranks_in_branch", (1, 32), [blank(32), x[:32]], lambda g: equal(g[0], ranks))
    yield case("copy_by_group", (1, 64), [blank(256), wide], lambda g: equal(g[0], wide[::-1]))
    yield case(
        "reverse_over_grid", (4, 32), [blank(128), blank(128)], lambda g: equal(g[0], np.arange(127, -1, -1)),
        options={"cooperative": True},
    )  # fmt: skip


def blank(count: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Zeros."""
    return np.zeros(count, np.int32)


def equal(got: Any, wanted: Any) -> bool:
    """Whether all elements are."""
    return bool(np.array_equal(got, wanted))


if __name__ == "__main__":
    main("CCCL", cases)
