"""Profiles and games for tests of the simulator: two players whose costs are round numbers."""

from paragan.core.types import Side
from paragan.extensions.planning.cluster import Cluster, Interconnect, Link
from paragan.extensions.planning.profile import Curve, PlayerProfile, RunProfile
from paragan.extensions.planning.simulation import GameCosts
from paragan.game.scheme import FunctionScheme
from paragan.parallel import ddp
from paragan.schemes import synchronous

ROWS = (8, 64)
FREE = Link(0.0, float("inf"))


def constant(value: float) -> Curve:
    """The same cost for any number of rows."""
    return Curve(ROWS, (value, value))


def player_profile(parameters: int, update_s: Curve) -> PlayerProfile:
    """A player of fp32 weights without buffers and batch norm."""
    size = 4 * parameters
    return PlayerProfile(
        parameters=parameters, weight_bytes=size, state_bytes=size, update_s=update_s, norms=0, norm_bytes=0
    )


def profile(g_s=0.1, d_s=0.08, generate_s=0.0, load_s=0.0, between_s=0.0, d_updates=1, **changes) -> RunProfile:
    """G with 4 MB of weights and D with 2 MB; seconds do not depend on the batch."""
    g = player_profile(1_000_000, constant(g_s))
    d = player_profile(500_000, constant(d_s))
    step_s = constant(g_s + d_updates * (d_s + generate_s) + between_s)
    values = {
        "recipe": "digits",
        "model": "dcgan",
        "fingerprint": "0" * 16,
        "machine": "test",
        "device": "cpu",
        "threads": 1,
        "batch": 64,
        "d_updates": d_updates,
        "g": g,
        "d": d,
        "generate_s": constant(generate_s),
        "generate_norms": 0,
        "step_s": step_s,
        "alone_step_s": step_s,
        "load_s": constant(load_s),
        "sample_bytes": 1000,
        "fake_bytes": 1000,
        "memory": Curve((1, 65), (60e6, 124e6)),
        "cpu_share": constant(1.0),
    }
    return RunProfile(**{**values, **changes})


def game(scheme=None, strategy=None, batch=64, **costs) -> GameCosts:
    """A game of synchronous data-parallel players, unless given."""
    scheme = scheme or FunctionScheme(synchronous.step)
    exchanges = dict.fromkeys(Side, (strategy or ddp.Strategy()).exchanges)
    return GameCosts(profile=profile(**costs), scheme=scheme, exchanges=exchanges, batch=batch)


def cluster(workers: int, link: Link = FREE, **changes) -> Cluster:
    """Workers on hosts of their own."""
    return Cluster(workers=workers, network=Interconnect(inside=link, between=link, workers_per_host=1), **changes)
