"""`benchmarks.cellular_upstream`: it trains, works as often as the description says, and accounts for all its time."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import (
    cellular_upstream as upstream,
    cellular_upstream_cell as cells,
    cellular_upstream_images as images,
    cellular_upstream_individual as individuals,
    cellular_upstream_score as score,
    cellular_upstream_timer as timer,
)
from paragan.core.metric import SampleFeatures
from paragan.metrics import fd

SIDE, BATCHES, BATCH, FITNESS, SCORED = 8, 5, 10, 25, 20
TINY = cells.Config(batches=BATCHES, batch=BATCH, latent=4, hidden=8, num_fitness=FITNESS, num_scored=SCORED)
PIXELS = torch.randint(0, 256, (100, 1, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
CLASSIFIER = nn.Linear(SIDE * SIDE, 10)


def extractor(x_BCHW):
    assert x_BCHW.shape[1:] == (1, SIDE, SIDE)
    return x_BCHW, CLASSIFIER(x_BCHW.flatten(1))


def grid(clock=time.process_time, **changes):
    return upstream.Upstream(replace(TINY, **changes), PIXELS, extractor, clock)


def genome(one):
    return nn.utils.parameters_to_vector(one.net.parameters()).detach().clone()


def trained(side=individuals.generator, updates=2, **changes):
    """One that has an optimiser's state."""
    sizes = (4, 8, SIDE**2) if side is individuals.generator else (SIDE**2, 8)
    one = individuals.Individual(side(*sizes), 2e-4, "bce", 3, **changes)
    inputs = torch.randn(BATCH, sizes[0])
    for _ in range(updates):
        individuals.update(one, lambda: one.net(inputs).square().mean())
    return one


@pytest.fixture
def counts(monkeypatch):
    """How often each part is called."""
    found: Counter[str] = Counter()

    def count(owner, name, label):
        real = getattr(owner, name)

        def counted(*args, **settings):
            found[label] += 1
            return real(*args, **settings)

        monkeypatch.setattr(owner, name, counted)

    count(nn.Tanh, "forward", "G")
    count(nn.Sigmoid, "forward", "D")
    count(torch.optim.Adam, "__init__", "Adam")
    count(torch.optim.Adam, "step", "steps")
    count(images.Image, "fromarray", "pictures")
    count(score, "frechet", "scores")
    count(cells, "encode", "encoded")
    count(cells, "decode", "decoded")
    count(cells, "g_loss", "g_loss")
    count(cells, "d_loss", "d_loss")
    count(torch, "dist", "distances")
    return found


