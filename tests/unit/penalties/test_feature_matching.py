"""Feature matching against loops over rows, in float64, gradients included."""

import pytest

from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.prior import Prior
from paragan.losses import hinge
from paragan.penalties import feature_matching
from tests.one_turn import BATCH, Bare, assert_plain, nets, play, turn


def naive(real, fake):
    value = 0
    for f in range(real.shape[1]):
        means = [sum(rows[b, f] for b in range(BATCH)) / BATCH for rows in (real, fake)]
        value = value + (means[0] - means[1]) ** 2
    return value


def test_it_is_the_papers():
    pair = nets()
    penalty = feature_matching.Penalty(feature_matching.Options(weight=1.5))
    played = turn(Side.G, penalty)
    feed, g, d = played.feed, pair[Side.G], pair[Side.D]
    expected = 1.5 * naive(
        d(feed.real.image, feed.real.label).features, d(g(feed.latent, feed.label), feed.label).features
    )
    assert_plain(played, pair, expected.expand(BATCH), atol=0)


def test_g_is_shown_real_images_for_it():
    penalty = feature_matching.Penalty(feature_matching.Options())
    loss, prior = Loss(hinge.d_loss, hinge.g_loss), Prior(seed=0, latent=1)
    assert GAN(g=None, d=None, loss=loss, prior=prior, g_penalties=(penalty,)).g_needs_real
    assert not GAN(g=None, d=None, loss=loss, prior=prior).g_needs_real


def test_d_without_features_is_refused():
    penalty = feature_matching.Penalty(feature_matching.Options())
    told = r"^penalty feature_matching needs a D that returns features; let D return paragan.DiscriminatorOutput"
    with pytest.raises(ConfigError, match=told):
        play(turn(Side.G, penalty), {**nets(), Side.D: Bare()})
