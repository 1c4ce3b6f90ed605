"""Balancers are the plain loops of their authors: whole, in micro-batches, resumed; and what they promise."""

import re
from dataclasses import replace

import pytest
import torch

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.core.dist import ALONE
from paragan.core.types import Side
from paragan.extensions.grid.build.trainer import evolution
from paragan.game.network import Calling
from paragan.parallel import MemoryOptions, local_sgd, none
from paragan.schemes import extragradient
from tests.laws.balanced_gan import KINDS, PlainLoop, batch, distance, game, play
from tests.laws.small_gan import continued


@pytest.mark.parametrize(
    ("name", "parts", "steps"),
    [
        *((name, 3, 12) for name in KINDS),
        *(pytest.param(name, parts, 50, marks=pytest.mark.slow) for name in KINDS for parts in (1, 4)),
    ],
)
def test_it_is_the_plain_loop(name, parts, steps):
    gan, plain = game(name, parts=parts), PlainLoop(name)
    reports = play(gan, range(steps))
    plain.run(range(steps))
    assert distance(gan, plain) <= 1e-12
    recorded = {key: value for key, value in reports[-1].read().items() if "balancer" in key}
    assert recorded == {f"g/balancer/{k}": pytest.approx(v, rel=1e-5) for k, v in plain.factors[-1].items()}


def test_without_it_the_weights_are_others():
    gan, plain = game(None), PlainLoop("adaptive_weight")
    play(gan, range(12))
    plain.run(range(12))
    assert distance(gan, plain) > 1e-3


@pytest.mark.parametrize("name", ["gradient_balancer", "gradient_normalization"])
def test_resumed_it_goes_the_same_way(name):
    first, plain = game(name), PlainLoop(name)
    play(first, range(7))
    second = continued(first, game(name))
    play(second, range(7, 12))
    plain.run(range(12))
    assert distance(second, plain) <= 1e-12


@pytest.mark.parametrize("name", ["adaptive_weight", "gradient_balancer"])
def test_a_recomputed_generator_and_a_loss_scale_change_nothing(name):
    def strategy():
        return none.Strategy(None, MemoryOptions(recompute=True))

    gan, plain = game(name, strategy, parts=2), PlainLoop(name)
    gan.g = pg.Player(
        side=Side.G,
        net=gan.g.net,
        strategy=gan.g.strategy,
        policy=gan.g.policy,
        calling=Calling(scaled=True),
        state=gan.g.state,
    )
    play(gan, range(6))
    plain.run(range(6))
    assert distance(gan, plain) <= 1e-12
    assert gan.g.scaler.scale > 1


def test_shares_are_the_weights_however_large_a_loss_is():
    """Within 5 % of 4 * 0.8, 0.5 and 2 parts, after 200 updates with one loss times 1,000."""
    gan = game("gradient_balancer")
    gan.g_penalties = tuple(replace(t, weight=1e3 * t.weight) if t.name == "l1" else t for t in gan.g_penalties)
    for player in (gan.g, gan.d):
        player.set_lr_base(2e-4)  # norms that change faster than their average have other shares
    norms = []
    factors = gan.balancer.factors

    def recorded(gradients):
        found = factors(gradients)
        norms.append({name: float(gradients.mean_norm(name) * factor) for name, factor in found.items()})
        return found

    gan.balancer.factors = recorded
    play(gan, range(200))
    last = {name: sum(step[name] for step in norms[-50:]) / 50 for name in norms[-1]}
    shares = {name: value / sum(last.values()) for name, value in last.items()}
    expected = {"adversarial": 3.2 / 5.7, "l1": 0.5 / 5.7, "square": 2 / 5.7}
    assert shares == {name: pytest.approx(value, rel=0.05) for name, value in expected.items()}


@pytest.mark.parametrize("name", ["gradient_balancer", "gradient_normalization"])
def test_a_skipped_step_does_not_advance_it(name):
    gan = game(name)
    play(gan, range(6))
    before = {key: value.clone() for key, value in gan.balancer.state.items()}
    bad = batch(6)
    bad.tensors["condition"][0] = torch.nan
    turn = gan.g_turn(bad)
    gan.g.update(turn, against=gan.d)
    assert all(torch.equal(value, before[key]) for key, value in gan.balancer.state.items())
    play(gan, range(7, 8))
    assert not all(torch.equal(value, before[key]) for key, value in gan.balancer.state.items())