def test_it_trains():
    """A centre may outlive its offspring, but not four times."""
    run = grid(rows=1, lr=1e-2)
    before = [genome(one) for cell in run.cells for one in (cell.g, cell.d)]
    for _ in range(4):
        run.iterate()
    for cell in run.cells:
        assert np.isfinite([cell.g.fitness, cell.d.fitness, cell.distance]).all()
        assert cell.weights.sum() == pytest.approx(1)
        assert cell.g.lr != 1e-2
    after = [genome(one) for cell in run.cells for one in (cell.g, cell.d)]
    assert not any(a.equal(b) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize(("rows", "columns", "reach"), [(1, 1, 1), (2, 2, 3), (3, 3, 5)])
def test_an_iteration_works_as_often_as_described(counts, rows, columns, reach):
    """Per cell and side: reach² evaluations and reach more after training; a step of G per batch, of D on even ones."""
    run = grid(rows=rows, columns=columns)
    counts.clear()
    run.iterate()
    assert not any(number % len(run.cells) for number in counts.values())
    evaluations, d_steps, scores = reach**2 + reach, 3, 2 if reach > 1 else 1
    per_cell = {
        "g_loss": evaluations + BATCHES,
        "d_loss": evaluations + d_steps,
        "G": 2 * evaluations + BATCHES + d_steps + scores * SCORED,  # samples of the mixture one by one
        "D": 3 * evaluations + BATCHES + 2 * d_steps,  # real and fake apart, real again for each opponent
        "Adam": BATCHES + d_steps,
        "steps": BATCHES + d_steps,
        "pictures": 3 * BATCH + BATCHES * BATCH + scores * SCORED,  # whole batches for fitness; for each score anew
        "scores": scores,
        "encoded": 2 * (reach - 1),
        "decoded": 2 * (reach - 1),
        "distances": reach * (reach - 1),  # of each pair, per side
    }
    assert {name: number // len(run.cells) for name, number in counts.items()} == {
        name: number for name, number in per_cell.items() if number
    }


def test_d_steps_on_even_batches_only_and_g_before_it(monkeypatch):
    order, real = [], individuals.update
    monkeypatch.setattr(cells, "update", lambda one, loss: (order.append(type(one.net[-1])), real(one, loss)))
    grid(rows=1, columns=1).iterate()
    g, d = nn.Tanh, nn.Sigmoid
    assert order == [g, d, g, g, d, g, g, d]


def test_gradients_are_prepared_for_fitness_and_go_through_g_in_ds_step(monkeypatch):
    prepared = []
    for name in ("g_loss", "d_loss"):
        real = getattr(cells, name)

        def watched(*args, real=real):
            loss = real(*args)
            prepared.append(loss.requires_grad)
            return loss

        monkeypatch.setattr(cells, name, watched)
    run = grid()
    run.iterate()
    assert prepared
    assert all(prepared)
    assert all(p.requires_grad for cell in run.cells for one in (cell.g, cell.d) for p in one.net.parameters())
    g, d = individuals.generator(4, 8, SIDE**2), trained(individuals.discriminator)
    individuals.d_loss(d, d.net, g, torch.rand(BATCH, SIDE**2), torch.randn(BATCH, 4)).backward()
    assert all(p.grad is not None for p in g.parameters())


def test_a_worse_offspring_does_not_replace_the_centre(monkeypatch):
    def spoil(one, loss):
        nn.init.constant_(one.net[-2].bias, torch.nan)

    monkeypatch.setattr(score, "frechet", lambda *_: 0.0)
    monkeypatch.setattr(cells, "update", spoil)
    monkeypatch.setattr(nn.BCELoss, "forward", lambda _, x, y: x.sum())  # the real one refuses what is not a number
    run = grid()
    before = [genome(one) for cell in run.cells for one in (cell.g, cell.d)]
    run.iterate()
    assert all(
        genome(one).equal(old) for one, old in zip((o for c in run.cells for o in (c.g, c.d)), before, strict=True)
    )


def test_the_fitter_is_cloned_whole():
    cell = grid(tournament=3).cells[0]
    population = [trained(fitness=fitness) for fitness in (2.0, 1.0, 3.0)]
    clone = cell._selected(population)
    assert genome(clone).equal(genome(population[1]))
    assert clone.net is not population[1].net
    assert str(clone.optimizer) == str(population[1].optimizer)
    assert (clone.source, clone.iteration) == (0, 1)


def test_a_mutated_rate_has_no_effect_after_the_first_step():
    one = trained()
    one.lr = 9e-4
    individuals.update(one, lambda: one.net(torch.randn(BATCH, 4)).square().mean())
    assert one.optimizer["param_groups"][0]["lr"] == 2e-4
    assert one.optimizer["state"][0]["step"] == 3


@pytest.mark.parametrize("updates", [0, 2])
@pytest.mark.parametrize("side", [individuals.generator, individuals.discriminator])
def test_the_codec_is_exact(side, updates):
    one = trained(side, updates, iteration=7)
    text = individuals.encode(one)
    assert json.loads(text).keys() == {"lr", "loss", "source", "iteration", "tensors"}
    other = individuals.decode(
        text, lambda: side(*((4, 8, SIDE**2) if side is individuals.generator else (SIDE**2, 8)))
    )
    assert (other.lr, other.loss, other.source, other.iteration) == (one.lr, one.loss, one.source, one.iteration)
    inputs = torch.randn(BATCH, 4 if side is individuals.generator else SIDE**2)
    for each in (one, other):  # equal weights and equal moments: equal next steps
        individuals.update(each, lambda each=each: each.net(inputs).square().mean())
    assert genome(one).equal(genome(other))


def test_without_the_codec_neighbours_are_copied(counts):
    run = grid(codec=False)
    seconds = run.iterate()
    assert counts["encoded"] == counts["decoded"] == seconds[timer.SERVE] == 0
    assert seconds[timer.GATHER] > 0


def test_routines_add_up_to_the_total():
    ticks = itertools.count()  # a clock that tells how often it was read
    run = grid(lambda: next(ticks))
    first = next(ticks) + 1
    seconds = run.iterate()
    assert seconds.keys() == set(timer.ROUTINES)
    assert sum(seconds.values()) == next(ticks) - first - 1
    assert min(seconds.values()) > 0
    assert run.iterate() == seconds  # of this iteration alone


def test_an_inner_routine_interrupts_the_outer_one():
    times = iter([0.0, 1.0, 3.0, 7.0])
    ledger = timer.Ledger(lambda: next(times))
    with ledger.routine(timer.OTHER), ledger.routine(timer.MUTATE):
        pass
    assert (ledger.seconds[timer.OTHER], ledger.seconds[timer.MUTATE]) == (5.0, 2.0)


def test_it_repeats_itself_and_leaves_the_global_random_state_alone():
    state = torch.get_rng_state()
    a, b = grid(rows=1), grid(rows=1)
    for _ in range(2):
        a.iterate(), b.iterate()
    assert torch.get_rng_state().equal(state)
    assert all(
        genome(x.g).equal(genome(y.g)) and x.distance == y.distance for x, y in zip(a.cells, b.cells, strict=True)
    )


def test_mustangs_is_one_fixed_loss_per_cell():
    """Bce 2 to 1: within 3 standard deviations of 200 draws."""
    run = grid(rows=10, columns=20, loss="mustangs")
    chosen = Counter(cell.g.loss for cell in run.cells)
    assert chosen.keys() == {"bce", "mse"}
    assert abs(chosen["bce"] / 200 - 2 / 3) < 3 * (2 / 9 / 200) ** 0.5
    assert all(cell.g.loss == cell.d.loss for cell in run.cells)


def test_losses_are_the_described_ones():
    g, d = individuals.generator(4, 8, SIDE**2), trained(individuals.discriminator)
    real, z = torch.rand(BATCH, SIDE**2), torch.randn(BATCH, 4)
    on_real, on_fake = d.net(real), d.net(g(z))
    assert individuals.g_loss(d, g, d.net, z).item() == pytest.approx(-on_fake.log().mean().item(), rel=1e-5)
    bce = -on_real.log().mean() - (1 - on_fake).log().mean()
    assert individuals.d_loss(d, d.net, g, real, z).item() == pytest.approx(bce.item(), rel=1e-5)
    d.loss = "mse"
    mse = (on_real - 1).square().mean() + on_fake.square().mean()
    assert individuals.d_loss(d, d.net, g, real, z).item() == pytest.approx(mse.item(), rel=1e-5)


def test_images_are_what_was_given():
    batch = next(iter(images.loader(images.Images(PIXELS), 100, 0)))
    assert batch.shape == PIXELS.shape
    expected = PIXELS.float() / 127.5 - 1
    assert not torch.allclose(batch, expected)  # in another order
    assert torch.allclose(batch.sum((1, 2, 3)).sort().values, expected.sum((1, 2, 3)).sort().values, atol=1e-3)
    assert torch.allclose(images.Images(PIXELS)[7], expected[7])


def test_the_distance_is_the_librarys():
    a, b = (torch.randn(50, 10, dtype=torch.float64) * scale for scale in (1, 2))
    judged = (SampleFeatures(features, features, None) for features in (a, b))
    metric = fd.Metric.from_reference(next(judged)).update(next(judged))
    assert score.frechet(a, b) == pytest.approx(metric.compute(), rel=1e-9)


def test_a_mixture_draws_by_its_weights():
    nets = [lambda z, value=value: torch.full((len(z), 1), value) for value in (0.0, 1.0, 2.0)]
    drawn = score.sampled(nets, np.array([0.7, 0.0, 0.3]), 2000, 4, np.random.default_rng(0)).squeeze(1)
    assert len(drawn) == 2000
    assert (drawn == 1).sum() == 0
    assert (drawn == 0).float().mean().item() == pytest.approx(0.7, abs=3 * (0.21 / 2000) ** 0.5)
    moved = score.mutated(np.array([1.0, 0.0, 0.0]), 0.5, np.random.default_rng(0))
    assert moved.sum() == pytest.approx(1)
    assert moved.min() >= 0


def test_command_prints_every_routine(data_root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", str(data_root / "mnist"), "--grid", "1x1", "--batches", "1"])
    upstream.main()
    line = capsys.readouterr().out.splitlines()[-1]
    assert all(name in line for name in timer.ROUTINES)
