"""A sample is named tensors: a game on sound and text runs through loader, game and trainer as images do."""

import pytest
import torch
from torch import nn

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.source import Source, TensorSpec
from paragan.core.types import Rows, Side
from paragan.engine.options import EveryOptions
from paragan.engine.training_loop import TrainingLoop
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.scheme import FunctionScheme
from paragan.loading.loader import Loader
from paragan.losses import hinge
from paragan.penalties import r1
from paragan.schemes import synchronous

CPU = torch.device("cpu")
LENGTH, WORDS, NUM_WORDS, LATENT, BATCH = 64, 4, 9, 3, 8


class Speech(Source):
    """Forty sounds of noise with the words that they say."""

    fingerprint = "speech"

    def __init__(self, channels=1):
        audio, text = TensorSpec((channels, LENGTH), torch.float64), TensorSpec((WORDS,), torch.int64)
        self.tensors = {"audio": audio, "text": text}

    def __len__(self):
        return 40

    def fetch(self, indices, places=None, seed=0):
        sounds = [
            rng.normal(int(row), "audio", Rows(step=0, first=0, count=1, total=1), (1, LENGTH)).double()
            for row in indices
        ]
        words = [torch.arange(WORDS) * int(row) % NUM_WORDS for row in indices]
        return {"audio": torch.cat(sounds), "text": torch.stack(words)}


class Voice(nn.Module):
    """Reads words aloud. Its arguments have the names that its author chose."""

    latent = LATENT

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(NUM_WORDS, 5)
        self.out = nn.Linear(LATENT + 5 * WORDS, LENGTH)

    def forward(self, noise, words):
        return self.out(torch.cat([noise, self.words(words).flatten(1)], 1)).tanh()[:, None]


class Listener(nn.Module):
    """Judges whether a sound says its words."""

    def __init__(self):
        super().__init__()
        self.ear = nn.Conv1d(1, 6, 9, stride=4)
        self.words = nn.Embedding(NUM_WORDS, 6)

    def forward(self, sound, words):
        heard = self.ear(sound).relu().mean(2)
        return (heard * self.words(words).mean(1)).sum(1) + heard.sum(1)


def trainer(folder, steps, parts=1):
    torch.manual_seed(0)
    nets = {Side.G: Voice().double(), Side.D: Listener().double()}
    policy = Policy(kind=torch.optim.Adam, lr=1e-2, arguments={"betas": (0.0, 0.9)}, micro_batches=parts)
    gan = GAN(
        g=Player(side=Side.G, net=nets[Side.G], policy=policy),
        d=Player(side=Side.D, net=nets[Side.D], policy=policy),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=Prior(seed=5, latent=LATENT, dtype=torch.float64, arguments=("audio", "text")),
        d_penalties=(r1.Penalty(r1.Options(weight=0.3)),),
    )
    loader = Loader(Speech(), BATCH, seed=1, device=CPU)
    every = EveryOptions(sample_kimg=0, save_kimg=0)
    writer = CheckpointWriter(folder=folder / "checkpoints")
    return TrainingLoop(
        gan=gan,
        scheme=FunctionScheme(synchronous.step),
        batches=loader,
        checkpoints=writer,
        images=BATCH * steps,
        every=every,
    )


def weights(of):
    return torch.cat([p.detach().flatten() for player in of.players.values() for p in player.net.parameters()])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """After six steps on whole batches."""
    found = trainer(tmp_path_factory.mktemp("whole"), 6)
    list(found.run())
    return found


def test_a_batch_has_the_declared_tensors_unchanged():
    batch = next(Loader(Speech(), BATCH, seed=1, device=CPU, dtype=torch.float32))
    assert batch.tensors["audio"].dtype == torch.float64 and batch.tensors["audio"].abs().max() > 1
    assert batch.tensors["text"].shape == (BATCH, WORDS)
    assert [list(part.tensors) for part in batch.parts(2)] == [["audio", "text"]] * 2
    assert torch.equal(batch.parts(2)[1].tensors["text"], batch.tensors["text"][1::2])


def test_micro_batches_equal_the_whole_batch(trained, tmp_path):
    start = weights(trainer(tmp_path, 0))
    parts = trainer(tmp_path, 6, parts=2)
    list(parts.run())
    assert (weights(trained) - start).abs().max() > 1e-2
    torch.testing.assert_close(weights(parts), weights(trained), rtol=0, atol=1e-10)


def test_a_resumed_run_equals_one_that_did_not_stop(trained, tmp_path):
    list(trainer(tmp_path, 4).run())
    resumed = trainer(tmp_path, 6)
    assert resumed.resume() and resumed.batches.position == 4
    list(resumed.run())
    assert torch.equal(weights(resumed), weights(trained))
    assert resumed.checkpoints.newest().values["model"]["shape"] == [1, LENGTH]


def test_every_argument_reaches_the_networks_by_position(trained):
    turn = trained.gan.g_turn(next(Loader(Speech(), BATCH, seed=1, device=CPU)))
    latent, text = turn.feed.fake_inputs
    audio, same_text = turn.feed.real_inputs
    assert latent.shape == (BATCH, LATENT) and audio.shape == (BATCH, 1, LENGTH)
    assert torch.equal(text, same_text) and turn.feed.real_sample is audio


def test_samples_that_differ_from_their_declaration_are_refused():
    with pytest.raises(ConfigError, match=r"Speech.fetch returned .*audio.*\(8, 1, 64\).* declare .*\(8, 2, 64\)"):
        next(Loader(Speech(channels=2), BATCH, seed=1, device=CPU))
