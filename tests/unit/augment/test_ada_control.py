"""p: how it follows D, that it is told and saved, and that nobody else moves it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from paragan.augment.ada import Augment, Options
from paragan.core.protocols import adaptive
from paragan.core.types import Rows, Side
from paragan.engine.telemetry import Telemetry
from paragan.parallel import none
from paragan.schemes import skipping, synchronous
from tests.laws.small_gan import BATCH, batches, game, player
from tests.laws.test_augmented_parts import batches as plain_batches, game as plain_game
from tests.laws.test_no_sync import HostReads
from tests.laws.test_stopping_is_invisible import trainer

SURE = Options(target=0.0, p=0.4, kimg=0.1, interval=2)


def by_hand(means, images, options):
    """p before each step and after the last."""
    found, signs, steps, p = [], 0.0, 0, options.p
    for mean in means:
        found.append(p)
        if math.isfinite(mean):
            signs, steps = signs + mean, steps + 1
        if steps == options.interval:
            way = (signs / steps > options.target) - (signs / steps < options.target)
            p = min(max(p + way * steps * images / (options.kimg * 1000), 0.0), 1.0)
            signs, steps = 0.0, 0
    return [*found, p]


@pytest.mark.parametrize("interval", [1, 4])
def test_p_follows_the_signs(interval):
    options = Options(target=0.5, p=0.8, kimg=0.3, interval=interval)
    means = [1.0, 1.0, 0.25, 0.5, math.nan, 0.75, 0.75, math.inf, 1.0, 1.0] * 2 + [0.5] * 4
    means += [-1.0, -0.25, 0.0, 0.25] * 4 + [0.75, 0.75, -math.inf, 0.25, 0.25]
    augment, told = Augment(options), []
    for mean in means:
        told.append(float(augment.observe(torch.tensor(mean), 32, lambda share: share)["p"]))
    expected = by_hand(means, 32, options)
    assert told == pytest.approx(expected[:-1], abs=1e-6)
    assert float(augment.state["p"]) == pytest.approx(expected[-1], abs=1e-6)
    assert {0.0, 1.0} <= {round(p, 6) for p in expected} and len(set(expected)) > 4


def test_observed_values_do_not_change():
    """It is part of the report, where ranks sum it again."""
    sign = torch.tensor(0.5)
    Augment(SURE).observe(sign, 8, lambda share: share.mul_(3))
    assert float(sign) == 0.5


def test_a_fixed_p_is_nothing_to_remember():
    augment = Augment(Options(target=None, p=0.2))
    assert not augment.state and adaptive(augment) is None
    assert adaptive(Augment(Options())) is not None and adaptive(None) is None
    gan = small(augment)
    assert not {"d/sign", "d/augment_p"} & set(synchronous.step(gan, batches()).scalars)


def test_p_may_go_its_own_way():
    """From 0 to 0.6 by a cosine over 120 images, of which step 3 of 20 is the middle."""
    grows, x = Augment(Options(target=None, final=0.6, final_kimg=0.12)), torch.rand(20, 3, 8, 8)
    assert not grows.state
    for step, p in ((0, 0.0), (2, 0.15), (3, 0.3), (6, 0.6), (99, 0.6)):
        rows = Rows(step=step, first=0, count=20, total=20)
        assert torch.equal(grows(x, 1, "s", rows), Augment(Options(target=None, p=p))(x, 1, "s", rows))
    with pytest.raises(ValueError, match=r"^final=0\.6 has no effect while p follows the target; set target=null$"):
        Options(final=0.6)


def small(augment, per_step=1):
    gan = game(player(Side.G, none.Strategy()), player(Side.D, none.Strategy(), per_step=per_step))
    gan.augment = augment
    return gan


@pytest.mark.parametrize("per_step", [1, 2])
def test_game_reports_the_sign_the_images_and_p(per_step):
    """Real images that D is shown count: of all its turns."""
    augment, stream = Augment(SURE), batches()
    gan = small(augment, per_step)
    means, told = [], []
    for _ in range(5):
        found = synchronous.step(gan, stream).read()
        means.append(found["d/sign"])
        told.append(found["d/augment_p"])
    assert told == pytest.approx(by_hand(means, BATCH * per_step, SURE)[:-1], abs=1e-6)
    assert len(set(told)) == 3


@pytest.mark.parametrize("every", [2, 3])
def test_p_is_reported_at_steps_without_an_update_of_d(every):
    """G's images have it too; the first step of a session may be one of those."""
    augment, stream = Augment(SURE), batches()
    gan = small(augment)
    scheme = skipping.Scheme(skipping.Options(every=every))
    used, told = [], []
    for _ in range(4 * every + 1):
        used.append(float(augment.state["p"]))
        told.append(scheme.step(gan, stream).read()["d/augment_p"])
    assert told == pytest.approx(used, abs=1e-6)
    assert len(set(told)) == 3


def test_p_is_reported_at_a_batch_that_d_is_not_drawn_for():
    augment = Augment(SURE)
    gan = small(augment)
    report = gan.report(BATCH, {Side.G: gan.g.update(gan.g_turn(next(batches())), against=gan.d)})
    assert report.read()["d/augment_p"] == pytest.approx(float(augment.state["p"]))


def test_batches_of_a_further_player_are_not_images_of_d():
    augment = Augment(SURE)
    gan = small(augment)
    seen = []
    augment.observe = lambda sign, images, total: seen.append(images) or {}
    gan.extra = {Side("fake_score"): SimpleNamespace(updates_per_step=5)}
    update = gan.d.update(gan.d_turn(next(batches())), against=gan.g)
    gan.report(BATCH, {Side.D: update})
    assert gan.clock.images == 5 * BATCH and seen == [BATCH]


def test_logits_that_are_no_numbers_have_no_sign():
    gan = small(Augment(SURE))
    with torch.no_grad():
        next(gan.d.net.parameters()).fill_(math.nan)
    assert math.isnan(synchronous.step(gan, batches()).read()["d/sign"])
    assert float(gan.augment.state["steps"]) == 0 and float(gan.augment.state["p"]) == pytest.approx(0.4)


def test_a_step_reads_nothing_back():
    gan, stream = small(Augment(replace(SURE, pipeline="bgcfnc"))), batches()
    with HostReads() as reads:
        for _ in range(3):
            synchronous.step(gan, stream)
    assert not reads.seen


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_are_the_whole(parts):
    games = [plain_game(1), plain_game(parts)]
    for gan in games:
        gan.augment, stream = Augment(SURE), plain_batches()
        for _ in range(3):
            synchronous.step(gan, stream)
    for a, b in zip(*((*gan.g.net.parameters(), *gan.d.net.parameters()) for gan in games), strict=True):
        assert (a - b).abs().max() <= 1e-12
    assert games[0].augment.state == games[1].augment.state
    assert float(games[0].augment.state["p"]) != pytest.approx(0.4)


ADA = (
    "augment={name: ada, target: 0.1, p: 0.2, kimg: 0.4, interval: 3}",
    *("d.updates_per_step=1", "g.micro_batches=1", "every.save_kimg=0.016"),
)


def test_telemetry_does_not_move_it(tmp_path):
    run = trainer(tmp_path, 0.128, *ADA)
    synchronous.step(run.gan, run.batches)
    before = {name: float(value) for name, value in run.gan.augment.state.items()}
    assert before["steps"] == 1
    Telemetry(run.batches.source, run.batches.source, 16)(run.gan)
    assert {name: float(value) for name, value in run.gan.augment.state.items()} == before
