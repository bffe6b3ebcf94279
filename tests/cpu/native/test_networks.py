"""Networks compiled to machine code say what NumPy says."""

from itertools import pairwise

import numpy as np
import pytest

from warptile.native.networks import LANES, CompiledNetworks

SIZES = ((5, 1), (3, 8, 1), (7, 24, 4, 1), (62, 64, 32, 1))


def layers(sizes, networks, seed=0):
    generator = np.random.default_rng(seed)
    return [
        (
            generator.standard_normal((networks, entering, units)).astype(np.float32),
            generator.standard_normal((networks, 1, units)).astype(np.float32),
        )
        for entering, units in pairwise(sizes)
    ]


def by_numpy(layers, inputs):
    """The mean of all outputs, in float64."""
    values = inputs.T
    for number, (weights, bias) in enumerate(layers):
        values = values @ weights.astype(np.float64) + bias
        if number < len(layers) - 1:
            values = np.maximum(values, 0)
    return values[..., 0].mean(axis=0)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("networks", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, LANES - 1, LANES, 2 * LANES + 3])
def test_networks_of_any_size_are_numpys(sizes, networks, count):
    some = layers(sizes, networks)
    inputs = np.random.default_rng(count).standard_normal((sizes[0], 50))
    places = np.random.default_rng(1).permutation(50)[:count]
    found = CompiledNetworks(some)(inputs, places)
    assert found.shape == (count,)
    np.testing.assert_allclose(found, by_numpy(some, inputs[:, places]), rtol=1e-4, atol=1e-4)


def test_inputs_are_looked_at_in_some_places_alone():
    some, inputs = layers((4, 8, 1), 2), np.full((4, 9), np.nan)
    inputs[:, 3], inputs[:, 7] = 0.5, -2.0
    (first, second) = CompiledNetworks(some)(inputs, np.array([7, 3]))
    np.testing.assert_allclose([second, first], by_numpy(some, inputs[:, [3, 7]]), rtol=1e-5, atol=1e-5)
