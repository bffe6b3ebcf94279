"""What planning assumes of a GPU: how many CTAs are resident together, whichever of its SMs are disabled."""

from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from pretended_gpu import DEVICE
from warptile.arch import ARCHES
from warptile.device import GPCS, KNOWN, MAX_SMS_PER_GPC, REFERENCE, DeviceLimits, usual
from warptile.errors import UnsupportedError
from warptile.gpu import driver

CLUSTERS = (4, 8, 16)

COUNTED = (132, 132, 117, 120, 110, 102, 105, 120)
"""CTAs in clusters of 1 to 8 that the driver of an H100 80GB HBM3 counts; so many met on it."""


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """No GPU is there whose driver could count clusters."""
    monkeypatch.setattr(driver, "_clustered", lambda info: COUNTED)


@pytest.fixture(scope="module")
def least():
    """(SMs, CTAs of a cluster) -> the fewest CTAs in whole clusters, over every way to spread the SMs over GPCs."""
    found = {}
    for gpcs in combinations_with_replacement(range(0, MAX_SMS_PER_GPC + 1, 2), GPCS):
        for cluster in CLUSTERS:
            ctas = sum(sms // cluster * cluster for sms in gpcs)
            found[sum(gpcs), cluster] = min(ctas, found.get((sum(gpcs), cluster), ctas))
    return found


def gpu(sms):
    return DeviceLimits("a GPU", "sm_90a", sms, 2**25)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_clusters_are_counted_for_the_worst_spread_of_sms(least, cluster):
    for sms in range(2, GPCS * MAX_SMS_PER_GPC + 1, 2):
        assert gpu(sms).co_resident_ctas(cluster) == least[sms, cluster], sms
        assert gpu(sms + 1).co_resident_ctas(cluster) <= least[sms, cluster], "an odd SM holds no cluster"


def test_a_cluster_of_two_takes_the_two_sms_of_a_tpc():
    for sms in range(2, 150):
        assert gpu(sms).co_resident_ctas(1) == sms
        assert gpu(sms).co_resident_ctas(2) == sms // 2 * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", (132, 132, 116, 104)),
        ("NVIDIA H100 80GB HBM3", (132, 132, 116, 104)),
        ("NVIDIA H100 PCIe", (114, 114, 100, 72)),
        ("NVIDIA H20", (78, 78, 64, 32)),
    ],
)
def test_ctas_of_known_models_in_clusters_of_1_2_4_and_8(name, expected, least):
    device = KNOWN[name]
    assert tuple(map(device.co_resident_ctas, (1, 2, 4, 8))) == expected
    assert expected[2:] == (least[device.multiprocessors, 4], least[device.multiprocessors, 8])


def test_more_sms_than_the_known_gpcs_have_promise_no_clusters_but_pairs():
    device = gpu(GPCS * MAX_SMS_PER_GPC + 4)
    assert tuple(map(device.co_resident_ctas, (1, 2, 4, 8))) == (148, 148, 0, 0)


@pytest.mark.parametrize(
    ("max_sms", "expected"), [(1, (1, 0, 0)), (7, (7, 6, 4)), (120, (120, 120, 116)), (500, (132, 132, 116))]
)
def test_a_launch_that_occupies_a_part_counts_whole_clusters_of_it(max_sms, expected):
    part = REFERENCE.occupying(max_sms)
    assert tuple(map(part.co_resident_ctas, (1, 2, 4))) == expected
    assert part.sms == min(max_sms, 132)
    assert part.multiprocessors == 132, "the GPU is no smaller"


def test_occupying_as_many_as_before_is_the_same_object_and_none_is_all():
    assert REFERENCE.occupying(None) is REFERENCE
    part = REFERENCE.occupying(60)
    assert part.occupying(60) is part
    assert part.occupying(100) == REFERENCE.occupying(100), "a limit replaces the one before"
    assert part.occupying(None) == REFERENCE


def test_every_known_model_has_limits_of_its_architecture():
    for name, device in KNOWN.items():
        assert name == device.name
        assert device.generation is ARCHES[device.arch]
        assert device.multiprocessors % 2 == 0
        assert device.max_ctas is None


def test_each_architecture_has_a_usual_gpu_and_the_reference_is_that_of_its_own():
    assert usual(REFERENCE.arch) is REFERENCE
    for arch in ARCHES:
        assert usual(arch).arch == arch
    assert usual("sm_90") == replace(REFERENCE, name="sm_90", arch="sm_90"), "none is known by that name"


def test_a_gpu_that_is_present_has_the_limits_that_its_driver_reports():
    assert DEVICE.limits == replace(KNOWN["NVIDIA H200"], clustered=COUNTED)
    smaller = replace(DEVICE, name="NVIDIA H200 MIG 3g.71gb", multiprocessors=60, l2_bytes=30 * 2**20)
    assert smaller.limits == DeviceLimits("NVIDIA H200 MIG 3g.71gb", "sm_90a", 60, 30 * 2**20, clustered=COUNTED)
    assert replace(DEVICE, capability=(8, 9)).limits.clustered == (), "it has no clusters"


def test_what_the_driver_counts_goes_before_the_worst_spread():
    present = DEVICE.limits
    assert tuple(map(present.co_resident_ctas, range(1, 9))) == COUNTED
    assert present.co_resident_ctas(16) == gpu(132).co_resident_ctas(16), "it was not asked for so large ones"
    assert tuple(map(present.occupying(60).co_resident_ctas, (1, 2, 3, 8))) == (60, 60, 60, 56)


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 8), "sm_87"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"),
     ((12, 0), "sm_120a")],
)  # fmt: skip
def test_the_newest_known_architecture_that_a_gpu_runs_is_planned_for(capability, arch):
    assert replace(DEVICE, capability=capability).limits.arch == arch


def test_a_gpu_that_runs_no_known_architecture_is_refused_when_it_is_planned_for():
    limits = replace(DEVICE, capability=(12, 1)).limits
    with pytest.raises(UnsupportedError, match="sm_121a"):
        _ = limits.generation
