"""Test of the networks; run `python -m mygan.test_nets`, or pytest, after each change."""

from itertools import chain
from pathlib import Path
from tempfile import mkdtemp

from paragan import build
from paragan.config import read_recipe
from paragan.core.event import Event


def test_every_weight_moves_and_latents_give_different_pictures():
    recipe = str(Path(__file__).with_name("recipe.yaml"))
    config = read_recipe(recipe, ["train.kimg=1.28", "every.sample_kimg=1.28"])
    trainer = build.trainer(config, Path(mkdtemp()), print, stop=lambda: False)
    players = trainer.players.values()
    weights = list(chain.from_iterable(player.net.parameters() for player in players))
    before = [weight.detach().clone() for weight in weights]
    events = [event for event in trainer.run() if isinstance(event, Event)]
    pictures = [event.x_BCHW for event in events if event.x_BCHW is not None]
    moved = [(now != then).any() for now, then in zip(weights, before, strict=True)]
    assert all(moved), "some weights never move"
    assert pictures[-1].std(dim=0).mean() > 0.02, "every latent gives the same image"


if __name__ == "__main__":
    test_every_weight_moves_and_latents_give_different_pictures()
    print("passed")
