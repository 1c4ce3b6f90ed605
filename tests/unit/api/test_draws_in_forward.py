"""Random numbers of numpy, of `random` and of private generators in `forward`: resumed exactly, or said."""

import os
import random
import warnings

import numpy as np
import pytest
import torch

from tests.unit.api.test_networks_of_the_field import D, G, trainer, weights


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
