"""What a `pg.Trainer` says about terms, data and networks that almost fit."""

import random
import warnings
import wave

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import paragan as pg
from tests.unit.api.test_networks_of_the_field import SETTINGS, D, G, trainer


class Several(G):
    def forward(self, latent):
        x = super().forward(latent)
        return pg.GeneratorOutput(x, {"style": x * 2})


TERMS = {
    "attribute of outputs": lambda outputs, inputs: outputs.generated,
    "tensor of inputs": lambda outputs, inputs: inputs.tensors["noise"],
    "real tensor": lambda outputs, inputs: inputs.real.tensors["img"],
    "extra": lambda outputs, inputs: outputs.extra["styles"],
    "features of D": lambda outputs, inputs: outputs.fake.features.abs(),
}


@pytest.mark.parametrize("function", TERMS.values(), ids=TERMS)
def test_a_term_that_reads_another_name_gets_the_names_that_exist(tmp_path, function):
    expected = (
        r"penalty near raised (AttributeError|KeyError): .* \(.*_hints\.py:\d+\); a term reads images, fake, "
        r"real \(needs_real=True\) and extra \(style\) of the outputs, tensors \(latent\) and real.tensors \(x\) of the"
    )
    with pytest.raises(pg.ConfigError, match=expected):
        trainer(Several(), D(), tmp_path, terms=[pg.Term(name="near", function=function)]).run()


def test_other_errors_of_a_term_have_no_list_of_names(tmp_path):
    with pytest.raises(pg.ConfigError, match="raised ZeroDivisionError: division by zero") as caught:
        trainer(G(), D(), tmp_path, terms=[pg.Term(name="near", function=lambda outputs, inputs: 1 / 0)]).run()
    assert "a term reads" not in str(caught.value)


class Ends(G):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, latent):
        return self.function(super().forward(latent)).view(-1, 6)


@pytest.mark.parametrize(
    ("function", "low", "high", "message"),
    [
        (torch.tanh, 0.0, 255.0, "ends in a tanh, in (-1, 1), and 'x' is from 0 to 255"),
        (torch.tanh, -2.1, 2.6, "ends in a tanh, in (-1, 1), and 'x' is from -2.1 to 2.6"),
        (torch.sigmoid, -1.0, 1.0, "ends in a sigmoid, in (0, 1), and 'x' is from -1 to 1"),
        (torch.tanh, -1.0, 1.0, None),
        (torch.tanh, 0.0, 1.0, None),
        (torch.sigmoid, 0.0, 1.0, None),
        (torch.relu, 0.0, 255.0, None),
    ],
)
def test_a_generator_that_cannot_reach_the_data_is_noticed(tmp_path, function, low, high, message):
    x = torch.full((8, 6), low)
    x[::2] = high
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(Ends(function), D(), tmp_path, {"x": x}).run()
    texts = [str(warning.message) for warning in caught if "generator" in str(warning.message)]
    assert len(texts) == (message is not None)
    assert message is None or (message in texts[0] and "scale the data to that range" in texts[0])


class Normed(G):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, latent):
        return self.last(self.norm(self.first(latent)))


@pytest.mark.parametrize("settings", [{"train__batch": 1}, {"g__micro_batches": 4, "d__micro_batches": 4}])
def test_a_network_that_fails_on_single_samples_is_named_before_training(tmp_path, settings):
    with pytest.raises(pg.ConfigError, match=r"generator: forward\(latent\) raised ValueError: Expected more than 1"):
        trainer(Normed(), D(), tmp_path / "run", **settings).run()
    assert not (tmp_path / "run").exists()
    assert trainer(Normed(), D(), tmp_path / "two", train__batch=2).run().is_finished


class Listed(nn.Module):
    """A layer in a Python list is no part of a network."""

    def __init__(self, hold):
        super().__init__()
        self.layers = hold(nn.Linear(6, 1))

    def forward(self, x):
        return next(iter(self.layers.values() if isinstance(self.layers, dict) else self.layers))(x)


@pytest.mark.parametrize("hold", [lambda n: [n], lambda n: (n,), lambda n: {"a": n}], ids=["list", "tuple", "dict"])
def test_layers_outside_a_module_are_named(tmp_path, hold):
    with pytest.raises(pg.ConfigError, match=r"Listed has no weight to train; assign .* torch\.nn\.ModuleList"):
        trainer(G(), Listed(hold), tmp_path)
    frozen = D().requires_grad_(False)
    with pytest.raises(pg.ConfigError, match="has no weight to train: all are frozen"):
        trainer(G(), frozen, tmp_path)


class Drawing(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, row):
        return {"x": torch.randn(6) + float(np.random.randn()) + random.random()}


def test_samples_that_draw_leave_the_generators_of_the_process_alone(tmp_path):
    source = trainer(G(), D(), tmp_path, Drawing()).source

    def draws(between):
        torch.manual_seed(3), random.seed(3), np.random.seed(3)
        first = [torch.randn(1).item(), float(np.random.randn()), random.gauss(0, 1)]
        between()
        return [*first, torch.randn(3).tolist(), np.random.randn(3).tolist(), random.gauss(0, 1)]

    one = source.fetch(np.arange(3), np.arange(3), 5)["x"]
    assert draws(lambda: None) == draws(lambda: source.fetch(np.arange(2), np.arange(2), 9))
    assert torch.equal(one, source.fetch(np.arange(3), np.arange(3), 5)["x"])
    assert not torch.equal(one, source.fetch(np.arange(3), np.arange(3) + 1, 5)["x"])


class Sound(nn.Module):
    latent = 4

    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        self.layer = nn.Linear(4, channels * 256)

    def forward(self, latent):
        return self.layer(latent).tanh().unflatten(1, (self.channels, 256))


@pytest.mark.parametrize("channels", [1, 2])
def test_audio_of_each_channel_is_written(tmp_path, channels):
    x = torch.linspace(-1, 1, 256).repeat(8, channels, 1)
    x[:, -1] = x[:, -1].flip(1)
    writers = ["images", {"name": "audio", "sample_rate": 4000}, "jsonl", "console", "report"]
    d = nn.Sequential(nn.Flatten(), nn.Linear(channels * 256, 1))
    settings = SETTINGS | {"writers": writers, "every.sample_kimg": 0.02}
    pg.Trainer(Sound(channels), d, {"audio": x}, settings=settings, out=tmp_path, sample="audio").run()
    with wave.open(str(tmp_path / "samples" / "data-1.wav")) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (channels, 4000, 256)
        values = np.frombuffer(file.readframes(256), "<i2").reshape(256, channels)
    np.testing.assert_allclose(values.T / 32767, x[0], atol=1e-4)
    assert list((tmp_path / "samples").glob("step-*-generated-1.wav"))
