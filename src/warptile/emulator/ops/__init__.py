"""The builders of all instructions; importing this package registers them."""

import importlib
import pkgutil

from warptile.emulator.ops import bar, cluster

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["bar", "cluster"]
