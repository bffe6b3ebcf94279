"""Fit wgmma-final's cost models to surveys: ``python -m warptile.bench.campaign.fit_costs``. It needs torch.

This is how the models that ship are made, one for each GPU that was surveyed. The model of a user's own GPU is
calibrated in minutes and without torch: `warptile.bench.campaign.calibration`.

The constants of the formulas (`warptile.rungs.wgmma.cost`) are fitted first, by gradient descent on how far predicted
times are off. GPUs share them but for the few in which those with the same SMs differ (`DIFFERING`). Then the networks
of the correction (`warptile.rungs.wgmma.correction`) learn what is left of all surveys, and to choose: they also
minimize how much slower than the fastest measured configuration the softly chosen one is. They are the same for all
GPUs: what they see is relative to what the formulas say of a GPU.

Every fifth problem is left out in turn, and the networks are judged on those; the files say how good they are there.
The networks that ship are trained on all problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import click
import msgspec
import numpy as np

from warptile.bench.campaign.calibration import DIFFERING
from warptile.bench.campaign.surveyed_launches import (
    Measured,
    choices,
    error_text,
    geomean,
    joined,
    measured_in,
    quality,
)
from warptile.bench.protocol.records import SurveyRecord, committed
from warptile.device import REFERENCE
from warptile.rungs.wgmma.correction import MOST, Correction, Network, features
from warptile.rungs.wgmma.cost import Costs, Launches, predict
from warptile.rungs.wgmma.model import SCHEMA, FittedModel, file_of, written

START = Costs(
    clock_mhz=1700.0, launch_us=(1.6,) * 6, start_clocks=900.0, refill_clocks=700.0, mma_clocks=(1.1,) * 6,
    least_mma_clocks=20.0, column_factor=(1.0,) * 33, two_level_clocks=60.0, fragment_clocks=60.0, step_clocks=60.0,
    line_clocks=1.6, l2_lines_per_clock=60.0, zero_lines_per_clock=9.0, line_share=0.9, m_major_a=1.05, n_major_b=1.05,
    swapped=1.0, cluster_clocks=30.0, tile_clocks=700.0, out_bytes_per_clock=25.0, column_major_d=1.0, straddling_d=1.1,
    split_sector_d=1.3, wide_d=1.1, register_clocks=(60.0, 40.0, 30.0, 25.0),
    store_warp_clocks=(60.0, 40.0, 30.0, 25.0), hidden_clocks=200.0, turn=1.0, meeting_clocks=2500.0,
    cluster_meeting_clocks=1500.0, stream_clocks=3000.0, partial_bytes_per_clock=20.0,
    cluster_partial_bytes_per_clock=20.0, l2_partial_bytes_per_clock=3000.0, split_factor=1.05, stream_factor=1.1,
    dram_bytes_per_us=4.0e6, missed=0.02, stream_missed=0.3, watts=600.0, flop_pj=(0.3,) * 6, shared_pj=0.3, l2_pj=2.0,
    dram_pj=8.0, repacking=1.0, norm=4.0, iteration_norm=6.0, timeline_norm=4.0,
)  # fmt: skip
"""Where the fit begins, and what it is drawn to: plausible figures of the hardware."""

FIXED = ("clock_mhz",)
"""What others are relative to."""

AT_LEAST_ONE = ("straddling_d", "split_sector_d", "wide_d", "m_major_a", "n_major_b")
"""Factors of what can only cost more; where it costs nothing that was measured, a fit may fall below."""

CLOSE = 0.05
"""|log| of measured over predicted time up to which errors count as squares, beyond it as themselves."""

DRAWN, DRAWN_TABLE = 3e-5, 3e-4
"""How much constants are drawn to `START`, and those of the table of columns."""

SHARPNESS = 30.0
"""Exponent of the soft choice: a prediction 3 % slower has 0.4 of the weight."""

STEPS, LEARNING_RATE = 700, 0.03
"""Of constants."""

WIDTHS, NETWORKS, FOLDS = (256, 64, 32), 2, 5
"""Layers of a network, how many are averaged, and of how many parts of the problems each is left out in turn."""

ROUGH_WIDTHS = (32, 32)
"""Layers of the rough network."""

EPOCHS, PROBLEMS_AT_ONCE, NETWORK_LEARNING_RATE, DECAY = 60, 96, 6e-3, 0.3
"""Of networks: each step sees all launches of so many problems."""

PRESENT = 4.0
"""How often networks see a problem that the kernels of now were surveyed on, relative to one of earlier kernels."""

CHOOSING = 0.15
"""Weight of the soft choice, relative to that of predicted times."""

# --- constants --------------------------------------------------------------------------------------------------------


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise click.UsageError("fitting needs torch: pip install 'warptile[torch]'") from error
    torch.set_default_dtype(torch.float64)
    return torch


def _tensors(torch: Any, measured: Measured) -> Any:
    columns = ((field.name, getattr(measured.launches, field.name)) for field in fields(Launches))
    return Launches(**{name: torch.tensor(column) for name, column in columns})


def fit_costs(measured: Mapping[str, Measured], steps: int = STEPS) -> dict[str, Costs]:
    """The constants of each GPU that descend from `START`: those of the first, of which the others have factors."""
    torch = _torch()
    surveys = [(gpu, _tensors(torch, each), torch.tensor(each.times_us).log()) for gpu, each in measured.items()]
    start = {name: torch.tensor(value).double().log() for name, value in msgspec.structs.asdict(START).items()}
    free = {name: value.clone().requires_grad_(True) for name, value in start.items() if name not in FIXED}
    first, *others = measured
    factors = {gpu: {name: torch.zeros((), requires_grad=True) for name in DIFFERING} for gpu in others}

    def constants(gpu: str) -> dict[str, Any]:
        own = factors.get(gpu, {})
        return {name: (value + own.get(name, 0.0)).exp() for name, value in (start | free).items()}

    of_others = [value for own in factors.values() for value in own.values()]
    optimizer = torch.optim.Adam([*free.values(), *of_others], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        off = [
            logs - predict(launches, SimpleNamespace(**constants(gpu)), _TorchFunctions(torch)).total_us.log()
            for gpu, launches, logs in surveys
        ]
        loss = _soft(torch, torch.cat(off)).mean()
        for name, value in free.items():
            loss = loss + ((value - start[name]) ** 2).sum() * (DRAWN_TABLE if name == "column_factor" else DRAWN)
        for value in of_others:
            loss = loss + value**2 * DRAWN
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for name in AT_LEAST_ONE:
                free[name].clamp_(min=0.0)
    return {
        gpu: Costs(**{name: _rounded(value.detach().tolist()) for name, value in constants(gpu).items()})
        for gpu in (first, *others)
    }


def _rounded(value: Any) -> Any:
    return tuple(map(_rounded, value)) if isinstance(value, list) else float(f"{value:.4g}")


def _soft(torch: Any, off: Any) -> Any:
    return (torch.sqrt(1 + (off / CLOSE) ** 2) - 1) * CLOSE


class _TorchFunctions:
    """torch's functions under NumPy's names, of tensors and of numbers."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._torch, name)
        return lambda *values: function(*(self._tensor(value) for value in values))

    def _tensor(self, value: Any) -> Any:
        return value if isinstance(value, self._torch.Tensor) else self._torch.tensor(value)

    def where(self, condition: Any, one: Any, other: Any) -> Any:
        return self._torch.where(condition, one, other)

    def clip(self, values: Any, low: Any, high: Any) -> Any:
        return self._torch.clamp(values, low, high)

    def ceil(self, values: Any) -> Any:
        return self._torch.ceil(self._tensor(values).double())

    def floor(self, values: Any) -> Any:
        return self._torch.floor(self._tensor(values).double())


