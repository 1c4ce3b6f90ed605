"""`pg.Estimator`: objects and modules of one's own as networks that the library trains; what cannot play is a line."""

import threading
from contextlib import closing

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg
from paragan.api.estimator import follow_rank_0
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.core.outputs import DiscriminatorOutput
from tests.laws.poster_nets import Discriminator, Generator, PosterDiscriminator, PosterGenerator

TINY = (
    "data.size=8", "train.batch=16", "train.kimg=0.064", "every.sample_kimg=0", "every.save_kimg=0",
    "every.score_kimg=0", "evaluation.features=null", "writers=[jsonl]",
)  # fmt: skip


def config(*words):
    return read_recipe("digits", [*TINY, *words])


def trained(folder, gan):
    """The trainer of a finished run."""
    with closing(pg.ScalingManager(config(), 16, 1, out=folder)) as scale_mgr:
        for _ in config().max_steps:
            scale_mgr.train(gan)
        return scale_mgr.trainer


class Plain:
    """One layer, held as `held`; `latent` and `num_classes` as given."""

    def __init__(self, held, **attributes):
        self.held = held
        vars(self).update(attributes)

    def model_fn(self, latent_var, y):
        assert y is None or "num_classes" in vars(self)
        return torch.tanh(self.held(latent_var)).view(-1, 1, 8, 8)


class Judge(nn.Module):
    def __init__(self, output=lambda logit: (F.sigmoid(logit), logit)):
        super().__init__()
        self.layer, self.output = nn.Linear(64, 1), output

    def forward(self, x, y):
        assert y is None
        return self.output(self.layer(x.flatten(1)))


class OneValue:
    """Whether its value is the output or the logit is not known."""

    def __init__(self):
        self.layer = nn.Linear(64, 1)

    def model_fn(self, x, y):
        return self.layer(x.flatten(1))


