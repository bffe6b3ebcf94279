"""Every tensor instruction on the emulator, bit for bit what an H200 answered."""

import re

import numpy as np
import pytest

import captured
from covering import of_each
from probes import Probe
from tensor_probes import LANES, TENSOR_PROBES
from warptile.isa import mma


def instruction_and_selector(tensor):
    """Every instruction, and every selector of each shape of sparse ones."""
    instruction, _, selector = tensor.name.partition(" ")
    return instruction, (selector, re.search(r"m\d+n\d+k\d+", instruction)[0])


@pytest.mark.parametrize("tensor", of_each(TENSOR_PROBES, instruction_and_selector), ids=lambda tensor: tensor.name)
def test_equals_the_gpu(tensor):
    expected = captured.vectors()[tensor.name]
    found = captured.kept(tensor, captured.tensor_answers(tensor, recorded_chain(tensor, expected)))
    wrong = (found != expected).reshape(len(found) if tensor.exact else len(found) // LANES, -1)
    assert not wrong.any(), explain(tensor, found, expected, wrong)


def recorded_chain(tensor, expected):
    """Runs the emulator, but chained tiles start from what the GPU answered: a difference shows once."""
    tiles = len(tensor.kinds) * captured.TILES

    def run(probe, rows):
        if tensor.exact or len(rows) == tiles * LANES:
            return Probe.emulated(probe, rows)
        first = np.arange(tiles * LANES) // LANES % captured.TILES == 0
        direct = np.concatenate([tensor.tiles(kind, captured.TILES, captured.SEED) for kind in tensor.kinds])
        return Probe.emulated(probe, tensor.chained(direct[first], expected[: tiles * LANES][first]))

    return run


def explain(tensor, found, expected, wrong):
    tiles = {}
    for tile in np.flatnonzero(wrong.any(axis=1)):
        tiles.setdefault(captured.kind_of(tensor, int(tile)), []).append(int(wrong[tile].sum()))
    lines = [f"{kind}: {sum(counts)} words in {len(counts)} tiles" for kind, counts in tiles.items()]
    if not tensor.exact:
        row, word = np.argwhere(found != expected)[0]
        tile, lane = divmod(int(row), LANES)
        both = f"GPU {expected[row, word]:#x}, emulator {found[row, word]:#x}"
        lines.append(f"first in tile {tile}, lane {lane}, word {word}: {both}")
    return f"{tensor.name}\n  " + "\n  ".join(lines)


def test_every_instruction_of_the_tables_is_there():
    """Of `warptile.isa.mma`; sparse and wmma shapes are looked up in their tables while the probes are made."""
    names = {tensor.name for tensor in TENSOR_PROBES}
    for shape in mma.SHAPES:
        for types in mma.type_lists(shape):
            if shape.capability <= 90:
                operation = shape.operations[0][0] if shape.operations else ""
                assert shape.opcode(types, layouts=shape.layouts[0], operation=operation) in names
