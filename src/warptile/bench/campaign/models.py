"""Time models of `examples/` by torch and by warptile; `python -m warptile.bench.campaign.models` writes a record."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
from warptile.bench.protocol.model_times import BackendTimes, ModelTimes
from warptile.bench.protocol.records import FOLDER, ModelsRecord, write

EXAMPLES = FOLDER.parent / "examples"


def output_of(example: str, *arguments: str) -> dict[str, Any]:
    """The JSON document that an example prints, from a process of its own.

    Raises:
        subprocess.CalledProcessError: the example failed; its error is on standard error.
    """
    words = [sys.executable, str(EXAMPLES / f"{example}.py"), *arguments]
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    document: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return document


def training(steps: int, *arguments: str) -> ModelTimes:
    """Training steps of GPT-2 by every backend."""
    document = output_of("train_gpt2", "--compare", "--steps", str(steps), *arguments)
    millions = round(document["parameters"] / 1e6)
    backends = tuple(
        BackendTimes(name=name, rounds_ms=tuple(each["turns_ms"]), losses=tuple(each["losses"]))
        for name, each in document["backends"].items()
    )
    return ModelTimes(model=f"GPT-2 {millions}M, training step", batch=document["size"]["batch"], backends=backends)


def decoding(*arguments: str) -> Iterator[ModelTimes]:
    """Decoding steps of a Llama-like model, captured in CUDA graphs, at each batch size."""
    for each in output_of("decode_llama", *arguments)["batches"]:
        backends = tuple(BackendTimes(name=name, rounds_ms=tuple(times)) for name, times in each["rounds_ms"].items())
        yield ModelTimes(model="Llama-like 1B, decoding step", batch=each["batch"], backends=backends)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the record")
    parser.add_argument("--steps", type=int, default=200, help="training steps of each backend")
    parser.add_argument("--tiny", action="store_true", help="models that take seconds without a GPU")
    given = parser.parse_args(arguments)
    small = ("--tiny",) if given.tiny else ()
    start_s = time.monotonic()
    with Sampler() as sampler:
        groups = (training(given.steps, *small), *decoding(*small))
    record = ModelsRecord(
        date=now(), git_hash=git_hash(), command=f"python -m warptile.bench.campaign.models --steps {given.steps}",
        environment=describe(sampler.since(start_s)), groups=groups,
    )  # fmt: skip
    print(write(record, given.out))


if __name__ == "__main__":
    main()
