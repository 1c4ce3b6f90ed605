"""DMD2 on a mixture in float64, on ranks: three players, and a fourth that only this file defines."""

from pathlib import Path

import torch

import paragan as pg
from examples import dmd2
from paragan import build
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import World
from paragan.core.errors import ConfigError

BATCH, STEPS, UPDATES = 12, 3, {"d": 1, "fake_score": 3, "doubt": 2}
KIMG = BATCH * max(UPDATES.values()) / 1000  # of a step
ADAM = {"lr": 1e-2, "arguments": {"eps": 1e-4}}


class Doubt(pg.Penalty):
    """The loss of a fourth player, which learns how far the fake score is off."""

    name, side, players = "doubt", pg.Side("doubt"), ("fake_score", "d")

    def __call__(self, context):
        x_B2 = context.outputs.images
        noisy_B2, sigma_B1 = dmd2.noised(context, self.name, x_B2)
        with torch.no_grad():
            error_B2 = (context.players["fake_score"](noisy_B2, sigma_B1) - x_B2).square()
            error_B2 += context.players["d"](noisy_B2).sigmoid()
        return (context.network(noisy_B2, sigma_B1) - error_B2).square().mean(1)


class Doubtful(pg.Penalty):
    """A loss of G by which it leaves what the fourth player doubts."""

    name, side, players = "doubtful", pg.Side.G, ("doubt",)

    def __call__(self, context):
        x_B2 = context.outputs.images
        return 0.1 * context.players["doubt"](x_B2, torch.ones_like(x_B2[:, :1])).mean(1)


def trainer(folder, strategy: str = "", parts: int = 1, names=("fake_score",), steps: int = STEPS, **settings):
    torch.manual_seed(0)
    players = {name: dmd2.FakeScore(3, 2, width=8).double() for name in names}
    chosen = {
        "scheme": "dmd2", "train.batch": BATCH, "train.kimg": steps * KIMG, "every.save_kimg": 0, "every.log_steps": 1,
        "train.timeout_s": 20,
        "adversarial.weight": 0.5, "g.ema.half_life_kimg": 0.02, "g.max_norm": 0.5,
    }  # fmt: skip
    for name in ("g", "d", *(f"players.{name}" for name in names)):
        own = {"optimizer": ADAM, "micro_batches": parts, "updates_per_step": UPDATES.get(name.split(".")[-1], 1)}
        chosen[name] = own | ({"strategy": strategy} if strategy else {})
    terms = [dmd2.Denoising(), dmd2.DistributionMatching()]
    terms += [Doubt(), Doubtful()] if "doubt" in names else []
    chosen = {**{key: chosen.pop(key) for key in ("g", "d")}, **chosen, **settings}
    data = {"x": dmd2.CENTRES.repeat(6, 1).double()}
    nets = [dmd2.Net(inputs, outputs, width=8).double() for inputs, outputs in ((dmd2.LATENT, 2), (2, 1))]
    return pg.Trainer(*nets, data, terms=terms, players=players, sample="x", settings=chosen, out=folder)


def train(world: World, folder: str, steps: int = STEPS, **how) -> int:
    """Train to `steps` on these ranks, from the newest checkpoint if any, and save; the steps that were trained."""
    made = trainer(folder, steps=steps, **how)
    loop = build.trainer(made.config, Path(folder), print, lambda: False, world=world, model=made._game(world))
    world.barrier()
    loop.resume()
    before = loop.clock.step
    for _ in loop.run():
        pass
    return loop.clock.step - before


def refusal(world: World, folder: str, **how) -> str:
    """The message of a run that is refused."""
    try:
        train(world, folder, **how)
    except ConfigError as error:
        return str(error)
    return ""


def tensors_of(folder) -> dict[str, torch.Tensor]:
    """All tensors of the newest checkpoint, by player and name."""
    found = CheckpointWriter(folder=Path(folder) / "checkpoints").newest()
    return {f"{group}/{name}": value for group, held in found.groups.items() for name, value in dict(held).items()}
