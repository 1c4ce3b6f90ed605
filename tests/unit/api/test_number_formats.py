"""Formats of numbers: data that is cast or refused, weights that are refused, each by name."""

import numpy as np
import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import D, G, data, trainer


@pytest.mark.parametrize("kind", ["array", "tensor", "dataset", "iterable"])
def test_float64_data_is_cast_and_said(tmp_path, capsys, kind):
    held = data(dtype=np.float64)
    rows = [{"x": row} for row in held["x"]]
    given = {
        "array": held,
        "tensor": {"x": torch.from_numpy(held["x"])},
        "dataset": rows,
        "iterable": lambda epoch: rows,
    }
    run = trainer(G(), D(), tmp_path, given[kind]).run()
    assert run.is_finished
    assert "x of float64 is cast to float32, the format of the weights" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [np.float16, ">f4", ">f8", "bfloat16"])
def test_other_floating_point_data_is_cast(tmp_path, capsys, kind):
    held = torch.from_numpy(data()["x"]).bfloat16() if kind == "bfloat16" else np.asarray(data()["x"]).astype(kind)
    run = trainer(G(), D(), tmp_path, {"x": held}).run()
    assert run.is_finished
    names = {np.float16: "float16", ">f8": "float64", "bfloat16": "bfloat16"}
    if kind in names:
        assert f"x of {names[kind]} is cast to float32, the format of the weights" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.bool])
def test_data_that_a_generator_cannot_return_is_refused_by_name(tmp_path, kind):
    name = str(kind).removeprefix("torch.")
    with pytest.raises(
        ConfigError, match=f"data: x is {name}, and a generator returns floating-point numbers; pass it as float32"
    ):
        trainer(G(), D(), tmp_path, {"x": torch.from_numpy(data()["x"]).to(kind)})


def test_weights_of_other_formats_are_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"discriminator has weights of bfloat16; pass .* discriminator\.float\(\)"):
        trainer(G(), D().bfloat16(), tmp_path)
    with pytest.raises(ConfigError, match=r"weights differ in format: generator float64, discriminator float32"):
        trainer(G().double(), D(), tmp_path)
    with pytest.raises(ConfigError, match=r"discriminator has a lazy layer of unknown size; call the network once"):
        trainer(G(), nn.Sequential(nn.LazyLinear(1)), tmp_path)


def test_float64_networks_have_other_data_cast(tmp_path, capsys):
    trainer(G().double(), D().double(), tmp_path).run()
    assert "x of float32 is cast to float64" in capsys.readouterr().out


def test_float64_networks_keep_float64_data(tmp_path, capsys):
    run = trainer(G().double(), D().double(), tmp_path, data(dtype=np.float64)).run()
    assert run.generator(torch.ones(1, 4, dtype=torch.float64)).dtype == torch.float64
    assert "is cast" not in capsys.readouterr().out


class ComplexG(G):
    def forward(self, latent):
        return torch.complex(super().forward(latent), super().forward(-latent))


class ComplexD(D):
    def forward(self, x):
        return super().forward(x.abs())


@pytest.mark.parametrize("shape", [(6,), (1, 6), (1, 6, 6)])
def test_complex_data_trains(tmp_path, shape):
    class Shaped(ComplexG):
        def forward(self, latent):
            return super().forward(latent).view(-1, *(1,) * (len(shape) - 1), 6).expand(-1, *shape)

    class Seeing(ComplexD):
        def forward(self, x):
            return super().forward(x.reshape(len(x), -1)[:, :6])

    run = trainer(Shaped(), Seeing(), tmp_path, {"x": torch.randn(40, *shape, dtype=torch.complex64)}).run()
    assert run.is_finished and run.generator(torch.ones(2, 4)).is_complex()
    assert (tmp_path / "samples").is_dir() is (shape != (1, 6))  # six numbers of a wave are no spectrogram
