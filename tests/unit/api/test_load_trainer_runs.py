"""`paragan.load` of a folder that a `paragan.Trainer` wrote: the generator has to be passed, and then samples."""

import pytest
import torch
from torch import nn

import paragan as pg


class Rows(nn.Module):
    latent = 4

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, latent):
        return self.layer(latent)


class RowsOfZ(Rows):
    def forward(self, z):
        return super().forward(z)


class Images(Rows):
    def forward(self, latent):
        return torch.tanh(super().forward(latent)).view(-1, 3, 1, 1).expand(-1, 3, 8, 8)


class Conditional(nn.Module):
    latent = 2

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, latent, kind):
        return self.layer(torch.cat([latent, kind], 1))


class Mapping(nn.Module):
    """Without a latent, and without the attribute."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, kind):
        return self.layer(kind)


class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 1)

    def forward(self, x):
        return self.layer(x.flatten(1)).squeeze(1)


def trained(generator, folder):
    torch.manual_seed(0)
    shape = (3, 8, 8) if isinstance(generator, Images) else (3,)
    dtype = next(generator.parameters()).dtype
    data = {"x": torch.rand(32, *shape, dtype=dtype) * 2 - 1, "kind": torch.randn(32, 3, dtype=dtype)}
    settings = {"train.kimg": 0.032, "train.batch": 16, "evaluation.features": None}
    critic = Critic(data["x"][0].numel()).to(dtype)
    return pg.Trainer(generator, critic, data, settings=settings, out=folder).run()


@pytest.mark.parametrize("make", [Rows, RowsOfZ, Images, lambda: Rows().double()])
def test_loaded_generator_of_latents_samples_as_the_run_does(make, tmp_path):
    generator = make()
    run = trained(generator, tmp_path / "run")
    expected = run.sample(5, seed=3)
    loaded = pg.load(tmp_path / "run", generator=generator).sample(5, seed=3)
    expected, loaded = (value if isinstance(value, torch.Tensor) else value.tensor for value in (expected, loaded))
    assert torch.equal(expected, loaded) and loaded.dtype == expected.dtype


@pytest.mark.parametrize("make", [Conditional, Mapping])
def test_loaded_generator_with_other_inputs_is_called_with_them(make, tmp_path):
    generator = make()
    run = trained(generator, tmp_path / "run")
    loaded = pg.load(tmp_path / "run", generator=make)
    kind = torch.randn(2, 3)
    inputs = {"kind": kind, "latent": torch.randn(2, 2)} if make is Conditional else {"kind": kind}
    assert torch.equal(loaded.net(**inputs), run.generator(**inputs))
    with pytest.raises(pg.ConfigError, match=r"and there is no data here; call net\("):
        loaded.sample(2)


def test_loading_without_the_generator_or_with_another_one_says_what_to_pass(tmp_path):
    trained(Rows(), tmp_path / "run")
    with pytest.raises(pg.ConfigError, match=r"paragan\.load\(RUN, generator=MyGenerator\(\)\)"):
        pg.load(tmp_path / "run")
    with pytest.raises(pg.CheckpointError, match=r"layer\.\w+ is .* there and missing in this model|layer.weight is"):
        pg.load(tmp_path / "run", generator=Conditional())
