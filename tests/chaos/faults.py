"""Faults as data: what happens, to which process, in which phase, after which step; drawn from a seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

SEED = 20261126
SAVE_STEPS = 4  # period of checkpoints in every run
EARLY = ("import", "join", "build", "restore")  # phases of a process that starts
_TURNS = ("d turn", "g turn", "update")
_CELLS = ("membership", "generation", "d turn", "g turn", "gather")
_SAVER = ("save", "written", "pruned", "samples", "score", "record")
_SIGNALS = ("kill", "stop", "term")


@dataclass(frozen=True)
class Fault:
    """A fault that happens once: when `role` enters `phase`, and the run has done `step` steps.

    kind: as in `tests/chaos/inject.py`. number: in its run; chooses the file whose bit is flipped.
    """

    kind: str
    role: str
    phase: str
    step: int
    number: int

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.role}, {self.phase}, step {self.step}"


@dataclass(frozen=True)
class Strategy:
    """A run under attack.

    words: of its command. roles: its processes that train, with the phases of each. saver: the role
    that saves and scores. has_launcher: its parent watches the ranks. is_exact: weights and losses
    equal the undisturbed run's, bit for bit.
    """

    words: tuple[str, ...]
    roles: dict[str, tuple[str, ...]]
    saver: str = "rank0"
    has_launcher: bool = True
    is_exact: bool = True
    is_split: bool = False
    is_grid: bool = False


_D = ("d turn", "update")
_G = ("g turn", "update")
_BOTH = {"rank0": _TURNS, "rank1": _TURNS}
_WITHOUT_DELAY = "scheme={name: asynchronous, staleness: 0, reuse: false}"
STRATEGIES = {
    "alone": Strategy(("devices=1",), {"main": _TURNS}, "main", has_launcher=False),
    "ddp": Strategy(("devices=2",), _BOTH),
    **{
        name: Strategy(("devices=2", f"g.strategy={name}", f"d.strategy={name}"), _BOTH)
        for name in ("zero1", "zero2", "zero3", "hsdp")
    },
    "asynchronous": Strategy(
        ("devices=2", "scheme=asynchronous"), {"rank0": _G, "rank1": _D}, is_exact=False, is_split=True
    ),
    "asynchronous-in-turns": Strategy(("devices=2", _WITHOUT_DELAY), {"rank0": _G, "rank1": _D}, is_split=True),
    "parameter-server": Strategy(
        ("devices=3", "scheme={name: parameter_server, staleness: 0}"),
        {"rank0": ("update",), "rank1": _TURNS[:2], "rank2": _TURNS[:2]},
        is_split=True,
    ),
    "grid": Strategy(
        (
            "workers=2",
            "grid.shape=2x2",
            f"grid.batches={SAVE_STEPS}",
            "grid.executor=loop",
            "grid.fitness.num_images=16",
            "grid.heartbeat_s=0.2",
            "scheme=synchronous",
            "augment=null",
            "every.score_kimg=0",
            "every.sample_kimg=0",
        ),
        {"worker0": _CELLS, "worker1": _CELLS},
        "main",
        has_launcher=False,
        is_grid=True,
    ),
}


# of processes that are no forks: phase by phase, since each start costs seconds
NEW_PROCESSES = {
    "devices": tuple(product(_SIGNALS, ("rank0", "rank1"), ("import",))),
    "torchrun": (
        ("kill", "rank1", "d turn"),
        ("launcher stop", "rank0", "save"),
        ("launcher term", "rank0", "record"),
        ("launcher kill", "rank0", "record"),
    ),
}


def faults_of_new_processes(name: str) -> list[Fault]:
    """Return the faults of `NEW_PROCESSES`: those of an import at the first starts, others in turn."""
    found = []
    for number, (kind, role, phase) in enumerate(NEW_PROCESSES[name]):
        step = 0 if phase in EARLY else SAVE_STEPS + 3 * number
        found.append(Fault(kind, role, phase, step, number))
    return found


def draw_faults(name: str, count: int, seed: int = SEED, disk: bool = True) -> list[Fault]:
    """Draw `count` faults of a run, ordered by step. disk: include those of a disk of the run's.

    Kinds of a phase at the start of a process follow a fault that ends one. None hits the save of
    ranks whose launcher has ended: nothing would end a rank that is suspended there.
    """
    draws = Random(f"{seed} {name}")
    strategy = STRATEGIES[name]
    if strategy.is_grid:
        return _of_grid(strategy, count, draws)
    during = _during(strategy, disk)
    early = list(product(_SIGNALS, strategy.roles, EARLY[1:] if strategy.has_launcher else EARLY[2:]))
    draws.shuffle(during)
    draws.shuffle(early)
    found: list[Fault] = []
    step = 2 * SAVE_STEPS  # a flipped bit needs an older checkpoint
    while len(found) < count:
        number = len(found)
        if found and found[-1].kind in ("kill", "stop") and found[-1].phase not in EARLY and number % 3 == 0:
            found.append(Fault(*early[number % len(early)], found[-1].step, number))
            continue
        step += SAVE_STEPS + 2 if found and found[-1].kind.startswith("launcher") else draws.choice((1, 2, 3))
        found.append(Fault(*during[number % len(during)], step, number))
    return found


def draw_network_faults(name: str, count: int, seed: int = SEED) -> list[Fault]:
    """Draw faults of the wire between two hosts with a process each.

    A cut that ends a run is followed by a short one while it restarts. The worker of a grid on the
    other host does not come back after one, so it is the last.
    """
    draws = Random(f"{seed} network {name}")
    strategy = STRATEGIES[name]
    roles = {"rank0": (*strategy.roles.get("rank0", ()), "save"), "rank1": strategy.roles.get("rank1", ())}
    if strategy.is_grid:
        roles = {"main": ("record", "save")}
    places = [(role, phase) for role, phases in roles.items() for phase in phases]
    kinds = ["delay", "loss", "cut"] if strategy.is_grid else ["delay", "long cut", "cut", "loss"]
    found: list[Fault] = []
    while len(found) < count:
        number = len(found)
        step = SAVE_STEPS * (2 + number)
        if found and found[-1].kind == "long cut":
            found.append(Fault("cut", draws.choice(list(roles)), "join", found[-1].step, number))
        elif strategy.is_grid and number == count - 1:
            found.append(Fault("long cut", *draws.choice(places), step, number))
        else:
            found.append(Fault(kinds[number % len(kinds)], *draws.choice(places), step, number))
    return found


def _of_grid(strategy: Strategy, count: int, draws: Random) -> list[Fault]:
    """Draw faults of workers, each followed by one that ends the coordinator, so that all workers start again."""
    workers = [
        (kind, role, phase) for role, phases in strategy.roles.items() for kind, phase in product(_SIGNALS, phases)
    ]
    mains = [(kind, "main", phase) for kind, phase in product(("kill", "term"), ("record", "save", "pruned"))]
    mains += [("flip", "main", "record")]
    draws.shuffle(workers)
    draws.shuffle(mains)
    decks = (workers, mains)
    return [Fault(*decks[n % 2][n // 2 % len(decks[n % 2])], SAVE_STEPS * (2 + n), n) for n in range(count)]


def _during(strategy: Strategy, disk: bool) -> list[tuple[str, str, str]]:
    """Return every (kind, role, phase) of a process that trains."""
    found = [
        (kind, role, phase) for role, phases in strategy.roles.items() for kind, phase in product(_SIGNALS, phases)
    ]
    found += [(kind, strategy.saver, phase) for kind, phase in product(_SIGNALS, _SAVER)]
    found += [("flip", strategy.saver, "record")] * 5
    found += [("clock", role, "record") for role in strategy.roles]
    found += [("decode", role, "decode") for role, phases in strategy.roles.items() if "d turn" in phases]
    if strategy.has_launcher:
        found += [(f"launcher {kind}", strategy.saver, phase) for kind, phase in product(_SIGNALS, ("record", "save"))]
    if disk:
        found += [(kind, strategy.saver, "save") for kind in ("full", "read-only")] + [
            ("full", strategy.saver, "record")
        ]
    return found


def num_steps(faults: Sequence[Fault]) -> int:
    """Return the length of a run in which all of them happen."""
    return faults[-1].step + 3 * SAVE_STEPS
