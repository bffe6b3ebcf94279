"""The colors that carry meaning stand out from the page and from each other, also for color-blind readers.

Color vision deficiencies are simulated with the matrices of Machado, Oliveira and Fernandes, "A Physiologically-based
Model for Simulation of Color Vision Deficiency" (2009), severity 1.0, in linear RGB.
"""

import re
from itertools import combinations

import numpy as np
import pytest

from warptile.figures.assets import stylesheet
from warptile.figures.timeline_chart import LOOKS
from warptile.rungs import families

VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
"""Linear sRGB to XYZ, IEC 61966-2-1."""

GRAPHICS, TEXT = 3.0, 4.5
"""Least contrast of graphics and of text: WCAG 2.2, success criteria 1.4.11 and 1.4.3."""

APART = 12.0
"""Least distance in CIELAB of two groups' colors; about two are just told apart side by side."""

PAIRS = dict(re.findall(r"--wt-([\w]+): (light-dark\([^)]*\)|#\w+);", stylesheet()))
GROUPS = [f"c{group}" for group in range(len(families()))]


def color(name, dark):
    """Linear RGB of a custom property of the stylesheet."""
    values = re.findall(r"#(\w{6})", PAIRS[name])
    digits = values[-1 if dark else 0]
    encoded = np.array([int(digits[place : place + 2], 16) for place in (0, 2, 4)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    lighter, darker = sorted((float(TO_XYZ[1] @ one), float(TO_XYZ[1] @ other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def lab(linear):
    ratio = TO_XYZ @ np.clip(linear, 0, 1) / (TO_XYZ @ np.ones(3))
    curve = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * curve[1] - 16, 500 * (curve[0] - curve[1]), 200 * (curve[1] - curve[2])])


@pytest.mark.parametrize("dark", [False, True])
def test_marks_and_text_stand_out_from_the_page(dark):
    paper = color("paper", dark)
    for name in GROUPS:
        assert contrast(color(name, dark), paper) >= GRAPHICS, name
    for name in ("ink", "faint", "accent"):
        assert contrast(color(name, dark), paper) >= TEXT, name
        assert contrast(color(name, dark), color("raised", dark)) >= TEXT, name


def test_black_text_stands_out_from_labelled_cells():
    for cell in range(8):
        assert contrast(color(f"q{cell}", False), np.zeros(3)) >= TEXT


@pytest.mark.parametrize("dark", [False, True])
def test_strokes_of_timelines_stand_out_and_the_numbers_of_phases_can_be_read(dark):
    for look in LOOKS:
        (name,) = re.findall(rf"\.wt-t-{look.name} {{ stroke: var\(--wt-(\w+)\)", stylesheet())
        if look.name == "phase":
            for phase in ("p0", "p1"):
                assert contrast(color("ink", dark), color(phase, dark)) >= TEXT
        else:
            assert contrast(color(name, dark), color("paper", dark)) >= GRAPHICS, look.name


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("dark", [False, True])
def test_groups_are_told_apart_with_any_color_vision(vision, dark):
    seen = {name: lab(VISION[vision] @ color(name, dark)) for name in GROUPS}
    for one, other in combinations(GROUPS, 2):
        assert np.linalg.norm(seen[one] - seen[other]) >= APART, (one, other)


def test_two_grays_are_not_taken_for_two_colors():
    assert np.linalg.norm(lab(np.full(3, 0.2)) - lab(np.full(3, 0.21))) < APART
