"""Every operation that the emulator knows. Importing this package registers them all."""

import importlib
import pkgutil

from warptile.emulator.ops import barrier, cluster

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["barrier", "cluster"]
