"""What a late opponent costs: digits with `preset=paragan`, G against a D that is one step old.

    python -m benchmarks.late_opponent [--seeds 5] [--steps 1500] [--kind KIND ...] [--keep FOLDER] [--no-result]

One process: exact states, H = 1, the delay in every update. KIND: `sync`, `late`, or `late:FACTOR` with the opponent of
`PredictedOpponent`; with `@G,D` other betas than 0.25 and 0, such as `late:1@0.5,0.5`. One judge scores all runs.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.asynchronous_summary import interval
from benchmarks.record import write
from paragan import build
from paragan.build.evaluation import extractor_context, scorer
from paragan.config import read_recipe
from paragan.core.types import Batch
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import PredictedOpponent, Snapshot, packed
from paragan.loading.loader import Loader
from paragan.schemes import shared_fakes

BATCH, RATE, POINTS = 32, 1e-3, 5
KINDS = (
    "sync@0.5,0.5",
    "late@0.5,0.5",
    "late:0.5@0.5,0.5",
    "late:1@0.5,0.5",
    "late@0.5,0.0",
    "sync@0.25,0.25",
    "late@0.25,0.25",
)
KINDS += ("sync", "late", "late:1")


def late_steps(gan: GAN, batches: Iterator[Batch], factor: float) -> Iterator[None]:
    """Make steps of `shared_fakes` in which G's opponent is D before its update of the step."""
    d = gan.d
    assert isinstance(d, Player)
    snapshot = Snapshot(copy.deepcopy(d.net), d.calling)
    opponent = PredictedOpponent(snapshot, factor) if factor else snapshot
    while True:
        real = next(batches)
        turn = gan.g_turn(real)
        fakes = gan.g.generate_fakes(turn)
        opponent.update(packed(d.strategy.weights(d.net)), d.version)
        detached = tuple(images.detach() for images in fakes)
        on_d = d.update(gan.d_turn(real).with_inputs_of(turn, detached), against=gan.g)
        gan.observe(on_d, gan.g.update(turn.with_fakes(fakes), against=opponent))
        yield


def sync_steps(gan: GAN, batches: Iterator[Batch]) -> Iterator[None]:
    """Make steps of `shared_fakes`."""
    scheme = shared_fakes.Scheme()
    while True:
        scheme.step(gan, batches)
        yield


def scores(kind: str, seed: int, steps: int, keep: Path) -> list[float]:
    """Train one run; return its distances at equal intervals."""
    how, _, betas = kind.partition("@")
    name, _, factor = how.partition(":")
    beta_g, beta_d = (betas or "0.25,0.0").split(",")
    words = [f"seed={seed}", "preset=paragan", f"train.batch={BATCH}", f"train.kimg={steps * BATCH / 1000}"]
    words += [f"{side}.optimizer.lr={RATE}" for side in "gd"] + [f"{side}.strategy={{name: none}}" for side in "gd"]
    words += [f"g.optimizer.arguments={{betas: [{beta_g}, 0.999], eps: 1e-12}}", "scheme={name: shared_fakes}"]
    words += [f"d.optimizer.arguments={{betas: [{beta_d}, 0.999]}}", "train.threads=1", "g.ema.half_life_kimg=1"]
    config = read_recipe("digits", words)
    data, device = build.open_data(config), torch.device("cpu")
    gan = build.gan(config, data, device)
    score = scorer(config, data, gan.prior, extractor_context(data, keep, print, device))
    assert score is not None and isinstance(gan.g, Player)
    batches = iter(Loader(data.train, BATCH, seed, device))
    made = sync_steps(gan, batches) if name == "sync" else late_steps(gan, batches, float(factor or 0))
    found = []
    for step in range(1, steps + 1):
        next(made)
        if step % (steps // POINTS) == 0:
            found.append(float(score(gan.g, gan.prior).metrics["fd[judge]"]))
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.late_opponent")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--kind", action="append")
    parser.add_argument("--keep", type=Path, default=Path("/tmp/paragan-late-opponent"))
    parser.add_argument("--no-result", action="store_true")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    given.keep.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[list[float]]] = {}
    for kind in given.kind or KINDS:
        runs[kind] = []
        for seed in range(given.seeds):
            path = given.keep / f"{kind}-{seed}-{given.steps}.json"
            if not path.exists():
                path.write_text(json.dumps(scores(kind, seed, given.steps, given.keep)))
            runs[kind].append(json.loads(path.read_text()))
            print(kind, seed, *(f"{value:.3g}" for value in runs[kind][-1]), flush=True)
    ends = {kind: interval([one[-1] for one in of]) for kind, of in runs.items() if len(of) > 1}
    middle = {kind: [round(statistics.mean(point), 3) for point in zip(*of, strict=True)] for kind, of in runs.items()}
    if not given.no_result:
        about = {"steps": given.steps, "batch": BATCH, "rate": RATE}
        write("late-opponent", {**about, "end": ends, "mean of each point": middle, "runs": runs})


if __name__ == "__main__":
    main()
