"""Losses that compare all images of a batch, against loops over pairs in float64; on ranks: tests/distributed."""

import math

import pytest
import torch

from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.game.needs import check_player
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.layers.update_once import hold_updates
from paragan.models import contragan
from paragan.parallel import local_sgd
from paragan.penalties import contrastive, data_to_data
from paragan.penalties._similarity import BatchEmbeddings
from tests.one_turn import BATCH, CLASSES, SHAPE, Bare, nets, play, turn

KINDS = [contrastive, data_to_data]
POINTS, LABELS = 5, torch.tensor([0, 1, 0, 2, 1, 0, 0])


def batch(e_BE, p_BE, y_B, rows=slice(None)) -> BatchEmbeddings:
    """These rows of a batch."""
    return BatchEmbeddings(
        points_BE=e_BE[rows],
        proxies_BE=p_BE[rows],
        y_B=y_B[rows],
        all_TE=e_BE,
        all_y_T=y_B,
        positions_B=torch.arange(len(y_B))[rows],
    )


def points(seed: int) -> list[list[float]]:
    found = torch.randn(len(LABELS), POINTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(found, dim=1).tolist()


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def contrastive_by_hand(e, p, y, t):
    found = []
    for i in range(len(y)):
        own = math.exp(dot(e[i], p[i]) / t)
        same = sum(math.exp(dot(e[i], e[k]) / t) for k in range(len(y)) if k != i and y[k] == y[i])
        every = sum(math.exp(dot(e[i], e[k]) / t) for k in range(len(y)) if k != i)
        found.append(-math.log((own + same) / (own + every)))
    return found


def data_to_data_by_hand(e, p, y, tau, near, far):
    found = []
    for i in range(len(y)):
        own = math.exp(min(dot(e[i], p[i]) - near, 0) / tau)
        others = sum(math.exp(max(dot(e[i], e[j]) - far, 0) / tau) for j in range(len(y)) if y[j] != y[i])
        found.append(-math.log(own / (own + others)))
    return found


@pytest.mark.parametrize("t", [0.3, 1.0])
def test_contrastive_is_the_papers(t):
    e, p, y = points(0), points(1), LABELS
    e_BE, p_BE = torch.tensor(e, dtype=torch.float64), torch.tensor(p, dtype=torch.float64)
    found = contrastive.loss(batch(e_BE, p_BE, y), t)
    torch.testing.assert_close(found.tolist(), contrastive_by_hand(e, p, y.tolist(), t), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("margins", [(0.5, 0.98, -0.02), (1.0, 0.1, 0.2)])
def test_data_to_data_is_the_papers(margins):
    e, p, y = points(0), points(1), LABELS
    e_BE, p_BE = torch.tensor(e, dtype=torch.float64), torch.tensor(p, dtype=torch.float64)
    found = data_to_data.loss(batch(e_BE, p_BE, y), *margins)
    torch.testing.assert_close(found.tolist(), data_to_data_by_hand(e, p, y.tolist(), *margins), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("module", KINDS)
def test_rows_of_a_batch_are_those_of_the_whole(module):
    """What a rank computes of its rows."""
    e_BE, p_BE = (torch.tensor(points(seed), dtype=torch.float64) for seed in (0, 1))
    settings = (0.7,) if module is contrastive else (0.7, 0.9, 0.0)

    def of(rows):
        return module.loss(batch(e_BE, p_BE, LABELS, rows), *settings)

    both = torch.cat([of(slice(0, 3)), of(slice(3, None))])
    torch.testing.assert_close(both, of(slice(None)), rtol=1e-13, atol=0)


@pytest.mark.parametrize("module", KINDS)
@pytest.mark.parametrize("side", list(Side))
def test_each_side_compares_its_own_images(module, side):
    """D real ones with their labels, G its own with those it was asked for."""
    pair = nets()
    pair[Side.D] = contragan.Discriminator(contragan.Options(width=4, embed=6), SHAPE, CLASSES).double()
    hold_updates(pair[Side.D])
    penalty = module.Penalty(module.Options(weight=1.5, side=side.value))
    played = turn(side, penalty)
    feed = played.feed
    if side is Side.D:
        verdict, y_B = pair[Side.D](feed.real.image, feed.real.label), feed.real.label
    else:
        verdict, y_B = pair[Side.D](pair[Side.G](feed.latent, feed.label), feed.label), feed.label
    e, p = (part.tolist() for part in verdict.features.unbind(1))
    by_hand = contrastive_by_hand(e, p, y_B, 1.0) if module is contrastive else None
    by_hand = by_hand or data_to_data_by_hand(e, p, y_B, 0.5, 0.98, 0.02)
    terms, grads = play(played, pair)
    expected = [1.5 * value for value in by_hand]
    torch.testing.assert_close(terms.loss_B[penalty.name].tolist(), expected, rtol=1e-10, atol=1e-12)
    assert any(grad.abs().max() > 1e-6 for grad in grads.values()) and len(expected) == BATCH


@pytest.mark.parametrize("module", KINDS)
def test_d_without_embeddings_is_refused(module):
    penalty = module.Penalty(module.Options())
    told = rf"^penalty {penalty.name} needs a D .* returns no features; use model contragan, reacgan, or"
    with pytest.raises(ConfigError, match=told):
        play(turn(Side.D, penalty), {**nets(), Side.D: Bare()})


@pytest.mark.parametrize("name", ["penalty contrastive", "penalty data_to_data", "loss relativistic_average"])
def test_micro_batches_and_local_sgd_are_refused(name):
    penalties = tuple(module.Penalty(module.Options()) for module in KINDS if name.endswith(module.Penalty.name))
    terms = {"penalties": penalties, "loss_needs": frozenset(), "loss": "relativistic_average"}
    if not penalties:
        terms["loss_needs"] = frozenset({Capability.COUPLED})
    player = Player(side=Side.D, net=torch.nn.Linear(1, 1))
    with pytest.raises(ConfigError, match=f"{name} .* d.micro_batches=2"):
        check_player(PlayerOptions(micro_batches=2), player, **terms)
    player.strategy = local_sgd.Strategy(local_sgd.Options())
    with pytest.raises(ConfigError, match=f"{name} .* strategy local_sgd"):
        check_player(PlayerOptions(), player, **terms)
