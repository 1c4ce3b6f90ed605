"""`benchmarks.cellular_upstream`: it works as often as the description says, with the neighbours of a torus."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks import (
    cellular_upstream as upstream,
    cellular_upstream_cell as cells,
    cellular_upstream_images as images,
    cellular_upstream_score as score,
    cellular_upstream_timer as timer,
)

SIDE, BATCHES, BATCH, FITNESS, SCORED = 8, 5, 10, 25, 20
TINY = cells.Config(batches=BATCHES, batch=BATCH, latent=4, hidden=8, num_fitness=FITNESS, num_scored=SCORED)
PIXELS = torch.randint(0, 256, (100, 1, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
CLASSIFIER = nn.Linear(SIDE * SIDE, 10)


def extractor(x_BCHW):
    assert x_BCHW.shape[1:] == (1, SIDE, SIDE)
    return x_BCHW, CLASSIFIER(x_BCHW.flatten(1))


def grid(clock=time.process_time, **changes):
    return upstream.Upstream(replace(TINY, **changes), PIXELS, extractor, clock)


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


@pytest.mark.parametrize(
    ("number", "rows", "columns", "expected"),
    [(0, 1, 1, []), (0, 2, 2, [2, 1]), (1, 3, 3, [7, 4, 0, 2]), (4, 3, 3, [1, 7, 3, 5]), (11, 3, 4, [7, 3, 10, 8])],
)
def test_neighbours(number, rows, columns, expected):
    assert upstream.neighbours(number, cells.Config(rows=rows, columns=columns)) == expected


def test_command_prints_every_routine(data_root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", str(data_root / "mnist"), "--grid", "1x1", "--batches", "1"])
    upstream.main()
    line = capsys.readouterr().out.splitlines()[-1]
    assert all(name in line for name in timer.ROUTINES)
