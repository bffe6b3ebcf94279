"""Fit wgmma-final's cost model to surveys: ``python -m warptile.bench.campaign.fit_costs``. It needs torch.

This is how the model of the reference GPU is made. Other models of GPUs, which have fewer surveys, are calibrated:
`warptile.bench.campaign.calibration`, without torch.

The constants of the formulas (`warptile.rungs.wgmma.cost`) are fitted first, by gradient descent on how far predicted
times are off; then the networks of the correction (`warptile.rungs.wgmma.correction`) learn what is left, and to
choose: they also minimize how much slower than the fastest measured configuration the softly chosen one is.

Every fifth problem is left out in turn, and the networks are judged on those; the file says how good they are there.
The networks that ship are trained on all problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import click
import msgspec
import numpy as np

from warptile.bench.campaign.calibration import calibrated
from warptile.bench.campaign.surveyed_launches import Measured, choices, error_text, geomean, measured_in, quality
from warptile.bench.protocol.records import SurveyRecord, committed
from warptile.device import REFERENCE
from warptile.rungs.wgmma.correction import Correction, Network, features
from warptile.rungs.wgmma.cost import Costs, Launches, predict
from warptile.rungs.wgmma.model import SCHEMA, FittedModel, Model, file_of, shipped_model

START = Costs(
    clock_mhz=1700.0, launch_us=(1.6,) * 6, start_clocks=900.0, refill_clocks=700.0, mma_clocks=(1.1,) * 6,
    least_mma_clocks=20.0, column_factor=(1.0,) * 33, two_level_clocks=60.0, fragment_clocks=60.0, step_clocks=60.0,
    line_clocks=1.6, l2_lines_per_clock=60.0, straddling=1.0, m_major_a=1.05, n_major_b=1.05, swapped=1.0,
    cluster_clocks=30.0, tile_clocks=700.0, out_bytes_per_clock=25.0, column_major_d=1.0, straddling_d=1.1,
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

WIDTH, NETWORKS, FOLDS = 32, 2, 5
STEPS, NETWORK_STEPS = 700, 700
LEARNING_RATE, NETWORK_LEARNING_RATE, DECAY = 0.03, 6e-3, 0.3
CHOOSING = 0.3
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


def fit_costs(measured: Measured, steps: int = STEPS) -> Costs:
    """The constants that descend from `START`."""
    torch = _torch()
    launches, logs = _tensors(torch, measured), torch.tensor(measured.times_us).log()
    start = {name: torch.tensor(value).double().log() for name, value in msgspec.structs.asdict(START).items()}
    free = {name: value.clone().requires_grad_(True) for name, value in start.items() if name not in FIXED}
    optimizer = torch.optim.Adam(list(free.values()), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        costs = SimpleNamespace(**{name: value.exp() for name, value in (start | free).items()})
        off = logs - predict(launches, costs, _TorchFunctions(torch)).total_us.log()
        loss = _soft(torch, off).mean()
        for name, value in free.items():
            loss = loss + ((value - start[name]) ** 2).sum() * (DRAWN_TABLE if name == "column_factor" else DRAWN)
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for name in AT_LEAST_ONE:
                free[name].clamp_(min=0.0)
    found = {name: value.exp().detach().tolist() for name, value in (start | free).items()}
    return Costs(**{name: _rounded(value) for name, value in found.items()})


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


def _scaled(measured: Measured, costs: Costs) -> tuple[tuple[str, ...], Any, Any, Any, Any]:
    """Names of features, their means, scales and scaled values, and logarithms of what the formulas predict."""
    arrays = {
        name: np.array(value) if isinstance(value, tuple) else value
        for name, value in msgspec.structs.asdict(costs).items()
    }
    found = predict(measured.launches, SimpleNamespace(**arrays), np)
    made = features(measured.launches, found, np)
    values = np.stack([np.broadcast_to(each, len(measured.times_us)) for each in made.values()], 1).astype(np.float32)
    mean, scale = values.mean(0), values.std(0) + 1e-6
    return tuple(made), mean, scale, np.clip((values - mean) / scale, -4, 4), np.log(found.total_us)


def _trained(torch: Any, values: Any, measured: Measured, formula: Any, chosen: Any, seed: int) -> Any:
    """A network trained on some launches."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Linear(values.shape[1], WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 1),
    ).float()  # fmt: skip
    with torch.no_grad():
        network[-1].weight *= 0.1
        network[-1].bias *= 0.0
    rows = torch.tensor(values[chosen])
    base, logs = (torch.tensor(each[chosen], dtype=torch.float32) for each in (formula, np.log(measured.times_us)))
    _, group = torch.unique(torch.tensor(measured.problem[chosen]), return_inverse=True)
    groups = int(group.max()) + 1
    least = torch.full((groups,), 1e9, dtype=torch.float32).scatter_reduce(0, group, logs, "amin")
    over = logs - least[group]
    weight = torch.exp(-2 * over) + 0.15  # what is far from the best need not be predicted well
    weight = weight / weight.mean()
    optimizer = torch.optim.AdamW(network.parameters(), lr=NETWORK_LEARNING_RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=NETWORK_LEARNING_RATE, total_steps=NETWORK_STEPS)
    zeros = torch.zeros(groups, dtype=torch.float32)
    for _ in range(NETWORK_STEPS):
        optimizer.zero_grad()
        said = network(rows)[:, 0]
        loss = (weight * _soft(torch, logs - base - said)).mean()
        score = -(said + base) * SHARPNESS
        highest = torch.full((groups,), -1e9, dtype=torch.float32).scatter_reduce(0, group, score, "amax")
        share = torch.exp(score - highest[group])
        total = zeros.scatter_add(0, group, share)
        loss = loss + CHOOSING * (zeros.scatter_add(0, group, share * over) / total).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network


