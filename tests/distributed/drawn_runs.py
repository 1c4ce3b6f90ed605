"""Runs whose configuration, sessions and step to replay are drawn from a seed."""

import random
from dataclasses import dataclass

SAVES = ("every.save_kimg=0.05", "every.save_kimg=0.1", "every.save_kimg=1")
LOGS = ("every.log_steps=1", "every.log_steps=3", "every.log_steps=7")
PENALTIES = ("[]", "[r1]", "[{name: r1, interval: 3}]", "[{name: gradient_penalty, interval: 2}]")
OPTIMIZERS = ("Adam", "adabelief", "optimistic_adam")  # none that needs whole weights
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "{name: local_sgd, every: 2}")
IN_TURNS = ("synchronous", "shared_fakes", "extragradient")


@dataclass(frozen=True)
class DrawnRun:
    """words: settings of the first session. resume: of a second one, or None. place: of the step, 0 to 1 of all."""

    words: tuple[str, ...]
    resume: tuple[str, ...] | None
    place: float


def draw_run(seed: int, is_alone: bool = False) -> DrawnRun:
    """Draw a run on a process or several ranks. is_alone: in one process."""
    draws = random.Random(seed)
    kind = "process" if is_alone else draws.choice(("process", "ranks", "ranks", "roles"))
    words = [draws.choice(SAVES), draws.choice(LOGS), f"seed={seed}", *_of_players(draws), *KINDS[kind](draws)]
    resume = ["train.kimg=0.48", *draws.choice(([], ["g.optimizer.lr=0.001", "--change"]))]
    return DrawnRun(tuple(words), draws.choice((None, tuple(resume))), draws.random())


def _of_players(draws: random.Random) -> list[str]:
    words = ["every.keep=9", "writers=[jsonl, console]", draws.choice(("g.ema=null", "g.ema={half_life_kimg: 0.05}"))]
    for side in ("g", "d"):
        words.append(f"{side}.optimizer={{name: {draws.choice(OPTIMIZERS)}, lr: 0.002}}")
        words.append(f"{side}.max_norm={draws.choice(('null', '0.5'))}")
    return words


def _of_penalties(draws: random.Random) -> list[str]:
    penalties = draws.choice(PENALTIES)
    norm = "spectral" if "gradient_penalty" in penalties else draws.choice(("batch", "spectral"))
    return [f"penalties={penalties}", f"model.d_norm={norm}"]


def _in_a_process(draws: random.Random) -> list[str]:
    return [
        f"scheme={draws.choice((*IN_TURNS, 'skipping', '{name: asynchronous, staleness: 1}'))}",
        f"augment={draws.choice(('null', 'diffaugment'))}",
        *_of_penalties(draws),
    ]


def _on_ranks(draws: random.Random) -> list[str]:
    words = [f"scheme={draws.choice(IN_TURNS)}", *_of_penalties(draws)]
    words.append(f"d.micro_batches={draws.choice((1, 2))}")
    words.append(f"d.updates_per_step={draws.choice((1, 2))}")
    return [
        *words,
        *(f"{side}.strategy={draws.choice(STRATEGIES)}" for side in "gd"),
        f"devices={draws.choice((2, 3))}",
    ]


def _in_roles(draws: random.Random) -> list[str]:
    schemes = [f"{{name: asynchronous, staleness: {bound}}}" for bound in (0, 1, 2)]
    scheme = draws.choice((*schemes, "{name: parameter_server, staleness: 0}"))
    return [f"scheme={scheme}", f"devices={draws.choice((2, 3))}"]


KINDS = {"process": _in_a_process, "ranks": _on_ranks, "roles": _in_roles}
