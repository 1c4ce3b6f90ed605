"""Terms with an interval while G trains without the adversarial loss: the plain loop in float64."""

import copy

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.layout import StoredTensors
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous

BATCH, TURNS, START = 4, 14, 9  # START: the turn at which the adversarial loss begins
INTERVALS = {"l1": 3, "square": 2}


def networks():
    torch.manual_seed(0)
    g = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    return g, nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def l1(outputs, inputs):
    return (outputs.images - inputs.real_sample).abs()


def square(outputs, inputs):
    return outputs.images.square()


FUNCTIONS = {"l1": l1, "square": square}


def prior():
    return pg.Prior(seed=1, latent=3, dtype=torch.float64, discriminator_arguments=("point",))


def game(per_step=1, **more):
    g, d = networks()
    g, d = [
        pg.Player(side=pg.Side.G, net=g, policy=pg.Policy(kind=torch.optim.Adam, lr=0.01)),
        pg.Player(side=pg.Side.D, net=d, policy=pg.Policy(kind=torch.optim.Adam, lr=0.01, updates_per_step=per_step)),
    ]
    terms = tuple(pg.Term(name=name, function=FUNCTIONS[name], interval=n) for name, n in INTERVALS.items())
    when = pg.AdversarialOptions(start_kimg=START * per_step * BATCH / 1000)
    given = {"g_penalties": terms, "adversarial": when, **more}
    return pg.GAN(g=g, d=d, loss=pg.hinge_loss, prior=prior(), **given)


def batch(step):
    draws = torch.Generator().manual_seed(step)
    return pg.Batch(
        pg.Rows(step=step, first=0, count=BATCH, total=BATCH),
        {"point": torch.randn(BATCH, 2, generator=draws).double()},
    )


def train(gan, turns, per_step=1):
    for turn in turns:
        synchronous.step(gan, map(batch, range(turn * per_step, (turn + 1) * per_step)))


def plain(per_step=1):
    g, d = networks()
    optimizers = {net: torch.optim.Adam(net.parameters(), 0.01) for net in (g, d)}
    for turn in range(TURNS):
        for step in range(turn * per_step, (turn + 1) * per_step):
            real = batch(step)
            fake = g(prior().draw("d", real.rows)[0]).detach()
            loss = (1 - d(real.tensors["point"])).relu().mean() + (1 + d(fake)).relu().mean()
            update(optimizers[d], loss)
        made = g(prior().draw("g", real.rows)[0])
        losses = []
        if turn % 3 == 0:
            losses.append(3 * (made - real.tensors["point"]).abs().mean())
        if turn % 2 == 0:
            losses.append(2 * made.square().mean())
        if turn >= START:
            losses.append(-d(made).mean())
        if losses:
            update(optimizers[g], sum(losses))
    return g, d


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def difference(gan, nets):
    pairs = zip((gan.g.net, gan.d.net), nets, strict=True)
    return max(
        float((value - other.state_dict()[name]).abs().max())
        for net, other in pairs
        for name, value in net.state_dict().items()
    )


@pytest.mark.parametrize("per_step", [1, 2, 3])
def test_intervals_count_turns_of_g_before_the_adversarial_loss_begins(per_step):
    gan = game(per_step)
    train(gan, range(TURNS), per_step)
    assert difference(gan, plain(per_step)) <= 1e-12
    assert gan.g.version == TURNS
    assert int(gan.g.updates) == TURNS - 3  # turns 1, 5 and 7 have no term


def test_resumed_intervals_are_where_they_were():
    """Saved after turn 7, in which no term is due."""
    first = game()
    train(first, range(8))
    second = game()
    for player, other in ((second.g, first.g), (second.d, first.d)):
        pieces, counters = state_of(other)
        restore(player, StoredTensors.of({k: v.clone() for k, v in pieces.tensors.items()}), counters)
    second.clock = copy.copy(first.clock)
    train(second, range(8, TURNS))
    train(first, range(8, TURNS))
    assert difference(second, (first.g.net, first.d.net)) == 0
    assert second.g.version == TURNS


