"""The poster's loop through `api.py` equals `build` and `TrainingLoop.run`, bit for bit."""

import json

import pytest
import torch

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.core.types import Side
from tests.laws.poster_nets import PosterDiscriminator, PosterGenerator
from tests.tiny_run import train_and_read

pytestmark = pytest.mark.usefixtures("quick_judge")

SETTINGS = (
    "data.size=8", "model.name=tests.laws.poster_nets", "train.batch=16", "train.kimg=0.12", "evaluation.num_images=50",
    "every.log_steps=1", "every.sample_kimg=0.05", "every.save_kimg=0.05", "every.score_kimg=0.07", "g.max_norm=1.0",
    "g.schedule.name=linear", "g.schedule.end=50",
)  # fmt: skip


def played(words, folder):
    """By the library: `build`, then `TrainingLoop.run`. Returns the trainer and what it told."""
    trainer = build.trainer(read_recipe("digits", [*SETTINGS, *words]), folder, print, lambda: False)
    return trainer, *train_and_read(trainer)


def looped(words, folder, bs, num_workers):
    """By the poster's program, from the same weights."""
    cfg = read_recipe("digits", [*SETTINGS, *words])
    found, cpu = build.open_data(cfg), torch.device("cpu")
    start = {side: build.network_factory(cfg, side, found.train, cpu)() for side in Side}
    cfg = read_recipe("digits", [*SETTINGS, "model.name=dcgan", *words])  # not looked at
    scale_mgr = pg.ScalingManager(config=cfg, bs=bs, num_workers=num_workers, out=folder)
    gan = pg.Estimator(PosterGenerator(start[Side.G]), PosterDiscriminator(start[Side.D]))
    for _ in cfg.max_steps:
        scale_mgr.train(gan)
    return scale_mgr


def state(trainer):
    """All that training changes, in the order of the networks' parameters; names differ."""
    tensors = []
    for player in trainer.players.values():
        nets = [player.net] if player.ema is None else [player.net, player.ema.net]
        tensors += [value for net in nets for value in (*net.parameters(), *net.buffers())]
        kept = player.optimizer.state_dict()["state"]
        tensors += [torch.as_tensor(kept[n][name]) for n in sorted(kept) for name in sorted(kept[n])]
        tensors += [player.updates, torch.tensor([player.version, player.images])]
    clock = trainer.clock
    return [*tensors, torch.tensor([clock.step, clock.images, trainer.batches.position, trainer.saved_at])]


@pytest.mark.parametrize(
    ("words", "bs", "num_workers", "by_hand"),
    [
        ([], 16, 1, []),
        (["scheme=synchronous", "d.updates_per_step=2", "d.micro_batches=2"], 16, 1, []),
        (["scheme.name=asynchronous", "scheme.staleness=0"], 16, 1, []),
        # an eighth of the batch on one worker of two: a quarter of the images, half the learning rate
        ([], 8, 2, ["train.batch=4", "train.kimg=0.032", "g.optimizer.lr=5e-4", "d.optimizer.lr=5e-4"]),
    ],
    ids=["shared fakes", "synchronous", "asynchronous", "fewer workers"],
)
def test_the_posters_loop_is_the_library(tmp_path, words, bs, num_workers, by_hand):
    trainer, numbers, events = played([*words, *by_hand], tmp_path / "library")
    scale_mgr = looped(words, tmp_path / "poster", bs, num_workers)
    assert trainer.clock.step == scale_mgr.trainer.clock.step == 8 // trainer.gan.d.updates_per_step
    ours, theirs = state(scale_mgr.trainer), state(trainer)
    assert len(ours) == len(theirs) > 40
    assert [n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not torch.equal(a, b)] == []

    record = [json.loads(line) for line in (tmp_path / "poster" / "metrics.jsonl").read_text().splitlines()]
    told = [line for line in record if line["kind"] == "step"]
    for line, values in zip(told, numbers, strict=True):
        assert values.items() <= line.items()
    scores = [(e.step, e.values["fd[judge]"]) for e in events if e.kind == "score"]
    assert [(line["step"], line["fd[judge]"]) for line in record if line["kind"] == "score"] == scores
    assert scale_mgr.eval(metric="fid") == scores[-1][1]
    saved = [e.step for e in events if e.kind == "checkpoint"]
    assert [line["step"] for line in record if line["kind"] == "checkpoint"] == saved


def test_the_parts_move(tmp_path):
    """Else equal would say nothing."""
    trainer, *_ = played([], tmp_path)
    before = build.trainer(read_recipe("digits", SETTINGS), tmp_path / "start", print, lambda: False)
    for name, player in trainer.players.items():
        now = dict(player.net.named_parameters())
        for key, value in before.players[name].net.named_parameters():
            assert not torch.equal(now[key], value), (name, key)
