"""What measurements add to the formulas of wgmma-final's cost model: a correction learned from surveys.

Formulas with one constant for each effect miss how effects meet: a short K with an epilogue that no mainloop hides, a
few tiles that share lines of L2. Small networks, whose outputs are averaged, take what the formulas say, and what they
depend on, and say by which factor the time differs. They are trained on surveys of random problems, and judged on
problems that they were not trained on: `warptile.bench.campaign.fit_costs`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.native.background import MadeLater
from warptile.native.networks import CompiledNetworks
from warptile.rungs.wgmma.cost import (
    LINE_BYTES,
    SECTOR_BYTES,
    SMS,
    TYPES,
    Launches,
    Number,
    Predicted,
    grid_of_d,
    loads,
    log2_of_width,
)

FloatArray = NDArray[np.float64]
Places = NDArray[np.int64]

MOST = 4.0
"""A feature is at most so many standard deviations from its mean: problems far from all that were surveyed are
corrected like the nearest ones."""


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights and biases of one network, row by row; each layer but the last is followed by max(x, 0)."""

    layers: tuple[tuple[tuple[tuple[float, ...], ...], tuple[float, ...]], ...]


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Networks, and what their features are scaled by.

    Attributes:
        features: names, in the order of `features`.
        mean, scale: of each.
        networks: whose outputs are averaged.
        rough: networks of a tenth of their size, which say what they need not look at.
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    networks: tuple[Network, ...]
    rough: tuple[Network, ...]


def features(launches: Launches, found: Predicted, xp: Any) -> dict[str, Number]:
    """What the networks see, by name; each a number or an array."""
    x, log2 = launches, xp.log2
    split = x.splits > 1
    cluster = x.cm * x.cn
    most = xp.clip(xp.floor(x.sms / cluster), 1, None)
    waves = xp.where(split, 1.0, xp.ceil(x.tiles / most))
    ctas_alone = xp.where(split, x.tiles * x.splits * cluster / SMS, x.tiles / most / waves)
    full = xp.where(x.stream > 0, 1.0, ctas_alone)
    k_tiles = xp.clip(xp.ceil(x.k / x.bk), 1, None)
    k_bytes = x.k * x.element_bits / 8
    of_a, of_b = loads(x, xp)
    k_tile_bytes = x.bk * x.element_bits / 8
    ideal_a, ideal_b = x.bm * k_tile_bytes / LINE_BYTES, x.bn * k_tile_bytes / LINE_BYTES
    grid_d = grid_of_d(x, xp)
    by_formula = found.total_us
    made = {
        "m": log2(x.m) - 9, "n": log2(x.n) - 9, "k": log2(x.k) - 10, "bm": log2(x.bm) - 7, "bn": log2(x.bn) - 6.5,
        "columns": x.bn / 128 - 1, "k_tile_bytes": log2(k_tile_bytes) - 7, "stages": log2(x.stages) - 2.3,
        "consumers": x.consumers - 1.5, "swap": x.swap, "overlap": x.overlap, "pingpong": x.pingpong,
        "stream": x.stream, "split": xp.where(split, 1.0, 0.0), "in_cluster": xp.where(x.cluster_k > 1, 1.0, 0.0),
        "cm": log2(x.cm), "cn": log2(x.cn), "splits": log2(x.splits),
        "a_by_k": x.a_by_k, "b_by_k": x.b_by_k, "d_bits": x.d_bits / 16 - 1, "by_tma": x.by_tma,
        "d_aligned": x.d_aligned, "unaligned_a": x.unaligned_a, "residues": x.residues, "waves": log2(waves),
        "full": full, "tiles": log2(x.tiles) - 6, "sms": x.sms / SMS, "k_tiles": log2(k_tiles) - 5,
        "iterations": log2(xp.ceil(k_tiles / x.splits)) - 4, "rows_used": x.m / (xp.ceil(x.m / x.bm) * x.bm),
        "columns_used": x.n / (xp.ceil(x.n / x.bn) * x.bn), "k_used": xp.clip(x.k / (k_tiles * x.bk), None, 1.0),
        "lines_a": of_a.lines / ideal_a - 1, "lines_b": of_b.lines / ideal_b - 1,
        "sectors_a": of_a.sectors / (4 * ideal_a) - 1, "sectors_b": of_b.sectors / (4 * ideal_b) - 1,
        "whole_sectors": xp.where(k_bytes % 32 == 0, 1.0, 0.0),
        "d_whole_lines": xp.where(grid_d < LINE_BYTES, 0.0, 1.0),
        "d_whole_sectors": xp.where(grid_d < SECTOR_BYTES, 0.0, 1.0), "store_width": log2_of_width(x.store_width, xp),
        "dram": xp.log(found.dram_us / found.sm_us), "l2": xp.log(found.loaded_us / found.sm_us),
        "power": xp.log(found.power_us / found.sm_us), "memory": xp.log(found.memory_clocks / found.compute_clocks),
        "mma": xp.log(found.mma_clocks / found.shared_clocks),
        "refill": xp.log(found.refill_clocks / found.fill_clocks),
        "epilogue": xp.log(found.epilogue_clocks / (found.k_tiles * found.compute_clocks)),
        "formula": xp.log(by_formula) - 2, "repacked": xp.where(x.repacking_us > 0, 1.0, 0.0),
        "repacking": xp.log(1 + x.repacking_us / by_formula), "held": x.held,
        "columns_16": xp.where(x.bn % 16 == 0, 1.0, 0.0), "columns_32": xp.where(x.bn % 32 == 0, 1.0, 0.0),
        "columns_64": xp.where(x.bn % 64 == 0, 1.0, 0.0), "even_waves": xp.where(full == 1, 1.0, 0.0),
        "filled": xp.log(1 + 4 * found.filled_us / found.sm_us),
        "ctas": xp.where(split, x.tiles * x.splits * cluster, xp.minimum(x.tiles, most) * cluster) / SMS,
    }  # fmt: skip
    return made | {f"type {index}": xp.where(x.type == index, 1.0, 0.0) for index in range(len(TYPES))}


