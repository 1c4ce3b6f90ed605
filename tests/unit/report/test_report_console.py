"""What the console says of a grid of cells while it trains."""

import itertools
from types import SimpleNamespace

import pytest

from paragan.core.event import Event
from paragan.writers import console
from paragan.writers.console import step_text


def generation(number: int, *scores: float | None, **values: object) -> Event:
    cells = {str(cell): {"score": score} for cell, score in enumerate(scores)}
    return Event(
        kind="generation",
        step=number,
        images=1000 * number,
        seconds=1.0,
        values={"generation": number, "cells": cells, **values},
    )


@pytest.fixture(autouse=True)
def slow_clock(monkeypatch):
    """Four seconds pass whenever the writer looks at it."""
    clock = itertools.count(step=4.0)
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(clock)))


def told(capsys, tmp_path, *notes: Event) -> list[str]:
    writer = console.Writer(None, tmp_path)
    for note in notes:
        writer.write(note)
    writer.close()
    return capsys.readouterr().out.splitlines()


def test_console_without_a_terminal_prints_best_mixture_every_ten_seconds(capsys, tmp_path):
    notes = [generation(number, 50.0, 40.0 - number, None) for number in range(1, 10)]
    lines = [f"generation {number}  best cell 1: fd {40 - number}" for number in (3, 6, 9)]
    assert told(capsys, tmp_path, *notes) == lines


def test_step_text_has_no_speed_before_it_is_known():
    values = {"images_per_s": 0.0, "eta_s": 0.0, "data_wait": 0.03, "d/loss/adversarial": 1.5}
    assert step_text(values) == "data wait 3%  D loss 1.500"
    assert step_text(values | {"images_per_s": 9.0, "eta_s": 61.0}).startswith("9 images/s  ETA 1:01  data wait 3%")


def test_console_prints_an_earlier_better_score(capsys, tmp_path):
    notes = [generation(number, 9.0, score) for number, score in enumerate((7.0, 3.25, 5.0), 1)]
    line = "generation 3  best cell 1: fd 5, best so far cell 1 in generation 2: fd 3.25"
    assert told(capsys, tmp_path, *notes) == [line]
