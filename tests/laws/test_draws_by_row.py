"""Law: what layers draw depends on the row of the global batch alone, not on micro-batches, executors or generators."""

import random
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from paragan import build
from paragan.core.row_draws import rows_of_calls, turn_draws
from paragan.core.types import Rows, Side
from paragan.game.network import CalledNetwork, Calling
from paragan.hardware import executors
from paragan.layers.random import Dropout, uses_random_numbers
from paragan.layers.update_once import mixes_samples
from paragan.loading.loader import Loader
from paragan.models._style import Noise
from paragan.parallel import MemoryOptions, none
from paragan.schemes import asynchronous, shared_fakes, synchronous
from tests.contract.small_networks import MODELS
from tests.contract.test_tensor_models import config, images  # noqa: F401
from tests.laws import zoo_games
from tests.laws.small_gan import distance

DRAWING = ("stylegan2", "pix2pix")
ALL_DRAWING = ("fastgan", *DRAWING)  # its noise has a weight of 0 at first
SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme()}
CPU = torch.device("cpu")


def generators():
    """States of all generators that a forward could draw from."""
    name, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), (name, keys.tolist(), *rest), random.getstate()


@pytest.fixture
def watched(monkeypatch):
    """Names of the networks whose calls drew from a generator."""
    drew = []
    plain = CalledNetwork.__call__

    def call(self, *inputs):
        before = generators()
        outputs = plain(self, *inputs)
        if generators() != before:
            drew.append(type(self.module).__qualname__)
        return outputs

    monkeypatch.setattr(CalledNetwork, "__call__", call)
    return drew


def stepped(model, gan, scheme="synchronous", steps=1):
    stream = zoo_games.batches(model)
    for _ in range(steps):
        SCHEMES[scheme].step(gan, stream)
    return zoo_games.weights(gan)


@pytest.mark.parametrize("model", MODELS)
def test_forward_of_every_image_model_draws_from_no_generator(model, watched):
    gan = zoo_games.alone(model, styled=model == "stylegan2")
    stepped(model, gan)
    assert not watched
    assert uses_random_numbers(gan.g.net) is (model in ALL_DRAWING) and not uses_random_numbers(gan.d.net)


def test_forward_of_every_other_model_draws_from_no_generator(config, watched):  # noqa: F811
    data = build.open_data(config)
    gan = build.gan(config, data, CPU)
    build.scheme(config).step(gan, Loader(data.train, 2, 0, CPU))
    assert not watched


MIXING = {"biggan", "biggan_deep", "contragan", "dcgan", "fastgan", "reacgan", "sagan", "sngan"}  # whatever the options


def test_models_that_mix_samples_are_known():
    networks = {model: zoo_games.construct(model, Side.G, zoo_games.NOT_MIXING) for model in MODELS}
    assert {model for model, net in networks.items() if mixes_samples(net)} == MIXING


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("model", [model for model in MODELS if model not in MIXING])
def test_two_micro_batches_of_every_image_model_are_one_batch(model, scheme):
    whole, parts = (stepped(model, zoo_games.alone(model, n, zoo_games.NOT_MIXING), scheme) for n in (1, 2))
    assert distance(parts, whole) <= 1e-10
    assert distance(whole, zoo_games.weights(zoo_games.alone(model, 1, zoo_games.NOT_MIXING))) > 1e-3


def of(model, recompute=False, compiler=None):
    placed = none.Strategy(None, MemoryOptions(recompute=recompute))
    wanted = {"norm": "instance"}  # batch norm has two programs, of which one changes its statistics
    calling = Calling(compiler=compiler)
    players = (zoo_games.player(model, side, placed, wanted=wanted, calling=calling) for side in Side)
    return zoo_games.game(*players, model, styled=model == "stylegan2")


@pytest.mark.parametrize("model", ALL_DRAWING)
def test_recomputed_blocks_draw_again_what_they_drew(model):
    recomputed, plain = (stepped(model, of(model, on), steps=2) for on in (True, False))
    assert distance(recomputed, plain) <= 1e-10