def test_a_schedule_at_0_does_not_count_turns():
    off = pg.WeightSchedule(start=0.0, final=1.0, from_kimg=5 * BATCH / 1000, shape="step")
    gan = game(g_penalties=(pg.Term(name="l1", function=l1, weight=off, interval=2),))
    train(gan, range(5))
    assert gan.g.version == 0
    train(gan, range(5, 8))
    assert (gan.g.version, int(gan.g.updates)) == (3, 2)


def test_gradient_balancer_gives_a_lazy_term_its_share_on_average():
    """Over four updates, of which one has the term: the mean gradient at the output, per sample."""
    pulls = {}
    for interval in (1, 4):
        balancer = pg.GradientBalancer(pg.GradientBalancerOptions({"adversarial": 1.0, "l1": 3.0}, decay=0.9))
        gan = game(g_penalties=(pg.Term(name="l1", function=l1, interval=interval),), balancer=balancer)
        gan.adversarial = pg.AdversarialOptions()
        for player in (gan.g, gan.d):
            player.set_lr_base(1e-9)
        pulls[interval] = recorded_pulls(gan, 200)
    for name in ("adversarial", "l1"):
        assert pulls[4][name] == pytest.approx(pulls[1][name], rel=0.05)
    assert pulls[1]["l1"] == pytest.approx(0.75, rel=0.05)


def recorded_pulls(gan, steps):
    """The mean over steps of each term's norm of the gradient at the output, times its factor."""
    sums = dict.fromkeys(("adversarial", "l1"), 0.0)
    factors = gan.balancer.factors

    def recorded(gradients):
        found = factors(gradients)
        for name, factor in found.items():
            sums[name] += float(gradients.mean_norm(name) * factor) / steps
        return found

    gan.balancer.factors = recorded
    train(gan, range(steps))
    return sums


def adaptive(**how):
    balancer = pg.AdaptiveWeightBalancer(pg.AdaptiveWeightOptions())
    gan = game(g_penalties=(pg.Term(name="l1", function=l1, **how),), balancer=balancer)
    gan.adversarial = pg.AdversarialOptions()
    return gan


def test_adaptive_weight_of_a_lazy_term_is_the_papers_formula():
    """The gradient of a term that is not in an update is 0, and so is the weight."""
    gan = adaptive(interval=3)
    g, d = networks()
    optimizers = {net: torch.optim.Adam(net.parameters(), 0.01) for net in (g, d)}
    for step in range(8):
        report = synchronous.step(gan, iter([batch(step)])).read()
        real = batch(step)
        x = real.tensors["point"]
        fake = g(prior().draw("d", real.rows)[0]).detach()
        update(optimizers[d], (1 - d(x)).relu().mean() + (1 + d(fake)).relu().mean())
        made = g(prior().draw("g", real.rows)[0])
        rec = 3 * (made - x).abs().mean() if step % 3 == 0 else 0 * made.sum()
        adversarial = -d(made).mean()
        norms = [torch.autograd.grad(loss, made, retain_graph=True)[0].norm() for loss in (rec, adversarial)]
        weight = (norms[0] / (norms[1] + 1e-4)).detach()
        update(optimizers[g], rec + weight * adversarial)
        assert report["g/balancer/adversarial"] == pytest.approx(float(weight), rel=1e-5)
    assert difference(gan, (g, d)) <= 1e-12


def test_adaptive_weight_waits_for_a_term_whose_schedule_is_at_0():
    gan = adaptive(weight=pg.WeightSchedule(start=0.0, final=1.0, from_kimg=3 * BATCH / 1000, shape="step"))
    weights = [synchronous.step(gan, iter([batch(step)])).read()["g/balancer/adversarial"] for step in range(5)]
    assert weights[:3] == [0, 0, 0] and min(weights[3:]) > 0


def test_adaptive_weight_refuses_terms_that_all_end_at_0():
    with pytest.raises(pg.ConfigError, match="the weight of l1 ends at 0, and with it that of the adversarial loss"):
        adaptive(weight=pg.WeightSchedule(start=1.0, final=0.0, from_kimg=0.016, shape="step"))
