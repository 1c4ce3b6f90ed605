"""`run.sample` of a `pg.Trainer`: images, rows and audio of the averaged generator."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.game import latents

SETTINGS = {
    "train.batch": 4, "train.kimg": 0.02, "every.log_steps": 1, "every.sample_kimg": 0, "evaluation.features": None,
    "g.ema.half_life_kimg": 0.01,
}  # fmt: skip


class Maker(nn.Module):
    """Makes samples of a shape of latents, and of what else it takes."""

    latent = 3

    def __init__(self, shape=(1, 16, 16), inputs=3):
        super().__init__()
        self.shape = shape
        self.layer = nn.Linear(inputs, torch.Size(shape).numel())

    def forward(self, latent):
        return self.layer(latent).tanh().unflatten(1, self.shape)


class Labelled(Maker):
    def __init__(self, shape=(1, 16, 16)):
        super().__init__(shape, 4)

    def forward(self, latent, label):
        return super().forward(torch.cat([latent, label[:, None].to(latent.dtype)], 1))


class Scaled(Maker):
    """No latent: the sample is computed of another tensor."""

    def forward(self, low):
        return super().forward(low)


class Critic(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(torch.Size(shape).numel(), 1)

    def forward(self, x):
        return self.layer(x.flatten(1))[:, 0]


def finished(folder, net, shape, dtype=torch.float32, held_out=None, **others):
    torch.manual_seed(0)
    data = {"x": torch.rand(8, *shape, dtype=dtype), **others}
    g, d = net(shape).to(dtype), Critic(shape).to(dtype)
    return pg.Trainer(g, d, data, held_out=held_out, settings=SETTINGS, out=folder).run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 8), (5,), (2,), (1, 200), (2, 200), (4, 8, 8), (1, 4, 4, 4)])
def test_samples_are_those_of_the_averaged_generator(tmp_path, shape, dtype):
    run = finished(tmp_path, Maker, shape, dtype)
    z = latents.draw(pg.Prior(seed=7, latent=3), 70)[0].to(dtype)
    expected = run.generator(z)
    made = run.sample(70, seed=7)
    is_image = len(shape) == 3 and shape[0] in (1, 3)
    assert isinstance(made, pg.SampledImages if is_image else torch.Tensor)
    torch.testing.assert_close(made.tensor if is_image else made, expected.float() if is_image else expected)
    first = run.sample(66, seed=7)
    torch.testing.assert_close(first.tensor if is_image else first, (made.tensor if is_image else made)[:66])
    own = run.sample(2)
    same = run.sample(2, seed=run.config.seed)
    assert torch.equal(own.tensor if is_image else own, same.tensor if is_image else same)


def test_other_inputs_are_those_of_the_held_out_samples_in_order(tmp_path):
    low = torch.randn(8, 3)
    run = finished(tmp_path / "a", Scaled, (2, 5), low=low)
    torch.testing.assert_close(run.sample(8), run.generator(low))
    torch.testing.assert_close(run.sample(11), run.generator(torch.cat([low, low[:3]])))
    held_out = {"x": torch.rand(3, 2, 5), "low": torch.randn(3, 3)}
    run = finished(tmp_path / "b", Scaled, (2, 5), low=low, held_out=held_out)
    torch.testing.assert_close(run.sample(3), run.generator(held_out["low"]))


def test_labels_are_taken_in_turn(tmp_path):
    run = finished(tmp_path, Labelled, (6,), label=torch.arange(8))
    z = latents.draw(pg.Prior(seed=1, latent=3), 5)[0]
    torch.testing.assert_close(run.sample(5, [4, 2], seed=1), run.generator(z, torch.tensor([4, 2, 4, 2, 4])))
    torch.testing.assert_close(run.sample(5, 3, seed=1), run.generator(z, torch.full((5,), 3)))
    torch.testing.assert_close(run.sample(5, seed=1), run.generator(z, torch.arange(5)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be an integer from 1 to 1,048,576, not 0"),
        ({"n": 2.0}, "n must be an integer from 1 to 1,048,576, not 2.0"),
        ({"n": 2, "labels": 1}, "labels: this generator has no input 'label'; leave it out"),
    ],
)
def test_mistake_is_one_line(tmp_path, arguments, message):
    run = finished(tmp_path, Maker, (5,))
    with pytest.raises(pg.ConfigError, match=message):
        run.sample(**arguments)


class Echo(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, words, x_mask):
        return (self.gain * words)[:, None] * x_mask


class Ear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return (self.weight * x).square().mean(1)


def test_samples_of_several_lengths_are_refused(tmp_path):
    data = {"x": [torch.rand(3 + (row > 63)) for row in range(70)], "words": torch.rand(70)}
    run = pg.Trainer(Echo(), Ear(), data, settings=SETTINGS, out=tmp_path).run()
    assert run.sample(4).shape == (4, 3)
    with pytest.raises(pg.ConfigError, match="samples of this generator differ in length"):
        run.sample(70)
