"""A cost model is adapted to another GPU by a short survey of it."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from covering import ALL
from explained import unwrapped
from warptile.bench.campaign import calibration, problem_survey
from warptile.bench.campaign.calibration import DIFFERING, calibrated
from warptile.bench.campaign.surveyed_launches import Measured, error_text, measured_in, quality, some
from warptile.bench.protocol.records import SurveyRecord, committed
from warptile.cli.main import run
from warptile.device import KNOWN, REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.wgmma import model
from warptile.rungs.wgmma.model import Model, model_of, shipped_model

BASE = shipped_model(REFERENCE.name).fitted
STEP = 8 if ALL else 40
H100 = KNOWN["NVIDIA H100 NVL"]
"""A GPU whose model does not ship."""
OTHER = {"dram_bytes_per_us": 0.7, "clock_mhz": 1.1, "launch_us": 1.2, "l2_lines_per_clock": 0.9, "watts": 0.95}
"""How a pretended GPU differs from the reference."""


@pytest.fixture(scope="module")
def measured() -> Measured:
    """Every `STEP`-th problem of the committed surveys of the reference."""
    surveys = (each for each in committed() if isinstance(each, SurveyRecord) and not each.of_plans)
    here = (each for each in surveys if each.environment.gpu == REFERENCE.name)
    return measured_in(msgspec.structs.replace(each, surveyed=each.surveyed[::STEP]) for each in here)


def factors(**changes):
    return np.log([changes.get(name, 1.0) for name in DIFFERING])


def on_another(measured: Measured) -> Measured:
    """The launches as a GPU that differs so would take them, errors of the predictions included."""
    here, there = (calibration._predicted(measured, Model(BASE), each) for each in (factors(), factors(**OTHER)))
    return replace(measured, times_us=measured.times_us * there / here)


@pytest.fixture(scope="module")
def of_another(measured):
    """The model that a survey of the other GPU gives."""
    return calibrated(on_another(measured), BASE, H100.name, "a survey")


def test_constants_of_another_gpu_are_found(of_another):
    found = of_another
    for name, factor in OTHER.items():
        was, now = (np.mean(getattr(of.costs, name)) for of in (BASE, found))
        assert now / was == pytest.approx(factor, rel=0.08 if name == "watts" else 0.05), name  # few reach the limit
    assert (found.gpu, found.records[0], found.correction) == (H100.name, "a survey", BASE.correction)
    for name in msgspec.structs.asdict(BASE.costs).keys() - set(DIFFERING):
        assert getattr(found.costs, name) == getattr(BASE.costs, name), name


def test_predictions_are_better_than_those_of_the_gpu_it_was_fitted_to(measured, of_another):
    there = on_another(measured)
    before = quality(there, calibration._predicted(there, Model(BASE), factors()))
    after = of_another.quality
    assert after.median_error < 0.6 * before.median_error
    assert after.choice >= before.choice
    assert after.problems == before.problems == len(measured.library_us)


def test_the_same_gpu_keeps_its_constants(measured):
    found = calibrated(measured, BASE, REFERENCE.name, "a survey")
    for name in ("clock_mhz", "dram_bytes_per_us", "l2_lines_per_clock"):
        assert getattr(found.costs, name) == pytest.approx(getattr(BASE.costs, name), rel=0.06), name


def test_few_problems_are_refused(measured):
    few = some(measured, measured.problem < 7)
    with pytest.raises(UnsupportedError, match=r"7 problems were measured; it needs 20: .* --minutes 10"):
        calibrated(replace(few, library_us=measured.library_us[:7]), BASE, "a GPU", "x")


@pytest.fixture
def survey_of_h100(monkeypatch, tmp_path, measured):
    """A survey of a pretended H100 in place of a GPU."""
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    asked = []

    def supervise(out, arguments, until_s):
        asked.append(arguments)
        problem_survey.journal(out).write_bytes(b"")

    monkeypatch.setattr(problem_survey, "supervise", supervise)
    monkeypatch.setattr(problem_survey, "surveyed", lambda out: ())
    monkeypatch.setattr(calibration, "measured_of", lambda surveyed, device: on_another(measured))
    return asked


def test_a_calibration_is_what_plans_are_predicted_by(survey_of_h100, of_another, tmp_path, monkeypatch):
    def fitted(measured, base, gpu, *names):
        assert (base, gpu, len(names)) == (BASE, H100.name, 1)
        return of_another

    monkeypatch.setattr(calibration, "calibrated", fitted)  # it is the same survey
    said: list[str] = []
    shipped = model_of(H100.name).fitted
    assert shipped.gpu == REFERENCE.name  # nothing was calibrated yet
    path = calibration.calibrate(H100, tmp_path / "survey", 5, said.append)
    assert path == model.user_file(H100.name)
    assert "--no-library" in survey_of_h100[0]
    model._model_of.cache_clear()  # as in another process
    own = model_of(H100.name).fitted
    assert own == msgspec.json.decode(path.read_bytes(), type=model.FittedModel)
    assert own.gpu == H100.name
    assert own.costs.dram_bytes_per_us < 0.8 * shipped.costs.dram_bytes_per_us
    bf16 = DTYPES["bfloat16"]
    problem = Problem.dense(64, 4096, 4096, bf16, out=bf16, accumulator=DTYPES["float32"])
    text = unwrapped(make_plan(problem, device=H100).explain())
    assert f"fitted to {own.quality.problems} problems on an {H100.name}" in text
    assert f"nine in ten are within {100 * own.quality.error_90:.0f} %" in text
    assert said[-1] == f"now they are {error_text(own.quality)} (of problems left out)"


def test_a_file_that_cannot_be_read_is_named_and_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    path = model.user_file(H100.name)
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"schema": "of another version"}')
    with pytest.warns(UserWarning, match=r"model-wgmma-final-.*json is not read: .*warptile tune --calibrate"):
        assert model_of(H100.name).fitted.gpu == REFERENCE.name


def test_other_generations_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"NVIDIA A100.* is sm_80; .*needs sm_90a.*warptile tune wmma-final"):
        calibration.calibrate(KNOWN["NVIDIA A100-SXM4-80GB"], tmp_path, 5, print)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--calibrate"], "there is no NVIDIA GPU"),
        (["--calibrate", "--suite", "squares"], "--calibrate goes without --suite"),
        (["--minutes", "3"], "--minutes go with --suite"),
        (["--calibrate", "--minutes", "0"], "0.5"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("warptile.runtime.execute.has_gpu", lambda: False)
    assert run(["tune", *arguments]) != 0
    assert message in capsys.readouterr().err
