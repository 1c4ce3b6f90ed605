"""The seams carry every placement.

The same Player, Turn and Scheme classes, float64, equal to one process after 3 steps.

The strategies in `placements/` are spikes that prove signatures; the shelf's own replace them part by part (those for
data parallel and sharded networks have: tests/distributed/test_laws.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paragan.core.types import Batch, Rows, Side, TurnInputs
from paragan.game.prior import Prior
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from tests.laws.placements import stacked
from tests.laws.small_gan import BATCH, CLASSES, LATENT, batches, distance, game, network, play, player

TOLERANCE = 1e-10
ROOT = Path(__file__).resolve().parents[2]
CASES = ("pipeline", "roles")


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> dict[str, list[dict]]:
    """What two gloo ranks found, per case."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.laws.rank", str(r), "2", str(folder)],
            cwd=ROOT,
            env=environment,
        )
        for r in range(2)
    ]
    try:
        for rank in ranks:
            rank.wait(timeout=180)
    finally:
        for rank in ranks:
            rank.kill()
    nothing = {"error": "the rank wrote nothing"}
    files = {case: [folder / f"{case}.{r}.json" for r in range(2)] for case in CASES}
    return {c: [json.loads(f.read_text()) if f.exists() else nothing for f in both] for c, both in files.items()}


@pytest.mark.distributed
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_equal_one_process(two_ranks, case):
    for rank in two_ranks[case]:
        assert "error" not in rank, rank["error"]
        found = rank["differences"]
        assert all(value > 1e-3 for name, value in found.items() if name.endswith("moved")), found
        told = found.pop("told", 0.0)
        assert told <= 1e-5, found  # reports are float32
        assert all(value <= TOLERANCE for name, value in found.items() if not name.endswith("moved")), found


class TwoPriors:
    """The draws of two cells, side by side."""

    def __init__(self, seeds):
        self.cells = [Prior(seed, LATENT, CLASSES, dtype=torch.float64) for seed in seeds]

    def feed(self, stream, real):
        draws = [prior.draw(stream, Rows(real.rows.step, 0, BATCH, BATCH)) for prior in self.cells]
        z, y = (torch.stack(t, 1).flatten(0, 1) for t in zip(*draws, strict=True))
        return TurnInputs(real.rows, 0, {"latent": z, "label": y}, real)


def two_streams(seeds):
    for both in zip(*(batches(seed=s) for s in seeds), strict=False):
        rows = Rows(both[0].rows.step, 0, 2 * BATCH, BATCH)
        names = both[0].tensors
        yield Batch(rows, {name: torch.stack([b.tensors[name] for b in both], 1).flatten(0, 1) for name in names})


@pytest.mark.parametrize("scheme", [synchronous, shared_fakes.Scheme()])
def test_two_stacked_cells_equal_two_games(scheme):
    together = game(
        *(
            player(side, stacked.Strategy(), mesh=2, make=lambda cell=0, side=side: network(side, seed=cell))
            for side in (Side.G, Side.D)
        ),
        prior=TwoPriors((5, 6)),
    )
    play(together, scheme, two_streams((3, 4)))
    for cell in range(2):
        seats = (
            player(s, none.Strategy(), make=lambda s=s, cell=cell: network(s, seed=cell)) for s in (Side.G, Side.D)
        )
        alone = game(*seats, prior=Prior(5 + cell, LATENT, CLASSES, dtype=torch.float64))
        play(alone, scheme, batches(seed=3 + cell))
        for seat, plain in ((together.g, alone.g), (together.d, alone.d)):
            mine = {name: value[cell] for name, value in seat.strategy.weights(seat.net).items()}
            assert distance(mine, dict(plain.net.state_dict())) <= TOLERANCE
        average = {name: value[cell] for name, value in together.g.strategy.weights(together.g.ema.net).items()}
        assert distance(average, dict(alone.g.ema.net.state_dict())) <= TOLERANCE