def fit(measured: Measured, gpu: str, records: Sequence[str], say: Any = lambda text: None) -> FittedModel:
    """Constants and correction, with their quality on problems left out."""
    torch = _torch()
    costs = fit_costs(measured)
    names, mean, scale, values, formula = _scaled(measured, costs)
    say(f"formulas alone are {error_text(quality(measured, np.exp(formula)))}")
    left_out = np.zeros_like(formula)
    for fold in range(FOLDS):
        of_fold = measured.problem % FOLDS == fold
        for seed in range(NETWORKS):
            network = _trained(torch, values, measured, formula, ~of_fold, seed)
            with torch.no_grad():
                left_out[of_fold] += network(torch.tensor(values[of_fold]))[:, 0].double().numpy() / NETWORKS
    predicted = np.exp(formula + left_out)
    best, chosen = choices(measured, predicted)
    found = quality(measured, predicted)
    say(f"of problems left out, predictions are {error_text(found)}")
    beside = measured.library_us / chosen
    beside = beside[~np.isnan(beside)]
    say(f"beside cuBLASLt: {geomean(beside):.4f}, {np.mean(beside < 0.97):.3f} below 0.97; ")
    of_best = (measured.library_us / best)[~np.isnan(measured.library_us)]
    say(f"the best measured: {geomean(of_best):.4f}, {np.mean(of_best < 0.97):.3f} below 0.97")
    everything = np.ones(len(formula), np.bool_)
    networks = tuple(_layers(_trained(torch, values, measured, formula, everything, seed)) for seed in range(NETWORKS))
    correction = Correction(names, tuple(map(_short, mean.tolist())), tuple(map(_short, scale.tolist())), networks)
    return FittedModel(SCHEMA, gpu, tuple(records), found, costs, correction)


def _layers(network: Any) -> Network:
    return Network(
        tuple(
            (tuple(tuple(map(_weight, row)) for row in layer.weight.tolist()), tuple(map(_weight, layer.bias.tolist())))
            for layer in network
            if hasattr(layer, "weight")
        )
    )


def _weight(value: float) -> float:
    return float(f"{value:.3g}")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gpu", default=REFERENCE.name, show_default=True, help="Fit to this model's surveys.")
def main(gpu: str) -> None:
    """Fit the cost model of a GPU model to all committed surveys of it, and write its file. That of another GPU than
    the reference is calibrated."""
    if gpu == REFERENCE.name:
        _torch()  # before the surveys are read, which takes a while
    records = [each for each in committed() if isinstance(each, SurveyRecord) and each.environment.gpu == gpu]
    if not records:
        raise click.UsageError(f"--gpu {gpu}: there is no survey of it among the records")
    measured = measured_in(records)
    click.echo(f"{len(measured.library_us)} problems, {len(measured.times_us)} launches")
    names = [each.id for each in records]
    if gpu == REFERENCE.name:
        found = fit(measured, gpu, names, click.echo)
    else:
        found = calibrated(measured, shipped_model(REFERENCE.name).fitted, gpu, *names)
    path = file_of(gpu)
    path.write_bytes(msgspec.json.encode(found) + b"\n")
    click.echo(f"{path.name}: {path.stat().st_size} bytes; {Model(found).fitted.quality}")


if __name__ == "__main__":
    main()
