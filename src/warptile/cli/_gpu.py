"""Commands that time kernels, where there is no GPU: what runs without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from warptile.errors import NoDeviceError


@contextmanager
def timed_on_gpu(command: str, without: str) -> Iterator[None]:
    """Say of a command that finds no GPU what does its work, or a part of it, without one.

    Args:
        command: as the user wrote it, such as ``bench``.
        without: another command line, and what it does.

    Raises:
        NoDeviceError: there is no GPU.
    """
    try:
        yield
    except NoDeviceError as error:
        raise NoDeviceError(
            f"{command}: it times kernels on an NVIDIA GPU, and there is none; `warptile doctor` says what is missing. "
            f"Without one, {without}",
            error.driver_name,
        ) from error