# --- the correction ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inputs:
    """What networks are trained on.

    Attributes:
        names: of the features.
        mean, scale: of each.
        values: scaled, a row for each launch.
        formula: logarithms of what the formulas predict.
    """

    names: tuple[str, ...]
    mean: Any
    scale: Any
    values: Any
    formula: Any


def _inputs(measured: Mapping[str, Measured], costs: Mapping[str, Costs]) -> _Inputs:
    values: list[Any] = []
    formulas: list[Any] = []
    names: tuple[str, ...] = ()
    for gpu, of in measured.items():
        arrays = {
            name: np.array(value) if isinstance(value, tuple) else value
            for name, value in msgspec.structs.asdict(costs[gpu]).items()
        }
        found = predict(of.launches, SimpleNamespace(**arrays), np)
        made = features(of.launches, found, np)
        names = tuple(made)
        values.append(np.stack([np.broadcast_to(each, len(of.times_us)) for each in made.values()], 1))
        formulas.append(np.log(found.total_us))
    rows = np.concatenate(values).astype(np.float32)
    mean, scale = rows.mean(0), rows.std(0) + 1e-6
    return _Inputs(names, mean, scale, np.clip((rows - mean) / scale, -MOST, MOST), np.concatenate(formulas))


def _trained(
    torch: Any, inputs: _Inputs, measured: Measured, chosen: Any, seed: int, widths: Sequence[int] = WIDTHS
) -> Any:
    """A network trained on some launches."""
    torch.manual_seed(seed)
    network = _network(torch, (inputs.values.shape[1], *widths))
    places = torch.tensor(np.flatnonzero(chosen))
    values = torch.tensor(inputs.values)
    base, logs = (torch.tensor(each, dtype=torch.float32) for each in (inputs.formula, np.log(measured.times_us)))
    problem = torch.tensor(measured.problem)
    least = torch.full((int(problem.max()) + 1,), 1e9, dtype=torch.float32)
    over = logs - least.scatter_reduce(0, problem, logs, "amin")[problem]
    weight = torch.exp(-2 * over) + 0.15  # what is far from the best need not be predicted well
    _, counts = torch.unique_consecutive(problem[places], return_counts=True)
    problems = torch.split(places, counts.tolist())
    present = torch.tensor(measured.by_present_kernels[[measured.problem[each[0]] for each in problems]])
    how_often = torch.where(present, PRESENT, 1.0)
    steps = EPOCHS * max(len(problems) // PROBLEMS_AT_ONCE, 1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=NETWORK_LEARNING_RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=NETWORK_LEARNING_RATE, total_steps=steps)
    for _ in range(steps):
        some = [problems[int(each)] for each in torch.multinomial(how_often, min(PROBLEMS_AT_ONCE, len(problems)))]
        rows, zeros = torch.cat(some), torch.zeros(len(some), dtype=torch.float32)
        group = torch.repeat_interleave(torch.tensor([len(each) for each in some]))
        optimizer.zero_grad()
        said = network(values[rows])[:, 0]
        loss = (weight[rows] * _soft(torch, logs[rows] - base[rows] - said)).sum() / weight[rows].sum()
        score = -(said + base[rows]) * SHARPNESS
        highest = (zeros - 1e9).scatter_reduce(0, group, score, "amax")
        share = torch.exp(score - highest[group])
        total = zeros.scatter_add(0, group, share)
        loss = loss + CHOOSING * (zeros.scatter_add(0, group, share * over[rows]) / total).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network


def _network(torch: Any, sizes: Sequence[int]) -> Any:
    """A network that as yet corrects little."""
    layers = [part for pair in pairwise(sizes) for part in (torch.nn.Linear(*pair), torch.nn.ReLU())]
    last = torch.nn.Linear(sizes[-1], 1)
    with torch.no_grad():
        last.weight *= 0.1
        last.bias *= 0.0
    return torch.nn.Sequential(*layers, last).float()


def fit(measured: Mapping[str, Measured], records: Mapping[str, Sequence[str]], say: Any) -> list[FittedModel]:
    """The models of some GPUs, with their quality on problems left out.

    Args:
        measured: launches by GPU, those of the reference first.
        records: names of their surveys.
        say: told how good the models are.
    """
    torch = _torch()
    costs = fit_costs(measured)
    inputs, together = _inputs(measured, costs), joined(measured.values())
    left_out = inputs.formula.copy()
    for fold in range(FOLDS):
        of_fold = together.problem % FOLDS == fold
        for seed in range(NETWORKS):
            network = _trained(torch, inputs, together, ~of_fold, seed)
            with torch.no_grad():
                left_out[of_fold] += network(torch.tensor(inputs.values[of_fold]))[:, 0].double().numpy() / NETWORKS
    everything = np.ones(len(left_out), np.bool_)
    networks = tuple(_layers(_trained(torch, inputs, together, everything, seed)) for seed in range(NETWORKS))
    mean, scale = (tuple(map(_short, each.tolist())) for each in (inputs.mean, inputs.scale))
    rough = _layers(_trained(torch, inputs, together, everything, NETWORKS, ROUGH_WIDTHS))
    correction = Correction(inputs.names, mean, scale, networks, (rough,))
    models, names = [], tuple(name for of in records.values() for name in of)
    for gpu, of in measured.items():
        here, left_out = np.exp(left_out[: len(of.times_us)]), left_out[len(of.times_us) :]
        found = quality(of, here)
        say(f"{gpu}: of problems left out, predictions are {error_text(found)}")
        _say_beside_library(of, here, say)
        models.append(FittedModel(SCHEMA, gpu, names, found, costs[gpu], correction))
    return models


def _say_beside_library(measured: Measured, predicted_us: Any, say: Any) -> None:
    best, chosen = choices(measured, predicted_us)
    timed = ~np.isnan(measured.library_us)
    for name, times in (("what they choose", chosen), ("the best measured", best)):
        beside = (measured.library_us / times)[timed]
        say(f"  {name}: {geomean(beside):.4f} of cuBLASLt, {np.mean(beside < 0.97):.3f} below 0.97")


def _layers(network: Any) -> Network:
    return Network(
        tuple(
            (tuple(tuple(map(_weight, row)) for row in layer.weight.tolist()), tuple(map(_weight, layer.bias.tolist())))
            for layer in network
            if hasattr(layer, "weight")
        )
    )


def _weight(value: float) -> float:
    return round(value, 3)  # changes predictions by 0.03 % in the median


def _short(value: float) -> float:
    return float(f"{value:.4g}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Fit the cost models of all GPUs of which there are surveys among the committed records, and write their files."""
    _torch()  # before the surveys are read, which takes a while
    surveys: dict[str, list[SurveyRecord]] = {REFERENCE.name: []}
    for each in committed():
        if isinstance(each, SurveyRecord) and not each.of_plans:
            surveys.setdefault(each.environment.gpu, []).append(each)
    if not surveys[REFERENCE.name]:
        raise click.UsageError(f"there is no survey of the {REFERENCE.name} among the records")
    measured = {gpu: measured_in(records) for gpu, records in surveys.items()}
    for gpu, of in measured.items():
        click.echo(f"{gpu}: {len(of.library_us)} problems, {len(of.times_us)} launches")
    names = {gpu: [each.id for each in records] for gpu, records in surveys.items()}
    for model in fit(measured, names, click.echo):
        path = file_of(model.gpu)
        path.write_bytes(written(model))
        click.echo(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
