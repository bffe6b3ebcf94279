"""A whole product on the emulator equals the GPU's in every bit."""

import pytest

from covering import alternating, covering, few
from products import PRODUCTS, SIZES, WGMMA_HASHES, WGMMA_PRODUCTS, digest, recorded
from warptile.arrays.operands import arrange
from warptile.rungs import RUNGS

KINDS = tuple(dict.fromkeys((product.dtype, product.options) for product in PRODUCTS))
WANTED = {(*kind, size) for kind, size in covering(KINDS, SIZES, pairs=())}
CHOSEN = [each for each in PRODUCTS if (each.dtype, each.options, each.size) in WANTED]
"""Every type in one size, and every size in some types, of which an ordinary run takes few; with WARPTILE_TESTS=all
every type in every size."""

WGMMA_KINDS = tuple(dict.fromkeys((product.dtype, product.options, product.fixed) for product in WGMMA_PRODUCTS))
WGMMA_CHOSEN = []
for number, kind in enumerate(WGMMA_KINDS):
    alike = [each for each in WGMMA_PRODUCTS if (each.dtype, each.options, each.fixed) == kind]
    WGMMA_CHOSEN += alternating(alike[:: -1 if number % 2 else 1])
"""Every type and configuration in one size, and both sizes in some types; of them, too, few."""


@pytest.mark.parametrize("product", few(CHOSEN, 2), ids=lambda product: product.name)
def test_equals_the_gpu(product):
    entry = recorded()[product.name]
    assert digest(product.run("emulator", entry["config"])) == entry["sha256"]


@pytest.mark.skipif(not WGMMA_HASHES.exists(), reason=f"{WGMMA_HASHES.name} is to be captured on an H200")
@pytest.mark.parametrize("product", few(WGMMA_CHOSEN, 3), ids=lambda product: product.name)
def test_wgmma_equals_the_gpu(product):
    entry = recorded(WGMMA_HASHES)[product.name]
    assert entry["config"] == dict(product.fixed)
    assert digest(product.run("emulator", entry["config"])) == entry["sha256"]


def test_products_of_wgmma_are_legal_and_have_names_of_their_own():
    assert len({product.name for product in WGMMA_PRODUCTS}) == len(WGMMA_PRODUCTS)
    for product in WGMMA_PRODUCTS:
        problem = arrange(*product.operands(), **dict(product.options)).problem
        assert RUNGS[product.rung].illegal(problem, dict(product.fixed)) is None, product.name
