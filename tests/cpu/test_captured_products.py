"""A whole product on the emulator equals the GPU's in every bit."""

import pytest

from products import PRODUCTS, digest, recorded


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_equals_the_gpu(product):
    entry = recorded()[product.name]
    assert digest(product.run("emulator", entry["config"])) == entry["sha256"]
