"""D by coin and by need: which of its steps are taken."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.core import rng
from paragan.engine.divergence import SkipMonitor
from paragan.game.accuracy_gate import AccuracyGate
from paragan.game.state import state_of
from paragan.game.state_buffers import attach_state, refuse_state
from paragan.penalties import r1
from paragan.schemes import asynchronous, extragradient, synchronous
from tests.laws.test_no_sync import HostReads
from tests.tiny_run import SMALL, TINY

BATCH = 8


def net(inputs, outputs, *last):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs), *last)


def game(per_step=1, **policy):
    torch.manual_seed(0)
    g = pg.Player(pg.Side.G, net(3, 2), policy=pg.Policy(lr=0.01))
    d = pg.Player(pg.Side.D, net(2, 1, nn.Flatten(0)), policy=pg.Policy(lr=0.01, updates_per_step=per_step, **policy))
    gan = pg.GAN(g, d, pg.hinge_loss, pg.Prior(seed=4, latent=3, arguments=("point",)))
    attach_state(gan)
    return gan


def batches(first=0, count=BATCH, shift=3.0):
    step = 0
    while True:
        rows = pg.Rows(step, first, count, BATCH)
        yield pg.Batch(rows, {"point": rng.normal(9, "points", rows, (2,)) + shift})
        step += 1


def updated(gan, stream, steps):
    """The batches at which D was updated."""
    found = []
    for step in range(steps):
        before = gan.d.version
        synchronous.step(gan, stream)
        found += [step] if gan.d.version > before else []
    return found


def test_coin_is_drawn_by_seed_and_batch_alone():
    whole = updated(game(update_probability=2 / 3), batches(), 60)
    assert whole == [n for n in range(60) if rng.fraction(4, "d/update", n) < 2 / 3]
    assert updated(game(update_probability=2 / 3), batches(first=5, count=3), 60) == whole
    gan = game(update_probability=2 / 3)
    assert gan.clock.images == 0 and gan.d_pauses == "d.update_probability"
    many = sum(rng.fraction(0, "d/update", n) < 2 / 3 for n in range(30_000)) / 30_000
    assert many == pytest.approx(2 / 3, abs=0.01)


def test_coin_of_each_batch_of_a_step():
    gan = game(per_step=3, update_probability=0.5)
    stream = batches()
    for _ in range(5):
        synchronous.step(gan, stream)
    assert gan.d.version == sum(rng.fraction(4, "d/update", n) < 0.5 for n in range(15))
    assert gan.clock.images == 15 * BATCH


def test_without_a_coin_d_is_always_updated():
    assert updated(game(), batches(), 5) == [0, 1, 2, 3, 4]


def judged(right_real, right_fake, count=10):
    """Logits of which so many are on the right side."""
    on_real = torch.tensor([1.0] * right_real + [-1.0] * (count - right_real))
    on_fake = torch.tensor([-1.0] * right_fake + [1.0] * (count - right_fake))
    return pg.LossTerms({}, {"real": on_real, "fake": on_fake})


def test_gate_follows_a_moving_mean_of_the_accuracy():
    gate = AccuracyGate(0.75, torch.device("cpu"))
    rows = pg.Rows(0, 0, 10, 10)
    mean = 0.0
    num_skipped = 0
    for number in range(40):
        right = (10, 10) if number % 13 < 7 else (3, 4)
        mean += (sum(right) / 20 - mean) * max(0.1, 1 / (number + 1))
        allowed = gate.allows(judged(*right), rows, lambda values: values)
        assert bool(allowed) == (mean <= 0.75)
        num_skipped += mean > 0.75
    values = gate.values()
    assert values["accuracy"].item() == pytest.approx(mean, abs=1e-12)
    assert values["skipped"].item() == num_skipped / 40 > 0.2


def test_gate_ignores_logits_that_are_not_finite():
    gate = AccuracyGate(0.75, torch.device("cpu"))
    rows = pg.Rows(0, 0, 10, 10)
    gate.allows(judged(10, 8), rows, lambda values: values)
    before = {name: value.clone() for name, value in gate.state.items()}
    broken = pg.LossTerms({}, {"real": torch.full((10,), math.nan), "fake": torch.zeros(10)})
    gate.allows(broken, rows, lambda values: values)
    assert gate.state == before


def test_skipped_step_changes_nothing_but_the_count_and_is_no_divergence():
    gan = game(max_accuracy=0.01)
    monitor = SkipMonitor({"d": gan.d, "g": gan.g})
    before = {name: value.clone() for name, value in state_of(gan.d)[0].tensors.items()}
    stream = batches()
    for _ in range(150):  # more than a run of skipped steps may have
        report = synchronous.step(gan, stream)
    after, counts = state_of(gan.d)
    changed = {name for name, value in before.items() if not torch.equal(after.tensors[name], value)}
    assert all(not value.any() for name, value in after.tensors.items() if name not in before)  # of Adam
    assert changed <= {"state/accuracy/mean", "state/accuracy/turns", "state/accuracy/skipped"}
    assert counts["version"] == 150
    monitor.raise_if_idle(150, at_the_end=True)
    assert monitor.messages() == []
    assert report.read()["d/skipped"] == 1.0


def test_gate_reads_nothing_back():
    gan = game(max_accuracy=0.6)
    stream = batches()
    synchronous.step(gan, stream)
    with HostReads() as reads:
        for _ in range(4):
            synchronous.step(gan, stream)
    assert not reads.seen


def test_gate_works_under_extragradient():
    gan = game(max_accuracy=0.55)
    stream = batches()
    reports = [extragradient.Scheme().step(gan, stream) for _ in range(40)]
    assert gan.d.gate.state["accuracy/turns"] == 40
    assert 0 < reports[-1].read()["d/skipped"] < 1


def test_gate_without_logits_is_refused():
    gate = AccuracyGate(0.75, torch.device("cpu"))
    with pytest.raises(pg.ConfigError, match=r"d.max_accuracy needs the observations 'real' and 'fake'"):
        gate.allows(pg.LossTerms({}), pg.Rows(0, 0, 4, 4), lambda values: values)


def test_what_has_no_state_or_no_pauses_refuses_them():
    with pytest.raises(pg.ConfigError, match=r"grid does not support d.max_accuracy.*leave max_accuracy out"):
        refuse_state(game(max_accuracy=0.5), "grid")
    for scheme in (extragradient.Scheme(), asynchronous.Scheme()):
        with pytest.raises(
            pg.ConfigError, match=r"does not support d.update_probability: every step has an update of D"
        ):
            scheme.refuse(game(update_probability=0.5), tensors={})


@pytest.mark.parametrize("setting", ["update_probability", "max_accuracy"])
def test_g_has_no_pauses(setting, tmp_path):
    config = read_recipe("digits", [*TINY, *SMALL, f"g.{setting}=0.5"])
    with pytest.raises(
        pg.ConfigError, match=f"g.{setting} is not supported: every step has an update of G; set d.{setting}"
    ):
        build.trainer(config, tmp_path, print, stop=lambda: False)


def test_run_by_coin_and_need_resumes_bit_for_bit(tmp_path):
    words = [*TINY, *SMALL, "augment=ada", "d.update_probability=0.6", "d.max_accuracy=0.55", "train.kimg=0.16"]

    def run(folder, steps):
        trainer = build.trainer(read_recipe("digits", words), folder, print, stop=lambda: False)
        trainer.resume()
        events = list(trainer.run(steps))
        trainer.save()
        return trainer, events

    whole, events = run(tmp_path / "whole", 10)
    run(tmp_path / "parts", 4)
    parts, _ = run(tmp_path / "parts", 6)
    for side in ("g", "d"):
        first, second = (state_of(trainer.players[side]) for trainer in (whole, parts))
        assert first[1] == second[1]
        assert all(torch.equal(value, second[0].tensors[name]) for name, value in first[0].tensors.items())
    assert state_of(whole.players["d"])[0].tensors["state/accuracy/turns"] == whole.players["d"].version
    assert 0 < whole.players["d"].version < 10
    assert not any("not finite" in event.values.get("text", "") for event in events)


def ring(seed, step):
    rows = pg.Rows(step, 0, 64, 64)
    angle = rng.integers(seed, "mode", rows, 8) * (math.pi / 4)
    return rows, torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * rng.normal(seed, "noise", rows, (2,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_too_strong_d_is_skipped_and_the_ring_keeps_its_modes(seed):
    """Eight Gaussians; D's learning rate is eight times that of G.

    A mode is kept with at least a fifth of its share of the good points, as in
    `benchmarks/asynchronous_ring.py`.
    """

    def wide(inputs, outputs, *last):
        hidden = (nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2))
        return nn.Sequential(*hidden, nn.Linear(64, outputs), *last)

    torch.manual_seed(seed)
    policy = pg.Policy(lr=1e-3, arguments={"betas": (0.0, 0.99)})
    g = pg.Player(pg.Side.G, wide(8, 2), policy=policy)
    strong = replace(policy, lr=8e-3, max_accuracy=0.62)
    d = pg.Player(pg.Side.D, wide(2, 1, nn.Flatten(0)), policy=strong)
    loss = pg.nonsaturating_loss(pg.NonsaturatingOptions())
    penalties = (r1.Penalty(r1.Options(weight=0.1)),)
    gan = pg.GAN(g, d, loss, pg.Prior(seed, latent=8, arguments=("point",)), d_penalties=penalties)
    for step in range(2500):
        rows, point = ring(seed, step)
        report = synchronous.step(gan, iter([pg.Batch(rows, {"point": point})]))
    assert 0.3 <= report.read()["d/skipped"] <= 0.7
    z, _ = gan.prior.draw("test", pg.Rows(0, 0, 2000, 2000))
    with torch.no_grad():
        samples = g.net(z)
    angles = torch.arange(8) * (math.pi / 4)
    modes = torch.stack([angles.cos(), angles.sin()], 1)
    distance_NM = torch.cdist(samples, modes)
    near = distance_NM.argmin(1)[distance_NM.amin(1) < 0.25]
    assert len(near) > 1000
    assert near.bincount(minlength=8).min() >= len(near) / 8 / 5
