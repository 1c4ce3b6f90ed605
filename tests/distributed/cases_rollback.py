"""A run that rolls back once, on any number of ranks, in float64."""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path

import torch

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import World
from paragan.core.roles import colocated_roles
from paragan.core.types import Side
from paragan.datasets._in_memory import InMemorySource
from paragan.engine.options import EveryOptions, RollbackOptions
from paragan.engine.rollback import RollbackLoop
from paragan.evaluation.score import Score
from paragan.game.scheme import FunctionScheme
from paragan.loading.loader import Loader
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.matrix_gan import BATCH, Switches, game, player
from tests.laws.small_gan import CLASSES, distance

ON = Switches(bn=True)
EVERY = EveryOptions(
    log_steps=1, sample_kimg=2 * BATCH / 1000, save_kimg=BATCH / 1000, score_kimg=2 * BATCH / 1000, keep=2
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
    scores = (Score({"fd": float(value)}, 10, {}) for value in chain(values, repeat(1)))
    bad = GOOD if sign == "score" else BAD
    run = RollbackLoop(
        gan,
        FunctionScheme(synchronous.step),
        Loader(source, BATCH, 3, world.device, torch.float64, world.share(BATCH)),
        CheckpointWriter(Path(folder) / name / "checkpoints", 2, world=world),
        (6 if sign == "telemetry" else 9) * BATCH,
        EVERY,
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
