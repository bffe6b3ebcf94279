"""Tests of CUDA kernels without a GPU: the pytest fixture ``warptile_emulator``.

pytest loads this module in every run in which warptile is installed, so it imports warptile only where a test asks for
the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warptile.user_kernels.emulated_launches import EmulatedLaunches

FIXTURE, MARKER = "warptile_emulator", "warptile_emulator"

_KEYWORDS = ("arch", "schedule", "explore", "checks", "ignore", "model", "volatile", "raises")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--warptile-schedules`` and ``--warptile-arch``."""
    group = parser.getgroup("warptile", "CUDA kernels on warptile's emulator")
    group.addoption(
        "--warptile-schedules", default="", metavar="LIST",
        help="Run each test of the emulator under these schedules, such as latest,earliest,random:1.",
    )  # fmt: skip
    group.addoption("--warptile-arch", default=None, metavar="ARCH", help="Architecture to emulate, such as sm_80.")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and refuse options that no test could run under.

    Raises:
        pytest.UsageError: an unknown schedule or architecture.
    """
    _check_options(config)
    config.addinivalue_line(
        "markers",
        f"{MARKER}({', '.join(_KEYWORDS)}): how the kernels of a test are emulated, by the keywords of "
        "warptile.emulated",
    )


def _schedules(config: pytest.Config) -> list[str]:
    return [each.strip() for each in config.getoption("--warptile-schedules").split(",") if each.strip()]


def _check_options(config: pytest.Config) -> None:
    schedules, arch = _schedules(config), config.getoption("--warptile-arch")
    if not schedules and arch is None:
        return
    from warptile.arch import ARCHES
    from warptile.emulator.async_ops.cp_async import check_schedule
    from warptile.errors import UnsupportedError

    for each in schedules:
        try:
            check_schedule(each)
        except UnsupportedError:
            raise pytest.UsageError(
                f"--warptile-schedules: got {each!r}; it takes latest, earliest and random:SEED, with commas between "
                "them, such as --warptile-schedules=latest,random:7"
            ) from None
    if arch is not None and arch not in ARCHES:
        raise pytest.UsageError(
            f"--warptile-arch: got {arch!r}; it takes {', '.join(ARCHES)}, such as --warptile-arch=sm_90a"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each schedule, where several are wanted."""
    schedules = _schedules(metafunc.config)
    if FIXTURE in metafunc.fixturenames and schedules:
        metafunc.parametrize(FIXTURE, schedules, indirect=True)


@pytest.fixture(name=FIXTURE)
def emulator_fixture(request: pytest.FixtureRequest) -> Iterator[EmulatedLaunches]:
    """Every kernel that the test launches by ``warptile.kernel`` is emulated and checked; a finding other than a
    warning fails the test, at the launch. ``warptile_emulator.reports`` has the report of each launch."""
    from warptile.user_kernels.emulated_launches import emulated

    marker = request.node.get_closest_marker(MARKER)
    given: dict[str, Any] = {"arch": request.config.getoption("--warptile-arch")}
    if hasattr(request, "param"):
        given["schedule"] = request.param
    if marker is not None:
        unknown = [str(each) for each in (*marker.args, *(marker.kwargs.keys() - set(_KEYWORDS)))]
        if unknown:
            raise pytest.UsageError(
                f"marker {MARKER}: got {', '.join(unknown)}; it takes keywords: {', '.join(_KEYWORDS)}, such as "
                f'@pytest.mark.{MARKER}(model="common")'
            )
        given |= marker.kwargs
    with emulated(**given) as launches:
        yield launches