class Painter(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        self.layer = nn.Linear(5, 64)
        vars(self).update(attributes)

    def forward(self, latent_var, y):
        assert y is None
        return torch.tanh(self.layer(latent_var)).view(-1, 1, 8, 8)


class MethodPainter(Painter):
    def model_fn(self, latent_var, y):
        return super().forward(latent_var, y)

    def forward(self):
        raise AssertionError


class Bare:
    """Its weights lie in the object itself."""

    latent, num_classes = 5, 0

    def __init__(self):
        self.weight, self.bias = nn.Parameter(torch.randn(64, 5)), nn.Parameter(torch.zeros(64))

    def model_fn(self, latent_var, y):
        return torch.tanh(F.linear(latent_var, self.weight, self.bias)).view(-1, 1, 8, 8)


@pytest.mark.parametrize(
    "g",
    [
        Painter(latent=5, num_classes=0),
        MethodPainter(latent=5, num_classes=0),
        Plain(nn.Linear(5, 64), latent=5, num_classes=0),
        Bare(),
    ],
    ids=lambda g: type(g).__name__,
)
@pytest.mark.parametrize("d", [Judge(), Judge(lambda logit: DiscriminatorOutput(logit)), Judge(lambda logit: logit)])
def test_modules_and_objects_train_and_stay_as_they_are(tmp_path, g, d):
    weights = [*(g.parameters() if isinstance(g, nn.Module) else _weights(g)), *d.parameters()]
    before = [weight.detach().clone() for weight in weights]
    done = trained(tmp_path / "run", pg.Estimator(g, d))
    assert all(torch.equal(a, b) for a, b in zip(weights, before, strict=True))
    moved = [weight for player in done.players.values() for weight in player.net.parameters()]
    assert len(moved) == len(before)
    assert all(a.shape == b.shape and not torch.equal(a, b) for a, b in zip(moved, before, strict=True))


def _weights(g):
    return [g.weight, g.bias] if isinstance(g, Bare) else list(g.held.parameters())


def test_what_takes_the_place_of_a_layer_is_what_is_called():
    """As strategies do: a norm over ranks instead of one over the batch."""
    net = pg.Estimator(Plain(nn.Identity(), latent=64, num_classes=0, also=nn.Linear(1, 1)), Judge()).networks()
    g = net.Generator(None, (1, 8, 8), 0)
    z = torch.randn(2, 64)
    before = g(z)
    g.net.held = nn.Flatten(0)
    g.net.held = nn.Hardtanh(0.0, 1.0)
    assert torch.equal(g(z), torch.tanh(z.clamp(0, 1)).view(-1, 1, 8, 8))
    assert not torch.equal(g(z), before)


def test_every_network_is_a_copy_of_its_own():
    nets = pg.Estimator(PosterGenerator(Generator()), PosterDiscriminator(Discriminator())).networks()
    a, b = (nets.Generator(None, (1, 8, 8), 10) for _ in range(2))
    assert all(torch.equal(x, y) and x is not y for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert (a.latent, a.num_classes) == (6, 10)


@pytest.mark.parametrize(
    ("words", "attributes", "expected"),
    [
        ((), {}, (5, 10)),
        ((), {"latent": 7}, (7, 10)),
        ((), {"num_classes": 0}, (5, 0)),
        (("model.conditional=false",), {}, (5, 0)),
        (("model.conditional=false",), {"num_classes": 10}, (5, 10)),
    ],
)
def test_the_config_supplies_what_the_generator_lacks(words, attributes, expected):
    options = config("model.latent=5", *words).model.options
    g = pg.Estimator(Plain(nn.Linear(5, 64), **attributes), Judge()).networks().Generator(options, (1, 8, 8), 10)
    assert (g.latent, g.num_classes) == expected


def test_labels_of_the_data_are_kept_from_a_pair_without_classes():
    """A D with batch norm is called on real images apart, which have labels."""
    networks = pg.Estimator(Painter(latent=5, num_classes=0), Judge()).networks()
    networks.Discriminator(None, (1, 8, 8), 10)(torch.zeros(2, 1, 8, 8), torch.tensor([3, 4]))


SHARED = nn.Linear(5, 64)


class OnTheClass(Plain):
    held = nn.Linear(5, 64)

    def __init__(self):
        self.latent, self.also = 5, nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("g", "d", "said"),
    [
        (Plain, Judge(), "Estimator: g is the class Plain; pass an object, Plain()"),
        (object(), Judge(), "Estimator: g: object is not a torch.nn.Module and has no model_fn(latent_var, y)"),
        (Painter(), 3, "Estimator: d: int is not a torch.nn.Module and has no model_fn(x, y)"),
        (Plain(torch.tanh, latent=64), Judge(), "Estimator: Plain has no weights to train"),
        (
            Plain([nn.Linear(5, 64)], also=nn.Linear(1, 1)),
            Judge(),
            "Estimator: Plain.held has weights that would not",
        ),
        (Plain({"a": Plain(nn.Linear(5, 64))}), Judge(), "Estimator: Plain.held has weights that would not be tra"),
        (OnTheClass(), Judge(), "Estimator: OnTheClass.held has weights that would not be trained"),
        (Plain(nn.LazyLinear(64), latent=5), Judge(), "Estimator: Plain has a lazy layer"),
        (Plain(SHARED, latent=5), Plain(SHARED), "Estimator: g and d share weights"),
        (
            Plain(nn.Linear(5, 64), lock=threading.Lock()),
            Judge(),
            "a network cannot be copied (cannot pickle '_thread.lock'",
        ),
        (Painter(latent=np.int64(5)), Judge(), "Estimator: the attribute latent of Painter is"),
        (Painter(latent=5, num_classes=np.uint8(10)), Judge(), "Estimator: the attribute num_classes of Painter is"),
        (Painter(latent=5, num_classes=3), Judge(), "Estimator: Painter.num_classes is 3, but the data has 10 classes"),
        (
            Painter(latent=6, num_classes=0),
            Judge(),
            "model: Generator.forward(z, y) raised RuntimeError: mat1 and mat2",
        ),
        (
            Painter(latent=5, num_classes=0),
            OneValue(),
            "Estimator: OneValue returned a Tensor; return (output, out_logit)",
        ),
        (Painter(latent=5, num_classes=0), Judge(lambda x: (x, x, x)), "Estimator: Judge returned 3 values; return"),
    ],
)
def test_a_pair_that_cannot_play_is_one_line(tmp_path, g, d, said):
    with pytest.raises(pg.ConfigError) as caught:
        trained(tmp_path / "run", pg.Estimator(g, d))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_missing_length_of_latents_is_one_line():
    with pytest.raises(
        pg.ConfigError, match=r"^Estimator: Painter has no attribute `latent`, the length of latent_var"
    ):
        pg.Estimator(Painter(), Judge()).networks().Generator(None, (1, 8, 8), 0)


def test_networks_that_differ_between_ranks_are_named_alone_as_a_trainer_copies_them_too():
    class Ranks(World):
        def gather(self, value):
            return [value, {}]

    with pytest.raises(pg.ConfigError, match=r"^Linear: the networks differ between ranks"):
        follow_rank_0(nn.Linear(1, 1), Ranks())


def test_pairs_of_images_are_refused():
    g = pg.Estimator(Painter(latent=5), Judge()).networks().Generator(None, (1, 8, 8), 0)
    with pytest.raises(pg.ConfigError, match=r"^Estimator does not support data of pairs"):
        g(torch.zeros(1, 5), None, torch.zeros(1, 1, 8, 8))


def test_several_discriminators_of_one_object_are_named():
    networks = pg.Estimator(Painter(latent=5), Judge(lambda logit: [logit, 2 * logit])).networks()
    d = networks.Discriminator(None, (1, 8, 8), 0)
    output = d(torch.ones(2, 1, 8, 8))
    assert list(output.by_name) == ["0", "1"]
    assert torch.equal(output.by_name["1"].logits_B, 2 * output.by_name["0"].logits_B)