def test_extragradient_looks_ahead_with_it():
    gan = game("gradient_balancer")
    gan.adversarial = pg.AdversarialOptions()
    scheme = extragradient.Scheme()
    for step in range(3):
        report = scheme.step(gan, iter([batch(2 * step), batch(2 * step + 1)]))
    assert report.read()["g/balancer/l1"] > 0


SETTINGS = [
    "data.size=8", "model.width=8", "model.latent=8", "train.batch=16", "every.sample_kimg=1",
    "every.save_kimg=0.032", "evaluation.features=null", "penalties=[orthogonal]", "loss=hinge",
    "model=mlp", "balancer={name: gradient_balancer, decay: 0.5}",
]  # fmt: skip


def trainer(words, folder):
    config = read_recipe("digits", words)
    kind = evolution if config.grid is not None else build.trainer
    return kind(config, folder, print, lambda: False)


REFUSED = {
    "balancer=adaptive_weight penalties=[]": "but G has none; add one, such as the penalty l1",
    "balancer={name: gradient_balancer, weights: {l2: 1}}": "balancer.weights.l2: G has no such term; its terms are ",
    "balancer={name: adaptive_weight, last_layer: blocks.3.linear} train.executor=compile scheme=synchronous": (
        "balancer.last_layer=blocks.3.linear .* train.executor=compile .* use train.executor=eager"
    ),
    "balancer={name: adaptive_weight, last_layer: blocks.3.linear} scheme=shared_fakes": (
        "balancer.last_layer=blocks.3.linear .* scheme shared_fakes"
    ),
    "balancer=gradient_normalization grid.shape=2x2": "balancer gradient_normalization .* a grid",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(words, tmp_path):
    with pytest.raises(pg.ConfigError) as caught:
        trainer([*SETTINGS[:-1], *_words(words)], tmp_path)
    assert re.search(REFUSED[words], str(caught.value)) and "\n" not in str(caught.value)


def test_ranks_that_differ_are_refused():
    with pytest.raises(pg.ConfigError, match=r"balancer gradient_balancer .* strategy local_sgd .* ddp"):
        game("gradient_balancer", lambda: local_sgd.Strategy(local_sgd.Options()), ALONE)


def _words(text):
    """Settings, of which some contain spaces."""
    words = []
    for word in text.split(" "):
        if words and words[-1].count("{") > words[-1].count("}"):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


def test_a_layer_that_the_output_does_not_use_is_refused():
    gan = game("adaptive_weight")
    gan.adversarial = pg.AdversarialOptions()
    gan.g.net.other = torch.nn.Linear(9, 12).double()
    forward = gan.g.net.forward

    def wasteful(z, condition):
        found = forward(z, condition)
        gan.g.net.other(found.extra["hidden"])
        return found

    gan.g.net.forward = wasteful
    gan.balancer.layer = "other"
    with pytest.raises(pg.ConfigError, match="G's output does not depend on this layer; name G's last layer"):
        play(gan, range(1))


def test_a_layer_that_is_called_twice_is_refused():
    gan = game("adaptive_weight")
    gan.adversarial = pg.AdversarialOptions()
    forward = gan.g.net.forward
    gan.g.net.forward = lambda z, condition: (forward(z, condition), forward(z, condition))[0]
    with pytest.raises(pg.ConfigError, match="last_layer=last has 2 calls for 1 micro-batches; name a layer"):
        play(gan, range(1))


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "pure"])
def test_a_layer_is_compared_in_half_precision(tmp_path, precision):
    chosen = "balancer={name: adaptive_weight, last_layer: blocks.3.linear}"
    words = [*SETTINGS[:-1], chosen, "penalties=[feature_matching_l1]", f"g.precision={precision}", "every.log_steps=1"]
    words.append("scheme=synchronous")
    factors = []
    for settings in (words, [*words, "g.precision=fp32"]):
        run = trainer([*settings, "train.kimg=0.016"], tmp_path / str(len(factors)))
        (event,) = [event for event in run.run() if "g/balancer/adversarial" in event.values]
        factors.append(event.values["g/balancer/adversarial"])
    assert factors[0] == pytest.approx(factors[1], rel=0.1) and factors[0] > 0


def test_part_of_a_batch_is_refused():
    gan = game("gradient_normalization")
    with pytest.raises(pg.ConfigError, match="gradients of all 8 samples of the batch, but only 5 are available here"):
        gan.g.update(gan.g_turn(batch(6, 0, 5)), against=gan.d)
