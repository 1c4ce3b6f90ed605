"""Learning-rate schedules: the factors of torch's `lr_scheduler` for 1,000 updates, also after a resume."""

import math

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import paragan as pg
from paragan.config import read_recipe
from paragan.game import schedule
from paragan.game.options import ScheduleOptions
from tests.laws.test_no_sync import HostReads


def _inverse_sqrt(optimizer):
    return lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 30, math.sqrt(30 / (n + 1))))


CASES = {
    "exponential": (
        ScheduleOptions(name="exponential", gamma=0.997),
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.997),
    ),
    "multistep": (
        ScheduleOptions(name="multistep", gamma=0.3, milestones=(10, 100, 700)),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [10, 100, 700], 0.3),
    ),
    "inverse_sqrt": (ScheduleOptions(name="inverse_sqrt", start=30, warmup=30), _inverse_sqrt),
    "restarts": (
        ScheduleOptions(name="restarts", period=50, final=0.1),
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 50, eta_min=0.1),
    ),
    "longer_restarts": (
        ScheduleOptions(name="restarts", period=7, growth=3),
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 7, 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rates_are_those_of_torch_also_resumed(name):
    options, make = CASES[name]
    stepped = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    oracle = make(stepped)
    policy = pg.Policy(kind=torch.optim.SGD, lr=1.0, schedule=options)
    d = pg.Player(side=pg.Side.D, net=nn.Linear(1, 1).double(), policy=policy)
    for update in range(1000):
        if update == 400:  # resumed
            saved = d.updates.clone()
            d = pg.Player(side=pg.Side.D, net=nn.Linear(1, 1).double(), policy=policy)
            d.updates.copy_(saved)
        rate = stepped.param_groups[0]["lr"]
        assert float(schedule.factor(options, d.updates)) == pytest.approx(rate, rel=1e-12, abs=1e-15)
        d.updates += 1
        stepped.step()
        oracle.step()


ENDS = {
    "linear": (
        ScheduleOptions(name="linear", end=50, final=0.2),
        lambda optimizer: lr_scheduler.LinearLR(optimizer, 1.0, 0.2, 50),
    ),
    "cosine": (
        ScheduleOptions(name="cosine", end=50, final=0.2),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 50, 0.2),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_rates_up_to_the_end_are_those_of_torch(name):
    options, make = ENDS[name]
    stepped = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    oracle = make(stepped)
    for update in range(51):
        assert float(schedule.factor(options, torch.tensor(update))) == pytest.approx(
            oracle.get_last_lr()[0], rel=1e-12
        )
        stepped.step()
        oracle.step()
    assert float(schedule.factor(options, torch.tensor(1000))) == pytest.approx(0.2)


@pytest.mark.parametrize("growth", range(1, 11))
def test_every_restart_is_at_its_update(growth):
    """Also the last ones of a long run: a cosine that begins one update early or late is a rate of 0 instead of 1."""
    for period in range(1, 51):
        options = ScheduleOptions(name="restarts", period=period, growth=growth)
        starts, length = [0], period
        while starts[-1] < 7**8 * 1000 and len(starts) < 40:
            starts.append(starts[-1] + length)
            length *= growth
        first = torch.tensor(starts)
        lengths = first.diff().double()
        assert (schedule.factor(options, first) == 1).all()
        last = (1 + torch.cos(math.pi * (lengths - 1) / lengths)) / 2
        torch.testing.assert_close(schedule.factor(options, first[1:] - 1), last, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_factor_reads_nothing_back(name):
    with HostReads() as reads:
        schedule.factor(CASES[name][0], torch.tensor(123))
    assert not reads.seen


def test_lowest_factor_is_final():
    options = ScheduleOptions(name="exponential", gamma=0.1, final=0.05)
    assert [float(schedule.factor(options, torch.tensor(n))) for n in range(3)] == pytest.approx([1, 0.1, 0.05])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("name: exponential", "gamma is required for schedule exponential; set it, or use cosine"),
        ("name: multistep, gamma: 0.1", "milestones is required for schedule multistep"),
        ("name: inverse_sqrt", "start is required for schedule inverse_sqrt"),
        ("name: restarts", "period is required for schedule restarts"),
        ("name: multistep, gamma: 0.1, milestones: [5, 3]", "milestones must rise, not [5, 3]; sort them"),
    ],
)
def test_incomplete_schedule_is_refused(settings, message):
    with pytest.raises(pg.ConfigError) as caught:
        read_recipe("digits", [f"g.schedule={{{settings}}}"])
    assert message in str(caught.value) and len(str(caught.value).splitlines()) == 1
