"""Several discriminators on named tensors: each receives the tensors that it names."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.source import TensorSpec
from paragan.game.named_inputs import discriminator_arguments, generator_arguments, tuple_names, with_named_inputs
from tests.unit.api.test_trainer import TINY, Drawn, saved, step_of

SPECS = {name: TensorSpec((1,), torch.float64) for name in ("point", "pitch", "energy")}
ROWS, BATCH = 16, 8


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, point, pitch, energy):
        return self.layer(torch.cat([point, pitch, 3 * energy], 1))


class Second(First):
    def forward(self, point, energy, pitch):
        return super().forward(point, pitch, energy)


class Third(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, point):
        return self.layer(point)


class OtherFirst(First):
    def forward(self, pitch, point, energy):
        return super().forward(point, pitch, energy)


def networks():
    torch.manual_seed(0)
    return {"a": Third().double(), "b": First().double(), "c": Second().double()}


def test_arguments_are_those_of_all_discriminators_once():
    d = pg.Discriminators(**networks())
    assert discriminator_arguments(d, SPECS, None) == ("point", "pitch", "energy")
    named = with_named_inputs(d, SPECS, None)
    inputs = [torch.randn(4, 1).double() for _ in range(3)]
    found = named(*inputs)
    point, pitch, energy = inputs
    assert torch.equal(found["a"], d["a"](point))
    assert torch.equal(found["b"], d["b"](point, pitch, energy))
    assert torch.equal(found["c"], d["c"](point, energy, pitch))
    assert named["a"] is d["a"] and not d.places  # the program's module does not change


def test_run_of_discriminators_with_other_arguments_is_the_plain_loop(tmp_path):
    draws = torch.Generator().manual_seed(1)
    data = {name: torch.randn(ROWS, 1, generator=draws).double() for name in SPECS}
    torch.manual_seed(2)
    g = Drawn(nn.Linear(3, 1)).double()
    settings = {**TINY, "train.batch": BATCH, "train.kimg": 2 * BATCH / 1000, "g.ema": None}
    run = pg.Trainer(g, networks(), data, settings=settings, out=tmp_path).run()
    d = nn.ModuleDict(networks())
    optimizer = torch.optim.Adam(d.parameters(), lr=1e-2, eps=1e-4)
    of_g = torch.optim.Adam(g.parameters(), lr=1e-2, eps=1e-4)
    loader = pg.loading.TensorBatches(pg.Trainer(g, networks(), data).source, BATCH, seed=0)
    prior = pg.Prior(seed=0, latent=3, dtype=torch.float64)
    for step, batch in zip(range(2), loader, strict=False):
        rows = pg.Rows(step=step, first=0, count=BATCH, total=BATCH)
        pitch, energy = batch["pitch"], batch["energy"]

        def judge(x, pitch=pitch, energy=energy):
            return [d["a"](x), d["b"](x, pitch, energy), d["c"](x, energy, pitch)]

        fake = g(prior.draw("d", rows)[0]).detach()
        pairs = zip(judge(batch["point"]), judge(fake), strict=True)
        step_of(optimizer, sum((1 - real).relu().mean() + (1 + made).relu().mean() for real, made in pairs))
        step_of(of_g, sum(-made.mean() for made in judge(g(prior.draw("g", rows)[0]))))
    for name, value in d.state_dict().items():
        torch.testing.assert_close(saved(run, "d")[f"net/{name}"], value, rtol=0, atol=1e-12)


def test_discriminators_that_name_other_samples_are_refused():
    with pytest.raises(pg.ConfigError, match="the first argument of a is 'point', and that of b 'pitch'; name the"):
        discriminator_arguments(pg.Discriminators(a=First(), b=OtherFirst()), SPECS, None)


def test_wrong_name_of_one_discriminator_is_named():
    specs = {name: SPECS[name] for name in ("point", "pitch")}
    with pytest.raises(
        pg.ConfigError, match="discriminator b: forward takes 'energy', and a sample has only point, pi"
    ):
        discriminator_arguments(pg.Discriminators(a=Third(), b=First()), specs, None)


def test_terms_of_one_name_on_both_sides_train(tmp_path):
    terms = [
        pg.Term(name="size", function=lambda outputs, inputs: outputs.images.square()),
        pg.Term(name="size", function=lambda outputs, inputs: 2 * outputs.real.logits_B.square(), side=pg.Side.D),
    ]
    data = {"point": torch.randn(ROWS, 1)}
    settings = {**TINY, "train.kimg": 0.008}
    run = pg.Trainer(Drawn(nn.Linear(3, 1)), Third(), data, terms=terms, settings=settings, out=tmp_path).run()
    assert {"g/loss/size", "d/loss/size"} <= set(run.history[-1])
    assert run.history[-1]["g/loss/size"] != run.history[-1]["d/loss/size"]


class Pictures(nn.Module):
    def forward(self, x):
        return x


class Labelled(nn.Module):
    def forward(self, x, y):
        return x + y


class Noise(nn.Module):
    latent = 4

    def forward(self, x):  # the latent, by another name
        return x


class Drawing(nn.Module):
    latent = 4

    def forward(self, z, level):
        return z + level


class Converter(nn.Module):
    latent = 0  # none

    def forward(self, mel):
        return mel


class WithLatentLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent = nn.Linear(4, 4)

    def forward(self, mel, pitch):
        return self.latent(mel) + pitch


@pytest.mark.parametrize(
    ("g", "d", "sample", "expected"),
    [
        (Converter(), Pictures(), None, ("x", "mel")),
        (Converter(), Pictures(), "audio", ("audio", "mel")),
        (Converter(), pg.Discriminators(a=Labelled(), b=Pictures()), None, ("x", "y", "mel")),
        (WithLatentLayer(), Pictures(), None, ("x", "mel", "pitch")),
        (nn.Sequential(), nn.Sequential(), None, ("input",)),
        (Drawing(), Labelled(), None, ("x", "y", "level")),
        (Drawing(), Labelled(), "image", ("image", "y", "level")),
        (Noise(), Labelled(), None, ("sample", "y")),
        (Noise(), Labelled(), "image", ("image", "y")),
        (Drawing(), pg.Discriminators(a=Pictures(), b=Labelled()), None, ("x", "y", "level")),
        (Drawing(), pg.Discriminators(a=Pictures(), b=Labelled()), "image", ("image", "y", "level")),
        (Noise(), pg.Discriminators(a=Labelled(), b=Pictures()), "image", ("image", "y")),
    ],
)
def test_values_of_a_tuple_have_the_names_of_the_arguments(g, d, sample, expected):
    assert tuple_names(g, d, sample) == expected


@pytest.mark.parametrize("g", [Converter(), WithLatentLayer()], ids=["latent of 0", "layer"])
def test_an_argument_that_no_sample_has_is_no_latent_of_a_generator_without_one(g):
    with pytest.raises(pg.ParaganError, match=r"^generator: forward takes 'mel', and a sample"):
        generator_arguments(g, SPECS)
