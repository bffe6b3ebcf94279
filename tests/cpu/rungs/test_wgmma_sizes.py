"""What is worked out once for all problems that are alike is what each of them has alone."""

from dataclasses import replace

import numpy as np
import pytest

from covering import examples
from random_problems import random_device, random_problem
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.epilogue.fused_epilogue import Fused, Layout
from warptile.epilogue.tracing import trace
from warptile.launch.tensor_map import TensorMap
from warptile.problem import Problem
from warptile.rungs.wgmma import final, tiles
from warptile.rungs.wgmma.candidates import made
from warptile.rungs.wgmma.final import WGMMA_FINAL
from warptile.rungs.wgmma.sizes import Alike
from warptile.rungs.wgmma.tensor_maps import rest_map

CHANGES = ({}, {"STAGES": 12}, {"BN": 256}, {"BM": 192}, {"CM": 2}, {"SWAP": 1}, {"SPLITS": 2}, {"OVERLAP": 1})
"""Of configurations: many are illegal then, for one reason or another."""

TILES = ((64, 8, 1), (64, 64, 1), (64, 256, 1), (128, 128, 2), (128, 192, 2), (256, 64, 2), (256, 128, 2))
"""Rows and columns of some tiles, and warpgroups that compute them."""


def half(m, n, k, **options):
    element = DTYPES["bfloat16"]
    return Problem.dense(m, n, k, element, out=element, accumulator=DTYPES["float32"], b_major="col", **options)


def forget():
    for remembered in (final._kernel, final._instance, final._configured):
        remembered.cache_clear()


def said_of(problem, config, device):
    """Why a configuration is illegal, or its launch."""
    reason = WGMMA_FINAL.illegal(problem, config, device)
    return reason or WGMMA_FINAL.resolve(problem, config, device)


@pytest.mark.parametrize("seed", range(examples(10)))
def test_reasons_and_launches_do_not_depend_on_what_was_planned_before(seed):
    generator = np.random.default_rng(seed)
    asked = []
    for _ in range(12):
        first, device = random_problem(generator), random_device(generator)
        config = WGMMA_FINAL.default_config(first, device)
        m, n, k = (max(each // 2, 1) for each in (first.m, first.n, first.k))
        smaller = Problem.dense(
            m, n, k, first.a.dtype, out=first.d.dtype, accumulator=first.accumulator, a_major=first.a.major,
            b_major=first.b.major, with_c=first.c is not None, batch=first.batch,
        )  # fmt: skip
        asked += [(each, {**config, **change}, device) for change in CHANGES for each in (first, smaller)]
    forget()
    together = [said_of(*each) for each in asked]
    assert any(isinstance(each, str) for each in together)
    for each, found in zip(asked, together, strict=True):
        forget()
        assert said_of(*each) == found, each


def test_problems_that_differ_in_extents_have_one_kernel():
    config = WGMMA_FINAL.default_config(half(512, 512, 512), REFERENCE)
    one, other = (WGMMA_FINAL.resolve(half(size, 512, 512), config, REFERENCE) for size in (512, 768))
    assert one.instance is other.instance
    assert one.params != other.params


def test_problems_are_alike_where_no_kernel_can_tell_them_apart():
    usual = half(512, 512, 512)
    biased = Fused(trace(lambda acc, bias: acc + bias, {"bias": 0}), (("bias", Layout(DTYPES["bfloat16"], 0, 1, 16)),))
    assert Alike(usual) == Alike(half(768, 1024, 64))
    others = [
        half(512, 500, 512), half(512, 512, 500), half(512, 512, 512, batch=2), half(512, 512, 512, with_c=True),
        replace(usual, epilogue=biased), usual.swapped, usual.displaced(1),
    ]  # fmt: skip
    assert len({Alike(each) for each in (usual, *others)}) == 1 + len(others)
    assert Alike(half(64, 500, 512)) != Alike(half(128, 500, 512)), "rows decide how a misaligned D is stored"


def test_the_last_panel_has_rows_of_16_bytes_or_of_whole_sectors():
    extents = (8, 16, 24, 64, 72, 80, 88, 104, 120, 128, 200, 248)
    loaded = [tiles.SmemTile(extent, 64, 2, k_major=False).last_row_units for extent in extents]
    assert loaded == [8, 16, 32, 64, 8, 16, 32, 48, 64, 64, 8, 64]
    assert tiles.SmemTile(88, 64, 2, k_major=True).last_row_units == 64


@pytest.mark.parametrize(
    ("k_major", "extent", "box"),
    [
        (True, 128, (64, 128)), (True, 136, (64, 8)), (True, 255, (64, 127)), (True, 40, (64, 40)),
        (False, 128, (64, 64)), (False, 136, (8, 64)), (False, 201, (16, 64)), (False, 190, (64, 64)),
    ],
)  # fmt: skip
def test_the_box_at_the_end_of_an_operand_has_what_is_inside(k_major, extent, box):
    part = tiles.SmemTile(128, 64, 2, k_major=k_major)
    whole_box = (part.row_units, part.lines)
    whole = TensorMap("A", "bf16", dims=(4096, 4096), strides_bytes=(8192,), box=whole_box, swizzle="128B")
    assert rest_map(whole, part, extent).box == box


@pytest.mark.parametrize("seed", range(examples(60)))
def test_a_view_with_operands_swapped_is_that_of_swapped_operands(seed):
    generator = np.random.default_rng(seed)
    for _ in range(20):
        problem, tile = random_problem(generator), TILES[generator.integers(len(TILES))]
        config = made(problem, *tile, swap=0, k_bytes=tiles.ROW_BYTES, device=REFERENCE)
        config = {**config, "OVERLAP": 1}  # no residue classes, no unaligned A
        plain, swapped = (tiles.view(problem, {**config, "SWAP": swap}) for swap in (0, 1))
        if bool(plain.fused_repacks) == bool(swapped.fused_repacks):  # which depends on rows and columns of tiles
            assert swapped == plain.swapped
