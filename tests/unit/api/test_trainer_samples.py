"""Samples of runs of a `pg.Trainer`, also opened with `pg.load`; why such a run has no score."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.game import latents

SETTINGS = {
    "train.batch": 4, "train.kimg": 0.02, "every.log_steps": 1, "every.sample_kimg": 0, "g.ema.half_life_kimg": 0.01,
}  # fmt: skip
NO_SCORES = {"evaluation.features": None}


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


class Named(Maker):
    def forward(self, z):
        return super().forward(z)


class Scaled(nn.Module):
    """No latent, and no attribute for one: the sample is computed of another tensor."""

    def __init__(self, shape):
        super().__init__()
        self.net = Maker(shape)

    def forward(self, low):
        return self.net(low)


class Critic(nn.Module):
    def __init__(self, shape=(1, 16, 16)):
        super().__init__()
        self.layer = nn.Linear(torch.Size(shape).numel(), 1)

    def forward(self, x):
        return self.layer(x.flatten(1))[:, 0]


def finished(folder, net, shape, dtype=torch.float32, held_out=None, settings=NO_SCORES, **others):
    torch.manual_seed(0)
    data = {"x": torch.rand(8, *shape, dtype=dtype), **others}
    g, d = net(shape).to(dtype), Critic(shape).to(dtype)
    return pg.Trainer(g, d, data, held_out=held_out, settings=SETTINGS | settings, out=folder).run()


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
    run = pg.Trainer(Echo(), Ear(), data, settings=SETTINGS | NO_SCORES, out=tmp_path).run()
    assert run.sample(4).shape == (4, 3)
    with pytest.raises(pg.ConfigError, match="samples of this generator differ in length"):
        run.sample(70)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("make", "shape"), [(Maker, (3,)), (Named, (3,)), (Maker, (3, 8, 8))])
def test_loaded_generator_of_latents_samples_as_the_run_does(make, shape, dtype, tmp_path):
    run = finished(tmp_path, make, shape, dtype)
    both = run.sample(5, seed=3), pg.load(tmp_path, generator=make(shape).to(dtype)).sample(5, seed=3)
    expected, loaded = (made if isinstance(made, torch.Tensor) else made.tensor for made in both)
    assert torch.equal(expected, loaded) and loaded.dtype == expected.dtype


@pytest.mark.parametrize(("make", "names"), [(Labelled, ("latent", "label")), (Scaled, ("low",))])
def test_loaded_generator_with_other_inputs_is_called_with_them(make, names, tmp_path):
    held = {"latent": torch.randn(8, 3), "label": torch.arange(8), "low": torch.randn(8, 3)}
    run = finished(tmp_path, make, (6,), **{name: held[name] for name in names if name != "latent"})
    loaded = pg.load(tmp_path, generator=make((6,)))
    inputs = {name: held[name][:2] for name in names}
    assert torch.equal(loaded.net(**inputs), run.generator(**inputs))
    with pytest.raises(pg.ConfigError, match=r"and there is no data here; call net\("):
        loaded.sample(2)


def test_loading_without_the_generator_or_with_another_one_says_what_to_pass(tmp_path):
    finished(tmp_path, Maker, (3,))
    with pytest.raises(pg.ConfigError, match=r"paragan\.load\(RUN, generator=MyGenerator\(\)\)"):
        pg.load(tmp_path)
    with pytest.raises(pg.CheckpointError, match=r"layer\.\w+ is .* there and missing in this model|layer.weight is"):
        pg.load(tmp_path, generator=Labelled((3,)))


NO_METRIC = "no metric compares samples other than images without inputs; the report shows"
NAMED_METRIC = "evaluation.metrics=[l1], for example, compares held-out samples"


@pytest.mark.parametrize(
    ("make", "shape", "reason"), [(Maker, (3,), NO_METRIC), (Maker, (1, 64), NO_METRIC), (Scaled, (3,), NAMED_METRIC)]
)
def test_run_that_cannot_be_scored_by_default_says_why_and_what_to_set(make, shape, reason, tmp_path, capsys):
    others = {"low": torch.randn(8, 3)} if make is Scaled else {}
    finished(tmp_path, make, shape, settings={}, **others)
    printed = capsys.readouterr().out.partition("finished: ")[0]
    (line,) = (line for line in printed.splitlines() if line.startswith("score "))
    assert reason in line
