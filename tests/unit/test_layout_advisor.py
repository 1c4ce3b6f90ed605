"""Decisions of the layout advisor, from times that are made up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.game.options import LayoutOptions
from paragan.runs import layout_search, layout_trial
from paragan.runs.layout_search import LayoutCandidate, LayoutSearch
from paragan.scaling.layout_advisor import GAMES, PAIRS, GroupTimes, LayerTimes, NetworkTimes, padding_waste, step_gain
from paragan.scaling.operator_record import Operator
from paragan.scaling.operator_times import AS_WRITTEN, Variant, variants

PADDED, TAPS = Variant((48, 48)), Variant(taps=True)


def conv(inputs=37, outputs=37, **settings):
    shape = (outputs, inputs, 3, 3)
    known = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1, **settings}
    return Operator("conv2d", (2, inputs, 8, 8), shape, True, tuple(sorted(known.items())), True, True)


def times(layer="a", operator=None, **seconds):
    known = {"written": AS_WRITTEN, "padded": PADDED, "taps": TAPS}
    return LayerTimes(layer, operator or conv(), 1, {known[name]: value for name, value in seconds.items()})


class Steps:
    """Steps that take these seconds in turn."""

    def __init__(self, *seconds):
        self.seconds, self.number = seconds, 0

    def __call__(self):
        self.number += 1
        return self.seconds[(self.number - 1) % len(self.seconds)]


def gain(plain, *others):
    """The gain over games whose other steps take these seconds."""
    made = iter(others)
    return step_gain(lambda: (plain, Steps(*next(made))))


def test_step_gain_of_faster_steps_is_the_median_of_games():
    assert gain(Steps(1.0), [0.9], [0.6], [0.8]) == pytest.approx(0.2)


def test_step_gain_allows_one_pair_in_favour_of_the_plain_step():
    assert gain(Steps(1.0), [0.9], [0.9, 1.1, 0.9, 0.9], [0.9]) == pytest.approx(0.1)
    plain = Steps(1.0)
    assert gain(plain, [0.9, 1.1, 0.9, 0.9], [0.5, 1.1, 0.5, 0.5], [0.5]) is None
    assert plain.number == PAIRS + 2  # it ends at once


@pytest.mark.parametrize("seconds", [1.0, 0.99, 1.02])
def test_step_gain_within_the_noise_is_none(seconds):
    assert gain(Steps(1.0), *[[seconds]] * GAMES) is None


def test_step_gain_of_one_game_alone_is_none():
    """Where its tensors are may make one game faster."""
    assert gain(Steps(1.0), [0.9], [0.9], [0.99]) is None


def test_layer_as_fast_as_written_stays_as_written():
    assert times(written=1.0, padded=0.96).chosen is AS_WRITTEN
    assert times(written=1.0, padded=0.9, taps=0.8).chosen is TAPS


def test_network_layout_names_faster_layers_and_siblings_once():
    layers = (
        times("a", written=1.0, padded=0.5),
        times("b", written=2.0, padded=1.5),
        times("c", written=1.0, padded=0.5),
        times("d", written=1.0, taps=0.9),
    )
    fast = NetworkTimes(True, layers, (GroupTimes(("a", "b"), 3.3, 1.1),))
    assert fast.layout == LayoutOptions({"c": (48, 48)}, ("d",), (("a", "b"),))
    assert fast.written_s == 5.0 and fast.laid_out_s == pytest.approx(1.0 + 0.5 + 0.9)
    slow = replace(fast, groups=(GroupTimes(("a", "b"), 1.0, 0.96),))
    assert slow.layout == LayoutOptions({"a": (48, 48), "b": (48, 48), "c": (48, 48)}, ("d",), ())
    assert NetworkTimes(True, (times(written=1.0, padded=1.0),)).layout is None


def test_padding_waste_counts_what_fills_tiles():
    assert padding_waste((32, 16), 16) == 0
    assert padding_waste((37, 37), 16) == pytest.approx(1 - 37 * 37 / 48**2)
    image = times(operator=conv(64, 3), written=1.0, taps=0.5)
    assert NetworkTimes(True, (image,)).waste_of(image, 16) == pytest.approx(1 - 27 / 32)
    padded = times(written=1.0, padded=0.5)
    assert NetworkTimes(True, (padded,)).waste_of(padded, 16) == pytest.approx(padding_waste((37, 37), 16))
    pair = (times("a", conv(64, 8), written=1.0), times("b", conv(64, 8), written=1.0))
    assert NetworkTimes(True, pair, (GroupTimes(("a", "b"), 2.0, 1.0),)).waste_of(pair[0], 16) == 0


def test_variants_of_an_operator_fit_its_shapes():
    assert variants(conv(32, 32), (16,)) == (AS_WRITTEN,)
    assert set(variants(conv(), (16,))) == {AS_WRITTEN, PADDED, Variant((48, 37)), Variant((37, 48))}
    assert TAPS in variants(conv(64, 3), (16,))
    assert TAPS not in variants(conv(64, 3, stride=(2, 2)), (16,))
    assert all(one.pad is None for one in variants(conv(1, 37, groups=37), (16,)))
    assert all(one.pad is None or one.pad[0] * one.pad[1] <= 6 * 3 for one in variants(conv(3, 1), (16,)))


@pytest.fixture
def search(monkeypatch):
    """A search whose steps take the seconds that a table gives for D's micro-batches."""
    seconds = {1: 1.0, 2: 0.9, 4: 1.1, 8: 0.8}

    class Trial:
        device = None

        def stepper(self, config):
            parts = config.d.micro_batches
            if parts == 16:
                raise ConfigError("d.micro_batches=16 is too many")
            return partial(float, seconds[parts])

    monkeypatch.setattr(layout_search, "step_seconds", lambda device, step: step())
    return LayoutSearch(Trial(), read_recipe("digits", []), lambda text: None)


def candidate(parts, forecast=None):
    change = partial(layout_trial._with_settings, layout_trial.Side.D, {"micro_batches": parts})
    return LayoutCandidate(f"parts={parts}", change, forecast)


def test_search_stays_with_what_is_faster(search):
    for parts in (4, 2, 16, 8):
        search.try_candidate(candidate(parts))
    assert search.config.d.micro_batches == 8
    assert search.gain == pytest.approx(0.2)
    assert search.trials == [
        "parts=4: not faster",
        "parts=2: chosen, a step takes 10.0% less",
        "parts=16: left out (d.micro_batches=16 is too many)",
        "parts=8: chosen, a step takes 11.1% less",
    ]


def test_search_tries_no_candidate_that_cannot_be_measured(search, monkeypatch):
    search.try_candidate(candidate(8, 0.005))
    search.try_candidate(candidate(8, -0.2))
    monkeypatch.setattr(layout_search.time, "perf_counter", lambda: 1e12)
    search.try_candidate(candidate(8, 0.5))
    assert search.config.d.micro_batches == 1 and search.gain == 0
    assert search.trials == [
        "parts=8: not tried, a forecast of 0.5% of a step is too little to measure",
        "parts=8: not tried, its layers take 20.0% of a step more",
        "parts=8: not tried, the time is over",
    ]