class Corrector:
    """A `Correction` ready for use."""

    def __init__(self, correction: Correction) -> None:
        self._of = correction
        self._networks, self._rough = _Averaged(correction.networks), _Averaged(correction.rough)

    def inputs(self, launches: Launches, found: Predicted) -> list[Number]:
        """The features as the networks take them."""
        made, of = features(launches, found, np), self._of
        scaled = ((made[name] - mean) / scale for name, mean, scale in zip(of.features, of.mean, of.scale, strict=True))
        return [np.clip(each, -MOST, MOST) for each in scaled]

    def factor(self, inputs: FloatArray, places: Places) -> FloatArray:
        """Measured time over `Predicted.total_us`, as expected, of some launches.

        Args:
            inputs: a row for each of `inputs`, a column for each launch.
            places: columns of launches.
        """
        return self._networks.factor(inputs, places)

    def rough_factor(self, inputs: FloatArray, places: Places) -> FloatArray:
        """The same in less time, and not as close."""
        return self._rough.factor(inputs, places)


class _Averaged:
    """Networks of equal sizes, evaluated together: one network's part of a layer is a slice of the arrays."""

    def __init__(self, networks: tuple[Network, ...]) -> None:
        self._layers = [
            (
                np.array([weights for weights, _ in layer], np.float32).transpose(0, 2, 1).copy(),
                np.array([bias for _, bias in layer], np.float32)[:, None, :],
            )
            for layer in zip(*(each.layers for each in networks), strict=True)
        ]

        self._compiled = MadeLater(lambda: CompiledNetworks(self._layers))

    def factor(self, inputs: FloatArray, places: Places) -> FloatArray:
        if not self._layers:
            return np.ones(len(places))
        compiled = self._compiled.asked()
        found: FloatArray = np.exp(self._by_numpy(inputs[:, places]) if compiled is None else compiled(inputs, places))
        return found

    def _by_numpy(self, inputs: FloatArray) -> FloatArray:
        values = inputs.T.astype(np.float32)
        *hidden, (last, of_last) = self._layers
        for weights, bias in hidden:
            values = values @ weights
            values += bias
            np.maximum(values, 0, out=values)
        outputs = (values @ last + of_last)[..., 0]
        mean: FloatArray = np.add.reduce(outputs, axis=0, dtype=np.float64) / len(outputs)
        return mean
