"""The auxiliary classifier: its loss against a loop, and its head's promises."""

import dataclasses

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.types import Side
from paragan.layers.blocks import run_blocks
from paragan.layers.init import initialise
from paragan.layers.update_once import begin_update, hold_updates
from paragan.models import sngan
from paragan.penalties import auxiliary
from tests.one_turn import CLASSES, SHAPE, assert_plain, nets, play, turn

HEADED = ["biggan", "sagan", "sngan"]
Y = torch.tensor([0, 1, 2, 1])


def pair_that_tells():
    pair = nets()
    d = sngan.Discriminator(sngan.Options(width=4, head="auxiliary"), SHAPE, CLASSES)
    d.weight_init = "orthogonal"
    initialise(d.double(), 0, "d")
    hold_updates(d)
    return {**pair, Side.D: d}


def wrong(verdict, y_B):
    """-log softmax of the right class, row by row."""
    found = []
    for logits, y in zip(verdict.classes_BK, y_B.tolist(), strict=True):
        found.append(-(logits[y].exp() / sum(logit.exp() for logit in logits)).log())
    return torch.stack(found)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(("side", "fakes"), [("d", True), ("d", False), ("g", True)])
def test_it_is_the_papers(side, fakes, parts):
    pair = pair_that_tells()
    penalty = auxiliary.Penalty(auxiliary.Options(weight=1.5, side=side, fakes=fakes))
    played = turn(Side(side), penalty)
    feed, d = played.feed, pair[Side.D]
    if side == "d":
        expected = wrong(d(feed.real.image, feed.real.label), feed.real.label)
        expected = expected + fakes * wrong(d(feed.fakes[0], feed.label), feed.label)
    else:
        expected = wrong(d(pair[Side.G](feed.latent, feed.label), feed.label), feed.label)
    assert_plain(played, pair, 1.5 * expected, parts)


@pytest.mark.parametrize("side", ["g", "d"])
def test_d_without_class_logits_is_refused(side):
    """Features of the right number are no class logits."""
    penalty = auxiliary.Penalty(auxiliary.Options(side=side))
    told = r"^penalty auxiliary needs a D with class logits; set model.head=auxiliary \(biggan, sagan, "
    with pytest.raises(ConfigError, match=told):
        play(turn(Side(side), penalty), nets())


def test_data_without_labels_is_refused():
    penalty, played = auxiliary.Penalty(auxiliary.Options(side="g")), turn(Side.G)
    pair = pair_that_tells()
    feed = dataclasses.replace(played.feed, tensors={"latent": played.feed.latent})
    bare = dataclasses.replace(played, feed=feed, penalties=(penalty,))
    pair[Side.G] = sngan.Generator(sngan.Options(latent=5, width=4, conditional=False), SHAPE).double()
    with pytest.raises(
        ConfigError,
        match=r"^penalty auxiliary needs labels, but this run has none; use data and a generator with classes",
    ):
        play(bare, pair)


def discriminator(name, **more):
    file = registry.load_module("models", name)
    known = {field.name for field in dataclasses.fields(file.Options)}
    wanted = {"width": 8, "head": "auxiliary", **more}
    net = file.Discriminator(file.Options(**{k: v for k, v in wanted.items() if k in known}), (1, 8, 8), 3).double()
    initialise(net, 0, "d")
    hold_updates(net)
    with torch.no_grad():
        for parameter in net.parameters():  # away from the start, where attention does nothing yet
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.1)
    return net


@pytest.mark.parametrize("name", HEADED)
def test_head_returns_class_logits(name):
    """No label is looked at, every weight is reached, blocks are the network."""
    net, x = discriminator(name), torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    verdict = net(x, Y)
    assert (verdict.logits_B.shape, verdict.classes_BK.shape) == ((4,), (4, 3))
    assert torch.equal(verdict.logits_B, net(x).logits_B) and torch.equal(verdict.classes_BK, net(x, 2 - Y).classes_BK)
    last = DiscriminatorOutput.of(run_blocks(net.blocks, x, Y))
    assert torch.equal(last.classes_BK, verdict.classes_BK) and torch.equal(last.features, verdict.features)
    halves = verdict.split([1, 3])
    assert torch.equal(torch.cat([half.classes_BK for half in halves]), verdict.classes_BK)
    begin_update(net)
    loss = torch.nn.functional.cross_entropy(net(x, Y).classes_BK, Y) + net(x, Y).logits_B.sin().sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in net.parameters() if p.dim() > 1)


@pytest.mark.parametrize("name", HEADED)
def test_class_logits_are_float32_under_autocast(name):
    net = discriminator(name).float()
    with torch.autocast("cpu", torch.bfloat16):
        verdict = net(torch.randn(4, 1, 8, 8), Y)
    assert verdict.classes_BK.dtype == verdict.logits_B.dtype == torch.float32


@pytest.mark.parametrize(
    ("model", "penalties", "told"),
    [
        ("{name: sngan, head: auxiliary}", "[]", ["g: auxiliary", "d: auxiliary"]),
        ("{name: sngan, head: auxiliary}", "[auxiliary]", ["g: auxiliary"]),
        ("{name: sngan, head: auxiliary, conditional: false}", "[]", []),
        ("{name: sngan}", "[]", []),
        ("contragan", "[data_to_data, {name: contrastive, side: g}]", []),
        ("{name: stylegan2, head: contrast}", "[contrastive]", ["g: contrastive or data_to_data"]),
    ],
)
def test_head_that_no_penalty_trains_warns(model, penalties, told):
    config = read_recipe("digits", ["data.size=8", "model.width=8", f"model={model}", f"penalties={penalties}"])
    game = build.gan(config, build.open_data(config), torch.device("cpu"))
    assert [f"{side.value}: {' or '.join(names)}" for side, names in game.missing_label_penalties.items()] == told
