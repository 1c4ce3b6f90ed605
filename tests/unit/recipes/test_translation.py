"""A small run of pix2pix from its recipe: it repeats and goes on exactly, is sampled in either mode, is handed on."""

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from torch import nn

import paragan as pg
from paragan import build
from paragan.cli import sample as verb
from paragan.config import dump, read_recipe, to_tree
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Side
from paragan.datasets import paired
from paragan.engine.telemetry import Telemetry
from paragan.evaluation.fixed_samples import PAIR_COLUMNS
from paragan.export.bundle import Bundle
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.layers.random import Dropout, uses_random_numbers
from paragan.losses import nonsaturating
from tests.tiny_run import train

SIDE = 64  # the smallest with a layer of dropout
WORDS = ("data.size=64", "train.batch=1", "train.kimg=0.004", "model.width=2", "evaluation.features=judge")
QUIET = ("every.score_kimg=0", "every.sample_kimg=0")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Ten squares of two greys, each beside its negative."""
    root = tmp_path_factory.mktemp("pairs")
    for part, numbers in (("train", range(6)), ("val", range(6, 10))):
        (root / part).mkdir()
        for number in numbers:
            left = np.random.default_rng(number).integers(0, 2, (8, 8, 3)).repeat(8, 0).repeat(8, 1) * 200
            wide = np.concatenate([left, 255 - left], 1).astype(np.uint8)
            Image.fromarray(wide).save(root / part / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def run(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation") / "run"
    events = started(folder, pairs, "every.sample_kimg=0.002", "every.score_kimg=0.002")
    return folder, events


def started(folder, pairs, *words, stop=lambda: False):
    config = read_recipe("pix2pix-facades", [f"data.path={pairs}", *WORDS, *words])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(dump(config))
    trainer = build.trainer(config, folder, print, stop)
    trainer.resume()
    return [*trainer.run(), trainer]


def weights(trainer):
    return {f"{side}/{k}": v for side, p in trainer.players.items() for k, v in p.net.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[key], b[key]) for key in a)


def test_translation_run_yields_samples_scores_and_telemetry(run):
    events = run[1][:-1]
    shown = [event for event in events if event.kind == "samples"]
    assert [event.step for event in shown] == [0, 2, 4]
    assert all(event.x_BCHW.shape == (3 * 4, 3, SIDE, SIDE) for event in shown)
    assert {(event.columns, event.values["mode"]) for event in shown} == {(PAIR_COLUMNS, "train-stats")}
    condition, made, target = shown[-1].x_BCHW[0::3], shown[-1].x_BCHW[1::3], shown[-1].x_BCHW[2::3]
    torch.testing.assert_close(condition, -target, rtol=0, atol=1e-5)
    assert not torch.equal(made, shown[0].x_BCHW[1::3])
    assert torch.equal(condition, shown[0].x_BCHW[0::3])
    assert torch.equal(condition, pg.load(run[0]).pairs(4)[1])
    scores = [event.values for event in events if event.kind == "score"]
    assert [list(score)[:3] for score in scores] == [["l1", "psnr", "ssim"]] * 3
    assert scores[0]["protocol"]["mode"] == "train-stats" and scores[0]["num_images"] == 4
    telemetry = next(event.values for event in events if event.kind == "telemetry")
    assert {"d/accuracy_held_out", "d/overfitting", "diversity"} <= telemetry.keys()


def test_dropout_repeats_and_goes_on(pairs, tmp_path):
    whole = started(tmp_path / "whole", pairs, *QUIET)[-1]
    torch.manual_seed(99)
    again = started(tmp_path / "again", pairs, *QUIET)[-1]
    assert uses_random_numbers(whole.players["g"].net) and same(weights(whole), weights(again))
    steps = iter(range(100))
    started(tmp_path / "cut", pairs, *QUIET, stop=lambda: next(steps) == 2)
    torch.manual_seed(5)
    assert same(weights(whole), weights(started(tmp_path / "cut", pairs, *QUIET)[-1]))


@pytest.mark.parametrize("scheme", ["synchronous", "shared_fakes"])
def test_dropout_is_another_in_every_update(pairs, tmp_path, scheme, monkeypatch):
    drawn = []
    plain = Dropout.forward

    def noted(self, h):
        out = plain(self, torch.ones_like(h))
        drawn.append(out[0, :, 0, 0].clone())
        return out

    monkeypatch.setattr(Dropout, "forward", noted)
    started(tmp_path / "run", pairs, *QUIET, f"scheme={scheme}", "evaluation.features=null", "train.kimg=0.003")
    assert len(drawn) == 3 * (2 if scheme == "synchronous" else 1)
    flat = {tuple(mask.tolist()) for mask in drawn}
    assert len(flat) == len(drawn)


def test_auto_executor_measurement_changes_no_state(run, pairs, tmp_path):
    """With pictures, scores and telemetry or without: the same weights."""
    assert same(weights(run[1][-1]), weights(started(tmp_path / "run", pairs, *QUIET)[-1]))


class Copy(nn.Module):
    """As G shows its condition; as D tells of every image what it was judged beside."""

    latent = 0

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seen = []

    def forward(self, x, y=None, condition=None):
        if x.dim() == 2:
            return condition * self.weight
        self.seen += list(zip(x, condition, strict=True))
        return x.flatten(1).mean(1) * self.weight


def test_telemetry_judges_every_image_beside_its_own_condition(pairs):
    train, held_out = (
        paired.source(paired.Options(path=str(pairs), size=SIDE), split) for split in ("train", "held_out")
    )
    g, d = (Player(side=side, net=Copy()) for side in Side)
    gan = GAN(g=g, d=d, loss=Loss(nonsaturating.d_loss, nonsaturating.g_loss), prior=Prior(seed=0, latent=0))
    values = Telemetry(train, held_out, batch=2)(gan)
    assert values["diversity"] > 0
    fakes = [torch.equal(x, condition) for x, condition in d.net.seen]
    reals = [torch.allclose(x, -condition, atol=1e-5) for x, condition in d.net.seen]
    assert (sum(fakes), sum(reals), len(d.net.seen)) == (6, 10, 16)


def test_modes(run):
    generator = pg.load(run[0])
    assert generator.takes_condition and generator.mode == "train-stats"
    net = {k: v.clone() for k, v in generator.net.state_dict().items()}
    state = torch.get_rng_state()
    as_trained, as_told = generator.sample(4), generator.sample(4, mode="train-stats")
    assert torch.equal(as_trained.tensor, as_told.tensor)
    assert torch.equal(generator.sample(2).tensor, as_told.tensor[:2])
    assert not torch.equal(generator.sample(4, seed=1).tensor, as_told.tensor)
    still = generator.sample(4, mode="eval").tensor
    assert not torch.allclose(still, as_told.tensor, atol=1e-3)
    assert torch.equal(still, generator.sample(4, mode="eval", seed=1).tensor)  # nothing is drawn
    assert torch.equal(state, torch.get_rng_state())
    assert not generator.net.training and all(torch.equal(net[k], v) for k, v in generator.net.state_dict().items())
    with pytest.raises(ConfigError, match="mode must be one of eval, train-stats, not 'train'"):
        generator.sample(1, mode="train")


def test_conditions(run):
    generator = pg.load(run[0])
    _, condition = generator.pairs(3)
    assert torch.equal(generator.sample(3, conditions=condition).tensor, generator.sample(3).tensor)
    assert not torch.equal(generator.sample(3, conditions=-condition).tensor, generator.sample(3).tensor)
    with pytest.raises(ConfigError, match="n=5, but there are 4 held-out pairs"):
        generator.sample(5)
    with pytest.raises(ConfigError, match="conditions: the tensor has the shape 3x3x64x64; pass 2 of 3x64x64"):
        generator.sample(2, conditions=condition)


def test_the_verb(run, tmp_path, capfd):
    app = typer.Typer()
    app.command()(verb.sample_command)

    def call(*words):
        app([str(run[0]), *map(str, words)], standalone_mode=False)
        return capfd.readouterr().out.strip()

    with Image.open(call()) as sheet:
        assert sheet.size == (6 * (SIDE + 2), 2 * (SIDE + 2))
    assert call("--mode", "eval").endswith("sample-step-4-seed-0-mode-eval.png")
    for word in (
        ["--walk", 2, "--out", tmp_path / "a.webp"],
        ["--classes"],
        ["--class", 1],
        ["--grid", "2x2"],
        ["--truncation", 0.5],
    ):
        with pytest.raises(ConfigError, match=f"^{word[0]} does not apply: this generator makes images from images"):
            call(*word)


def test_an_exported_file_needs_pictures(run, tmp_path, monkeypatch):
    lines = Bundle(sampler=pg.load(run[0]), tree=tree(run), score={}).write(tmp_path, ["safetensors"])
    assert [line.rpartition("/")[2] for line in lines] == ["generator.safetensors", "samples.png", "README.md"]
    alone = pg.load(tmp_path / "generator.safetensors")
    card = (tmp_path / "README.md").read_text()
    assert "| input | an image of 3x64x64 in [-1, 1] |" in card and "paragan apply" in card
    monkeypatch.chdir(tmp_path)
    exec(card.split("```python\n")[1].split("```")[0], {})  # noqa: S102 our own card
    assert (tmp_path / "result.png").exists()
    condition = pg.load(run[0]).pairs(2)[1]
    assert torch.equal(alone.sample(2, conditions=condition).tensor, pg.load(run[0]).sample(2).tensor)
    with pytest.raises(ConfigError, match="conditions are required, because this generator has no data"):
        alone.sample(2)


def tree(run):
    return to_tree(pg.load(run[0]).config)


@pytest.mark.parametrize(
    ("recipe", "words", "told"),
    [
        ("digits", ["model=pix2pix"], "model pix2pix makes images from images, which does not fit data digits"),
        ("digits", ["penalties.0.name=l1"], "penalty l1 needs data of pairs"),
        ("pix2pix-facades", ["model=dcgan"], "model dcgan makes images from latents, which does not fit data paired"),
    ],
)
def test_what_does_not_fit_is_refused(pairs, tmp_path, recipe, words, told):
    given = [f"data.path={pairs}", "data.size=64", "model.width=2"] if recipe != "digits" else []
    with pytest.raises(ConfigError, match=told):
        build.trainer(read_recipe(recipe, [*words, *given]), tmp_path, print, lambda: False)


def test_modes_of_a_generator_of_latents(tmp_path):
    train(tmp_path / "run")
    generator = pg.load(tmp_path / "run")
    assert generator.mode == "eval"
    assert torch.equal(generator.sample(4).tensor, generator.sample(4, mode="eval").tensor)
    assert not torch.equal(generator.sample(4).tensor, generator.sample(4, mode="train-stats").tensor)
    with pytest.raises(ConfigError, match="this generator has no input images; leave them out"):
        generator.sample(1, conditions=torch.zeros(1, 1, 8, 8))


def test_the_weight_of_d_is_in_its_loss_alone():
    module = registry.load_module("losses", "nonsaturating")
    half, whole = module.loss(module.Options(d_weight=0.5)), module.loss(module.Options())
    real, fake = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(half.d(real, fake), whole.d(real, fake) / 2)
    assert torch.equal(whole.d(real, fake), module.d_loss(real, fake))
    assert torch.equal(half.g(fake), module.g_loss(fake))
