"""The control law of the loading pipeline, on simulated time with models of storage."""

import math
import random
from itertools import pairwise

import pytest

from paragan.loading.control_law import RESERVE_S, SHRINK_BELOW, ControlLaw, Sizes
from tests.pipeline_model import PipelineModel, burst, lognormal

LEAST = Sizes(5, 4, 2)
MIB = 1 << 20
MAX_READERS = 64
GROW_S = 1.0  # after the need has doubled the threads
SHRINK_S = 8.0  # after the end of a burst of 10 times the latency


def law(least=LEAST, max_decoders=2, memory=1 << 30):
    return ControlLaw(least, max_readers=MAX_READERS, max_decoders=max_decoders, memory_bytes=memory)


def simulate(latency, step_s, end_s, seed=0, **settings):
    return PipelineModel(latency, step_s, LEAST, seed, **settings).control(law(), end_s)


def readers(model):
    return [(time_s, decision.sizes.readers) for time_s, decision in model.trace]


def changes(model):
    """Times at which the number of readers changed, with the direction."""
    sizes = [(0.0, LEAST.readers), *readers(model)]
    return [(after[0], after[1] > before[1]) for before, after in pairwise(sizes) if after[1] != before[1]]


def reversals(model):
    directions = [is_up for _, is_up in changes(model)]
    return sum(one != other for one, other in pairwise(directions))


@pytest.mark.parametrize(("median_s", "step_s"), [(0.02, 0.05), (0.02, 0.025), (0.1, 0.04), (0.1, 0.1)])
@pytest.mark.parametrize("seed", range(3))
def test_law_burst_grows_and_returns_within_the_stated_windows(median_s, step_s, seed):
    model = simulate(lognormal(median_s, factor=burst), step_s, 55, seed)
    need = 1.13 * median_s / step_s  # the mean is 1.13 medians
    returned = LEAST.readers if need <= 0.5 * LEAST.readers else math.ceil(1.3 * need / SHRINK_BELOW)
    for start in (15, 35):
        grown = [time_s for time_s, size in readers(model) if start < time_s < start + 5 and size > returned]
        assert grown[0] - start <= (GROW_S if 10 * need > 2 * LEAST.readers else 3 * GROW_S)
        after = [size for time_s, size in readers(model) if start + 5 + SHRINK_S <= time_s < start + 20]
        assert max(after) <= returned


def check_steady(seeds, spreads):
    """Any steady storage: at most one correction of a change, within 15 s; fixed afterwards up to one step."""
    for seed in seeds:
        draw = random.Random(seed)
        median_s = draw.choice([0.02, 0.05, 0.1])
        step_s = median_s / (4 * draw.uniform(0.05, 3))
        model = simulate(lognormal(median_s, draw.choice(spreads)), step_s, 40, seed)
        assert reversals(model) <= 1, (seed, changes(model))
        assert sum(time_s > 15 for time_s, _ in changes(model)) <= 1, (seed, changes(model))


def test_law_steady_storage_does_not_oscillate():
    check_steady(range(12), (0.2, 0.3, 0.5))


@pytest.mark.parametrize("step_s", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("reads", [1, 8])
def test_law_reserve_hides_the_time_until_more_threads_have_read(step_s, reads):
    model = simulate(lognormal(0.05, factor=burst), step_s, 60, reads=reads)
    assert model.taken * step_s >= 0.98 * 60


def test_law_reserve_follows_the_demand():
    model = PipelineModel(lognormal(0.01, 0.2), 0.05, LEAST)
    controlling = law()
    model.control(controlling, 20)
    model.step_s = 0.5
    model.control(controlling, 40)
    depths = [decision.sizes.depth for _, decision in model.trace]
    assert max(depths[:80]) >= RESERVE_S / 0.05 and max(depths[-20:]) <= 2 * max(LEAST.depth, RESERVE_S / 0.5)
    assert sum(one != other for one, other in pairwise(depths[20:])) <= 4


def test_law_step_change_is_followed_once():
    model = simulate(lognormal(0.02, factor=lambda time_s: 1 if time_s < 20 else 6), 0.02, 60)
    times = [time_s for time_s, _ in changes(model)]
    assert 20 < times[0] <= 20 + GROW_S
    assert not reversals(model)
    assert model.trace[-1][1].wait <= 0.05


def test_law_saturated_storage_grows_to_the_limit_and_stays():
    model = simulate(lambda time_s, draw, num: max(0.02, num / 40) * draw.uniform(0.9, 1.1), 0.02, 60)
    assert readers(model)[-1][1] == MAX_READERS
    assert max(time_s for time_s, _ in changes(model)) < 30 and not reversals(model)


@pytest.mark.parametrize("cap", [1, 3, 12, 40])
def test_law_memory_cap_is_never_exceeded(cap):
    model = PipelineModel(lognormal(0.1, factor=burst), 0.02, Sizes(1, 1, 1))
    model.control(law(Sizes(1, 1, 1), memory=cap * MIB), 45)
    assert model.peak_bytes <= cap * MIB
    assert {decision.sizes.readers for _, decision in model.trace} <= set(range(cap + 1))


def test_law_slow_decoders_grow_to_their_limit_only():
    model = PipelineModel(lognormal(0.005), 0.01, Sizes(5, 4, 1), decode_s=0.03)
    model.control(law(Sizes(5, 4, 1), max_decoders=4), 9)
    assert model.sizes.decoders == 4


@pytest.mark.parametrize(("slow_s", "share", "step_s"), [(0.3, 0.05, 0.02), (2.0, 0.01, 0.02), (1.0, 0.02, 0.1)])
def test_law_reserve_hides_single_slow_reads_without_more_readers(slow_s, share, step_s):
    model = simulate(lambda time_s, draw, num: slow_s if draw.random() < share else 0.005, step_s, 60)
    assert model.taken * step_s >= 0.97 * 60
    assert model.trace[-1][1].sizes.readers <= 2 * LEAST.readers