@pytest.mark.parametrize(
    ("model", "recompute"),
    [("pix2pix", False), *(pytest.param(*of, marks=pytest.mark.slow) for of in product(DRAWING, (True, False)))],
)
def test_compiled_networks_draw_as_uncompiled_ones(model, recompute, monkeypatch):
    """Without another compilation, whatever the rows and steps."""
    torch._dynamo.reset()
    monkeypatch.setattr(executors, "BACKEND", "aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = stepped(model, of(model, recompute, executors.call_compiler("compile", CPU)), steps=3)
    assert distance(compiled, stepped(model, of(model), steps=3)) <= 1e-8


@pytest.mark.parametrize(
    ("model", "scheme"), [("stylegan2", "synchronous"), ("stylegan2", "shared_fakes"), ("pix2pix", "synchronous")]
)
def test_asynchronous_threads_without_delay_draw_as_one_thread(model, scheme):
    made = asynchronous.Scheme(asynchronous.Options(staleness=0, reuse=scheme == "shared_fakes"))
    gan = zoo_games.alone(model)
    stream = zoo_games.batches(model)
    for _ in range(3):
        made.step(gan, stream)
    made.quiesce()
    made.close()
    assert distance(zoo_games.weights(gan), stepped(model, zoo_games.alone(model), scheme, steps=3)) == 0


def drawn(model, seed=0, side="g", step=0, first=0, count=4, words=()):
    """Images of G in training, as a turn draws for these rows."""
    net = CalledNetwork(module=zoo_games.construct(model, Side.G, {"norm": "instance"}))
    zoo_games.fill(Side.G, net.module)
    z = torch.ones(count, net.module.latent, dtype=torch.float64)
    condition = torch.ones(count, *zoo_games.shape(model), dtype=torch.float64) if model == "pix2pix" else None
    with (
        torch.no_grad(),
        turn_draws([seed], side),
        rows_of_calls(Rows(step=step, first=first, count=count, total=8), *words),
    ):
        return net(z, None, condition)


@pytest.mark.parametrize("model", DRAWING)
def test_draws_of_a_row_follow_seed_side_step_row_and_purpose(model):
    whole = drawn(model, count=6)
    torch.testing.assert_close(drawn(model, first=2, count=3), whole[2:5], rtol=0, atol=1e-12)
    others = [drawn(model, **other) for other in ({"seed": 1}, {"side": "d"}, {"step": 1}, {"words": ("late",)})]
    rows = [*whole, *(row for other in others for row in other)]
    near = [i for i, a in enumerate(rows) for b in rows[:i] if torch.allclose(a, b, rtol=0, atol=1e-6)]
    assert not near


class Twice(nn.Module):
    """Two layers of dropout, of names of their own."""

    def __init__(self):
        super().__init__()
        self.a, self.b = Dropout(0.5), Dropout(0.5)

    def forward(self, x):
        return torch.stack([self.a(x.clone()), self.b(x.clone())], 1)


def test_every_layer_call_and_copy_of_rows_draws_numbers_of_its_own():
    net = CalledNetwork(module=Twice())
    x = torch.ones(6, 40)
    with turn_draws([0], "d"), rows_of_calls(Rows(step=0, first=0, count=3, total=3)):
        found = torch.cat([net(x), net(x)]).flatten(0, 1)
    assert len({tuple(row.tolist()) for row in found}) == 2 * 6 * 2
    with (
        turn_draws([0], "d"),
        rows_of_calls(Rows(step=0, first=0, count=4, total=4)),
    ):  # not these rows: from torch's generator
        torch.manual_seed(0)
        other = net(x)
    torch.manual_seed(0)
    assert torch.equal(other, Twice()(x))
    assert all(layer.keys_B is None for layer in net.module.children())


@pytest.mark.slow
def test_layers_that_draw_are_equal_under_inductor():
    torch._dynamo.reset()
    net = nn.Sequential(nn.Conv2d(3, 8, 3), Dropout(0.5), Noise((6, 6))).double()
    nn.init.ones_(net[2].strength)
    x = torch.ones(4, 3, 8, 8, dtype=torch.float64)
    calls = [
        CalledNetwork(module=net, calling=Calling(compiler=compiler))
        for compiler in (None, executors.call_compiler("compile", CPU))
    ]
    for step in range(2):
        with turn_draws([0], "g"):
            found = []
            for call in calls:
                with rows_of_calls(Rows(step=step, first=2, count=4, total=8)):
                    found.append(call(x))
        torch.testing.assert_close(*found, rtol=0, atol=1e-12)
