"""What every file of the penalties shelf keeps, for every side its options can name."""

import dataclasses
import json
from math import isfinite

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.types import Rows, Side
from paragan.layers.init import initialise
from paragan.layers.update_once import hold_updates
from paragan.loading.loader import Loader
from paragan.models import contragan, fastgan, flow_unet, sngan, stylegan2
from tests.one_turn import BATCH, CLASSES, OPTIONS, SHAPE, nets, play, turn
from tests.unlabelled_networks import UNLABELLED

NAMES = registry.names("penalties")
# tests/unit/recipes/test_vqgan_recipe.py, test_translate_recipe.py, test_codec_recipe.py, test_flow.py,
# test_distribution_matching.py
OTHERS = ("codebook", "cycle", "log_mel", "distillation", "distribution_matching")
CASES = [
    pytest.param(name, side, id=f"{name}-{side.value}")
    for name in NAMES
    if name not in OTHERS
    for side in Side
    if "side" in {f.name for f in dataclasses.fields(registry.options("penalties", name))}
    or registry.load_module("penalties", name).Penalty.side is side
]
LAZY = [case for case in CASES if "interval" in registry.options("penalties", case.values[0]).__dataclass_fields__]


class FlowOfShortLatents(flow_unet.Generator):
    """Also takes the latents of `one_turn`, whose images nothing compares."""

    def forward(self, z, y=None, t=None):
        return super().forward(z if t is not None else z.new_zeros(len(z), self.latent), y, t)


def penalty(name: str, side: Side, **wanted):
    file = registry.load_module("penalties", name)
    known = {field.name for field in dataclasses.fields(file.Options)}
    given = {"side": side.value, "every": 1, **wanted}
    made = file.Penalty(file.Options(**{key: value for key, value in given.items() if key in known}))
    if name == "perceptual":
        made.network.cast(torch.float64)
    return made


def stirred(made=None):
    """A pair; a D that compares for what compares, one that tells classes for what asks it, a G with styles."""
    pair = nets()
    if made is not None and Capability.COUPLED in made.needs:
        pair[Side.D] = contragan.Discriminator(contragan.Options(width=4, embed=6), SHAPE, CLASSES)
    if made is not None and made.name == "auxiliary":
        pair[Side.D] = sngan.Discriminator(dataclasses.replace(OPTIONS, head="auxiliary"), SHAPE, CLASSES)
    if made is not None and made.name == "path_length":
        styled = {"style": 4, "mapping": 1, "width": 4, "mixing": 0.0, "noise": False}
        options = stylegan2.Options(latent=OPTIONS.latent, **styled)
        pair[Side.G] = stylegan2.Generator(options, SHAPE, CLASSES).double()
    if made is not None and made.name == "flow_matching":
        pair[Side.G] = FlowOfShortLatents(flow_unet.Options(width=4, embed=5), SHAPE, CLASSES).double()
    if made is not None and made.name == "reconstruction":
        pair[Side.D] = fastgan.Discriminator(fastgan.Options(width=4), SHAPE, CLASSES).eval()  # parts have own means
    initialise(pair[Side.D].double(), 11, "d")
    hold_updates(pair[Side.D])
    with torch.no_grad():
        for net in pair.values():
            for number, parameter in enumerate(net.parameters()):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)).double()
                parameter.add_(noise, alpha=0.3)
    return pair


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name):
    made = registry.load_module("penalties", name).Penalty(registry.load_module("penalties", name).Options())
    assert made.name == name
    assert made.interval >= 1
    assert isinstance(made.side, Side)
    assert made.needs <= frozenset(Capability)


@pytest.mark.parametrize(("name", "side"), CASES)
def test_positive_finite_and_felt(name, side):
    made = penalty(name, side)
    pair = stirred(made)
    assert made.side is side
    terms, grads = play(turn(side, made), pair)
    loss = terms.loss_B[name]
    assert loss.shape == (BATCH,) and loss.isfinite().all() and (loss > 0).all()
    assert any(grad.abs().max() > 1e-6 for grad in grads.values())
    assert all(grad.isfinite().all() for grad in grads.values())


@pytest.mark.parametrize(("name", "side"), CASES)
def test_weight_nought_is_nought(name, side):
    made = penalty(name, side, weight=0.0)
    terms, grads = play(turn(side, made), stirred(made))
    assert not terms.loss_B[name].any()
    assert not any(grad.any() for grad in grads.values())


@pytest.mark.parametrize(("name", "side"), LAZY)
def test_lazy_is_as_much_stronger(name, side):
    pair = stirred(penalty(name, side))
    eager, lazy = (play(turn(side, penalty(name, side, interval=n)), pair)[0].loss_B[name] for n in (1, 8))
    torch.testing.assert_close(lazy, 8 * eager, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("name", "side"), CASES)
def test_parts_are_the_whole(name, side):
    made = penalty(name, side)
    if Capability.COUPLED in made.needs:
        pytest.skip("what couples samples is refused in parts")
    pair = stirred(made)
    whole, uneven = (play(turn(side, made), pair, parts) for parts in (1, 4))
    rows = [
        row for part in Rows(step=0, first=0, count=BATCH, total=BATCH).parts(4) for row in range(BATCH)[part.window]
    ]
    there = {key: values[rows] for key, values in whole[0].loss_B.items()}
    torch.testing.assert_close(there, uneven[0].loss_B, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(whole[1], uneven[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("augment", [[], ["augment=diffaugment"]], ids=["plain", "augmented"])
@pytest.mark.parametrize(("name", "side"), CASES)
def test_networks_without_labels_train_on_labelled_data_or_are_refused_in_one_line(name, side, augment):
    known = {field.name for field in dataclasses.fields(registry.options("penalties", name))}
    chosen = {"name": name, **({"side": side.value} if "side" in known else {})}
    words = [f"penalties=[{json.dumps(chosen)}]", "loss=hinge", "data.size=8", "train.batch=8", *augment]
    config = read_recipe("digits", words)
    found = build.open_data(config)
    game, refusal = game_or_refusal(config, found)
    if game is None:
        assert "\n" not in refusal and refusal.startswith((f"penalty {name} needs ", f"penalties: {name} needs ")), (
            refusal
        )
        return
    report = build.scheme(config).step(game, Loader(found.train, 8, 0, torch.device("cpu")))
    assert isfinite(report.read()[f"{side.value}/loss/{name}"])


def game_or_refusal(config, found):
    try:
        return build.gan(config, found, torch.device("cpu"), model=UNLABELLED), ""
    except ConfigError as error:
        return None, str(error)
