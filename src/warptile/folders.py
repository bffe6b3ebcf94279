"""Where this user's files are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

CHOSEN = "WARPTILE_CACHE_DIR"
"""Environment variable that names one folder for all of them; read at each call."""


def user_folder(kind: Literal["cache", "data"]) -> Path:
    """The platform's folder for this user's ``cache`` or ``data``, or the one that ``WARPTILE_CACHE_DIR`` names.

    A user without a home folder (a container that runs as a number without a name) gets one of their own in the
    temporary folder; `warptile.codegen.cache.Cache` refuses it where another user made it first.
    """
    chosen = os.environ.get(CHOSEN)
    if chosen:
        return Path(os.path.expanduser(chosen))  # files of settings have "~" as it is
    import platformdirs

    try:
        found = Path(getattr(platformdirs, f"user_{kind}_dir")("warptile"))
    except RuntimeError:  # newer versions of it, where there is no home folder; older ones answer "~/..."
        found = Path()
    if found.is_absolute():
        return found
    return Path(tempfile.gettempdir()).absolute() / f"warptile-{kind}-{os.geteuid()}"
