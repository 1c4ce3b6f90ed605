"""Numbers: formats that are cast or refused by name; random ones in `forward`, which resume exactly, or are said."""

import os
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import D, G, data, trainer, weights


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
    assert "x of float64 is cast to float32, the format of the weights" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [np.float16, ">f4", ">f8", "bfloat16"])
def test_other_floating_point_data_is_cast(tmp_path, capsys, kind):
    held = torch.from_numpy(data()["x"]).bfloat16() if kind == "bfloat16" else np.asarray(data()["x"]).astype(kind)
    run = trainer(G(), D(), tmp_path, {"x": held}).run()
    assert run.is_finished
    names = {np.float16: "float16", ">f8": "float64", "bfloat16": "bfloat16"}
    if kind in names:
        assert f"x of {names[kind]} is cast to float32, the format of the weights" in capsys.readouterr().err


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
    assert "x of float32 is cast to float64" in capsys.readouterr().err


def test_float64_networks_keep_float64_data(tmp_path, capsys):
    run = trainer(G().double(), D().double(), tmp_path, data(dtype=np.float64)).run()
    assert run.generator(torch.ones(1, 4, dtype=torch.float64)).dtype == torch.float64
    assert "is cast" not in capsys.readouterr().err


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


def with_noise(kind, draw):
    """G or D, whose forward multiplies its input by numbers of `draw(self, size)`."""

    def noised(self, x):
        return x * (1 + 0.1 * torch.tensor(draw(self, len(x)), dtype=torch.float32)[:, None])

    class DrawingG(G):
        def forward(self, latent):
            return super().forward(noised(self, latent))

    class DrawingD(D):
        def forward(self, x):
            return super().forward(noised(self, x))

    return DrawingG if kind is G else DrawingD


GLOBAL = {
    "numpy": lambda self, size: np.random.normal(size=size),
    "random": lambda self, size: [random.random() for _ in range(size)],
    "scalar": lambda self, size: [np.random.rand() + random.gauss(0, 1)] * size,
}


@pytest.mark.parametrize(
    ("draw", "scheme"),
    [*((draw, "synchronous") for draw in GLOBAL), ("scalar", "shared_fakes"), ("scalar", "asynchronous")],
)
def test_draws_of_numpy_and_random_in_forward_resume_bit_for_bit(tmp_path, draw, scheme):
    g, d = with_noise(G, GLOBAL[draw]), with_noise(D, GLOBAL[draw])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for folder, length in (("whole", 0.04), ("parts", 0.02), ("parts", 0.04)):
            np.random.seed(len(folder))  # of another session
            random.seed(length)
            settings = {"scheme__staleness": 0} if scheme == "asynchronous" else {}
            trainer(g, d, tmp_path / folder, scheme__name=scheme, train__kimg=length, **settings).run()
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts") != {}


PRIVATE = {
    "numpy": lambda self, size: self.__dict__.setdefault("source", np.random.default_rng()).normal(size=size),
    "torch": lambda self, size: torch.randn(
        size, generator=self.__dict__.setdefault("source", torch.Generator())
    ).tolist(),
    "system": lambda self, size: list(os.urandom(size)),
    "counter": lambda self, size: [self.__dict__.update(calls=vars(self).get("calls", 0) + 1) or self.calls] * size,
}


@pytest.mark.parametrize("side", ["generator", "discriminator"])
@pytest.mark.parametrize("draw", PRIVATE)
def test_draws_that_no_checkpoint_has_are_said_once(tmp_path, draw, side):
    nets = {"generator": G, "discriminator": D}
    nets[side] = with_noise(nets[side], PRIVATE[draw])
    with pytest.warns(UserWarning, match="a resumed run is not exact") as said:
        trainer(nets["generator"](), nets["discriminator"](), tmp_path).run()
    found = [str(one.message) for one in said if "a resumed run is not exact" in str(one.message)]
    assert len(found) == 1 and found[0].startswith(f"{side}: forward")
