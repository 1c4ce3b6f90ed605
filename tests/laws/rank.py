"""One rank of the design proof: `python -m tests.laws.rank RANK WORLD FOLDER`. Every case writes one JSON."""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.core.types import Side
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.laws.placements import pipeline, roles
from tests.laws.small_gan import PROBE, batches, distance, game, network, play, player

G, D = Side.G, Side.D


def alone(scheme, *, per_step=1, parts=1):
    """The plain run: one process, whole batch."""
    seats = (player(side, none.Strategy(), parts=parts, per_step=per_step) for side in (G, D))
    gan = game(*seats)
    return gan, play(gan, scheme, batches())


def compare(gan, reports, scheme, **how) -> dict[str, float]:
    """Largest differences to the plain run: weights, average, and everything that was reported."""
    plain, told = alone(scheme, **how)
    found = {}
    for seat, other in ((gan.g, plain.g), (gan.d, plain.d)):
        found[seat.side.value] = distance(seat.strategy.weights(seat.net), dict(other.net.state_dict()))
        found[f"{seat.side.value} moved"] = distance(
            dict(other.net.state_dict()), dict(network(seat.side).state_dict())
        )
    found["ema"] = distance(gan.g.strategy.weights(gan.g.ema.net), dict(plain.g.ema.net.state_dict()))
    found["told"] = max(abs(a[k] - b[k]) for a, b in zip(reports, told, strict=True) for k in b)
    return found


def piped(scheme):
    seats = (player(side, pipeline.Strategy(), mesh=PROBE[side], parts=2) for side in (G, D))
    gan = game(*seats)

    def total(shares):
        dist.all_reduce(shares)
        return shares

    return compare(gan, play(gan, scheme, batches(), total=total), scheme)


def apart(scheme):
    """G on rank 0, D on rank 1, bound 0."""
    if dist.get_rank() == 0:
        gan = game(player(G, none.Strategy()), roles.Elsewhere(D, 1, network(D, seed=9)))
    else:
        gan = game(roles.Elsewhere(G, 0, roles.Incoming((1, 8, 8), 0, torch.float64)), player(D, none.Strategy()))
    play(gan, scheme, batches())
    plain, _ = alone(scheme)
    mine, other = (gan.g, plain.g) if dist.get_rank() == 0 else (gan.d, plain.d)
    found = {mine.side.value: distance(dict(mine.net.state_dict()), dict(other.net.state_dict()))}
    if mine.ema is not None:
        found["ema"] = distance(dict(mine.ema.net.state_dict()), dict(other.ema.net.state_dict()))
    return found


def cases():
    return {
        "pipeline": lambda: piped(synchronous),
        "roles": lambda: apart(synchronous),
    }


def main(rank: int, world: int, folder: Path) -> None:
    faulthandler.dump_traceback_later(150, exit=True)
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=30))
    for name, case in cases().items():
        try:
            found = {"differences": case()}
        except Exception:
            found = {"error": traceback.format_exc()}
        (folder / f"{name}.{rank}.json").write_text(json.dumps(found))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
