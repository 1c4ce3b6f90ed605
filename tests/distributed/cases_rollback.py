"""A run that rolls back once, on any number of ranks, in float64."""

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch

from paragan import build
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.core.roles import colocated_roles
from paragan.core.types import Side
from paragan.datasets.base.in_memory import InMemorySource
from paragan.engine.options import EveryOptions, RollbackOptions
from paragan.engine.rollback import RollbackLoop
from paragan.evaluation.score import Score
from paragan.game.scheme import FunctionScheme
from paragan.loading.loader import Loader
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.matrix_gan import BATCH, Switches, game, player
from tests.laws.small_gan import CLASSES, distance
from tests.unit.engine.test_collapse import COLLAPSED, GOOD as MEASURED

ON = Switches(bn=True)
EVERY = EveryOptions(
    log_steps=1, sample_kimg=8 * BATCH / 1000, save_kimg=BATCH / 1000, score_kimg=2 * BATCH / 1000, keep=2
)
GOOD, BAD = {"diversity": 1.0}, {"diversity": 0.1}


def loop(world: World, folder: str, name: str, kind: str, sign: str) -> RollbackLoop:
    """Six steps. Rank 0 measures a collapse at steps 4 and 6, or bad scores at 6 and 8; other ranks see nothing bad."""
    numbers = torch.Generator().manual_seed(0)
    images = torch.randint(256, (64, 1, 8, 8), generator=numbers, dtype=torch.uint8)
    source = InMemorySource(images, torch.arange(64) % CLASSES, tuple("abc"))
    gan = game(ON, *(player(side, ON, strategy(kind), world) for side in Side))
    gan.total = world.sum
    values = (9, 1, 1, 5, 5) if world.is_main else ()
    scores = (Score(metrics={"fd": float(value)}, num_images=10, protocol={}) for value in chain(values, repeat(1)))
    bad = GOOD if sign == "score" else BAD
    run = RollbackLoop(
        gan=gan,
        scheme=FunctionScheme(synchronous.step),
        batches=Loader(source, BATCH, 3, world.device, torch.float64, world.share(BATCH)),
        checkpoints=CheckpointWriter(folder=Path(folder) / name / "checkpoints", keep=2, world=world),
        images=(6 if sign == "telemetry" else 9) * BATCH,
        every=EVERY,
        score=(lambda player, prior: next(scores)) if sign == "score" else None,
        telemetry=lambda gan, scalars: bad if world.is_main and gan.clock.step in (4, 6) else GOOD,
        fixed_samples=None,
        roles=colocated_roles(world),
        rollback=RollbackOptions(),
    )
    return run


def weights(run: RollbackLoop) -> dict[str, torch.Tensor]:
    found = {}
    for side, seat in run.players.items():
        nets = (seat.net,) if seat.ema is None else (seat.net, seat.ema.net)
        for number, net in enumerate(nets):
            found |= {f"{side}.{number}.{key}": value for key, value in seat.strategy.weights(net).items()}
    return found


def roll_back(world: World, folder: str, kind: str, sign: str) -> list:
    """Train; what the rollback did, and the largest difference from one process, saved in `alone.pt`."""
    run = loop(world, folder, kind, kind, sign)
    texts = [event.values["rollback"] for event in run.run() if "rollback" in event.values]
    saved = torch.load(Path(folder) / "alone.pt")
    rates = [player.policy.lr for player in run.players.values()]
    return [texts, run.clock.step, run.batches.position, rates, distance(weights(run), saved)]


def train_alone(world: World, folder: str, sign: str) -> list:
    """Train in one process and save the weights."""
    run = loop(world, folder, "alone", "none", sign)
    texts = [event.values["rollback"] for event in run.run() if "rollback" in event.values]
    torch.save(weights(run), Path(folder) / "alone.pt")
    return [texts, run.clock.step, run.batches.position, [player.policy.lr for player in run.players.values()]]


RUN = (
    *("data.size=8", "model={name: dcgan, width: 4, latent: 8}", "train.batch=16", "train.kimg=0.192"),
    *("every.sample_kimg=0.128", "every.save_kimg=0.048", "every.keep=2", "every.log_steps=2"),
    *("g.optimizer.lr=1e-3", "d.optimizer.lr=2e-3", "evaluation.features=null", "rollback.max_rollbacks=2"),
    *("g.precision=fp32", "d.precision=fp32", "train.timeout_s=60"),
)


def recipe_run(world: World, folder: str, words: Sequence[str], bad: Sequence[int]) -> RollbackLoop:
    """A run of 12 steps of the recipe `digits`; rank 0 measures a collapse at steps `bad`."""
    config = read_recipe("digits", [*RUN, *words])
    run = build.trainer(config, Path(folder), lambda line: None, lambda: False, world=world)
    run.telemetry = lambda gan, scalars: COLLAPSED if gan.clock.step in bad else MEASURED
    return run


def play(run: RollbackLoop, spoil: Mapping[str, Any] | None = None) -> list[dict]:
    """Train; what the rollbacks did. spoil: a side whose weights, or gradients, are NaN at a step of the scheme."""
    made = run.scheme.step

    def step(gan, batches):
        report = made(gan, batches)
        if spoil is not None and spoil["side"] in run.players and report.step == spoil["step"]:
            with torch.no_grad():
                next(run.players[spoil["side"]].net.parameters()).fill_(torch.nan)
        return report

    object.__setattr__(run.scheme, "step", step)
    return [event.values["rollback"] for event in run.run() if "rollback" in event.values]


def with_synchronous_scheme(world: World, folder: str, scheme: str, bad: Sequence[int]) -> list:
    """Train in one process, and save the weights."""
    run = recipe_run(world, f"{folder}/turns", [f"scheme={scheme}"], bad)
    texts = play(run)
    torch.save(weights(run), Path(folder) / "turns.pt")
    return [texts, run.clock.step]


def on_separate_ranks(world: World, folder: str, reuse: bool, bad: Sequence[int]) -> list:
    """Train without delay; rollbacks, length, player and its largest difference from `with_synchronous_scheme`."""
    words = [f"scheme={{name: asynchronous, staleness: 0, reuse: {str(reuse).lower()}}}"]
    run = recipe_run(world, f"{folder}/ranks", words, bad)
    texts = play(run)
    (side,) = run.players
    saved = torch.load(Path(folder) / "turns.pt")
    own = {name: value for name, value in saved.items() if name.startswith(side)}
    return [texts, run.clock.step, side, distance(weights(run), own)]


def spoilt(world: World, folder: str, words: Sequence[str], side: str, step: int) -> list:
    """Train while one player diverges once; rollbacks, length, and whether all weights are finite and equal."""
    run = recipe_run(world, f"{folder}/ranks", words, ())
    texts = play(run, {"side": side, "step": step})
    (here,) = run.players
    found = weights(run)
    flat = torch.cat([value.flatten().double() for value in found.values()])
    return [texts, run.clock.step, here, bool(flat.isfinite().all()), float(flat.abs().sum())]
