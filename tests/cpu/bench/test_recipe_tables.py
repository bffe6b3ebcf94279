"""The table of what README's recipes gain."""

from types import SimpleNamespace

import pytest

from warptile.bench.protocol.epilogue_times import EpilogueTime, EpilogueTimes
from warptile.bench.protocol.feature_times import CallTime, FeatureTimes
from warptile.bench.protocol.model_times import BackendTimes, ModelTimes
from warptile.bench.report import recipe_tables

TRAINED = ModelTimes(
    model="A model, training step", batch=2,
    backends=(
        BackendTimes(name="torch", rounds_ms=(2.0, 2.0, 4.0)), BackendTimes(name="warptile", rounds_ms=(1.0, 1.0, 2.0)),
        BackendTimes(name="compile", rounds_ms=(0.8, 0.8, 0.8)),
    ),
)  # fmt: skip
DECODED = ModelTimes(model="A model, decoding step", batch=1, backends=TRAINED.backends)
FUSED = EpilogueTimes(
    m=64, n=32, k=16, dtype="bfloat16",
    times=(
        EpilogueTime(name="warptile", computes="silu(acc) * gate", rounds_us=(90.0, 100.0)),
        EpilogueTime(name="torch.compile, max-autotune", computes="silu(acc) * gate", rounds_us=(100.0, 100.0)),
        EpilogueTime(name="warptile", computes="acc + bias", rounds_us=(1.0, 1.0)),
    ),
)  # fmt: skip


def scaled(name):
    rounds = {"warptile": (30.0, 30.0), "torch._scaled_mm": (60.0, 60.0)}
    return FeatureTimes(row=name, times=tuple(CallTime(name=key, rounds_us=each) for key, each in rounds.items()))


def lookup(models=(), epilogues=(), scales=()):
    return SimpleNamespace(
        model_times=lambda: models, epilogue_times=lambda: epilogues, origins=lambda: "origins\n",
        feature_times=lambda suite: {each.row: each for each in scales} if suite == "scales" else {},
    )  # fmt: skip


def test_each_recipe_is_beside_torch():
    rows = ["64x64x64 row-wise, fast", "64x32x64 row-wise, fast", "64x64x64 row-wise, two-level"]
    made = recipe_tables.table(lookup([DECODED, TRAINED], [FUSED], [scaled(each) for each in rows]))
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in made.splitlines() if "|" in line][2:]
    assert [line[0] for line in lines] == ["linear layers and blocks", "SwiGLU block", "float8 with scales of rows"]
    assert [line[3:] for line in lines] == [["2000", "1000", "0.500"], ["100", "95", "0.950"], ["60", "30", "0.500"]]
    assert made.endswith("origins\n")


@pytest.mark.parametrize("given", [{}, {"models": [DECODED]}, {"scales": [scaled("64x64x64 tensor-wise, fast")]}])
def test_nothing_is_shown_of_what_nobody_measured(given):
    assert recipe_tables.table(lookup(**given)) == ""
