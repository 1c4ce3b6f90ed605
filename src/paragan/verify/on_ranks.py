"""Law "ranks are the batch", run on processes of this host.

Every wait has a timeout and all processes are ended.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save
from torch import Tensor

from paragan.core.answering_processes import AnsweringProcesses, reserve_output, source_environment
from paragan.core.dist import World
from paragan.core.errors import ParaganError
from paragan.core.files import write_bytes
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.types import Can
from paragan.distributed.launch.rank_env import GLOO_INTERFACE, loopback_interface
from paragan.verify.explanation import explain_randomness, explain_sharding, unsupported_network, unsupported_penalty
from paragan.verify.finding import NO_REFERENCE_RUN, RANKS, LawResult
from paragan.verify.laws import PreparedLaws, law_result
from paragan.verify.reference_run import (
    ReferenceRun,
    Trace,
    TraceDifference,
    VerifiedNetworks,
    compare_traces,
    exact_arithmetic,
)

_START_S = 120.0  # Python and torch on a busy machine
_TALK_S = 60.0  # one exchange
_ROW_S = 240.0
_GRACE_S = 15.0  # for the others, once one rank has failed
# words of errors of a rank that the failure of another one caused
_SECONDARY = ("onnection", "imed out", "timeout")
_TRACE = "plain.safetensors"  # file of the reference run
_HOST = 2  # ranks that stand for one host, so that there are both shards and replicas under `hsdp`


@dataclass(frozen=True)
class Row:
    """Strategy and split of the batch. uneven: rank 0 has a row less, rank 1 one more."""

    strategy: str
    uneven: bool

    @property
    def name(self) -> str:
        """Name of the row in the table."""
        return f"{self.strategy}, uneven" if self.uneven else self.strategy

    def share(self, rank: int, size: int, batch: int) -> tuple[int, int]:
        """Return (first, count) of a rank's rows; at least two each."""
        counts = [batch // size] * size
        if self.uneven:
            counts[0] = counts[0] - 1
            counts[1] = counts[1] + 1
        return sum(counts[:rank]), counts[rank]


@dataclass(frozen=True)
class RankProcesses:
    """The law on `size` processes.

    command: starts a rank; it receives the rank, the number of ranks and the file of a store, and
    calls `verify_rank`. folder: for the reference run, logs and stores.
    """

    command: Sequence[str]
    size: int
    folder: Path

    def __call__(self, ready: PreparedLaws) -> Iterator[LawResult]:
        """Yield the rows of the law, then the strategies that are exempt or need more ranks."""
        strategies = ready.subject.joining_strategies
        exempt = {name: placed.exemption for name, placed in strategies.items() if placed.exemption}
        too_few = {name for name, placed in strategies.items() if placed.needs_hosts and not self._has_hosts}
        names = [name for name in strategies if name not in exempt and name not in too_few]
        rows = [Row(name, uneven) for name, uneven in product(names, (False, True))]
        instead = self._instead(ready)
        if instead is None:
            refused = {name: self._refusal(ready, name) for name in names}
            found = self._run_rows(ready, [row for row in rows if not refused[row.strategy]])
            for row in rows:
                reason = refused[row.strategy]
                yield LawResult(RANKS, row.name, "not run", None, reason) if reason else next(found)
        else:
            yield from (replace(instead, strategy=row.name) for row in rows)
        for name in sorted(too_few):
            yield LawResult(RANKS, name, "not run", None, "needs 4 ranks for shards and replicas; pass --ranks 4")
        for name, reason in exempt.items():
            yield LawResult(RANKS, name, "exempt", None, reason)

    @property
    def _has_hosts(self) -> bool:
        """Whether the ranks stand for several hosts."""
        return self.size > _HOST and not self.size % _HOST

    def _refusal(self, ready: PreparedLaws, name: str) -> str:
        """Return why a strategy cannot train these networks on these ranks, or ""."""
        return unsupported_penalty(ready.subject, name) or unsupported_network(ready.subject, name, self.size)

    def _instead(self, ready: PreparedLaws) -> LawResult | None:
        """Return the result if no process is needed, or None to run the law."""
        if ready.plain is None:
            return LawResult(RANKS, "", "not run", None, NO_REFERENCE_RUN)
        if self.size == 1:
            return LawResult(RANKS, "", "not run", None, "--ranks 1 starts no other process")
        if reason := explain_randomness(ready.traits):
            return LawResult(RANKS, "", "exempt", None, reason)
        return None

    def _run_rows(self, ready: PreparedLaws, rows: Sequence[Row]) -> Iterator[LawResult]:
        assert ready.plain is not None
        _save_trace(ready.plain, self.folder)
        double = any(Can.DOUBLE_BACKWARD in penalty.needs for penalty in ready.subject.penalties)
        with _Processes(self, double) as processes:
            for row in rows:
                yield _found(row, processes.run(row), ready)


def _found(row: Row, answers: list[dict[str, Any]], ready: PreparedLaws) -> LawResult:
    """Return the result of one row from the answers of its ranks."""
    errors = [answer for answer in answers if "error" in answer]
    if not errors:
        worst = max(
            (TraceDifference(**answer["difference"]) for answer in answers), key=lambda a: (bool(a.name), a.largest)
        )
        found = law_result(worst, ready.traits)
    else:
        first = min(errors, key=lambda e: (any(words in e["error"] for words in _SECONDARY), e["at"]))
        found = LawResult("", "", "FAILED", None, f"rank {first['rank']}: {first['error']}")
    found = replace(found, law=RANKS, strategy=row.name)
    return replace(found, reason=found.reason + explain_sharding(ready.traits, found))


class _Processes:
    """Rank processes, restarted after a row that a rank did not answer."""

    def __init__(self, ranks: RankProcesses, double: bool) -> None:
        self.ranks = ranks
        self.double = double
        self.number = 0
        self.processes = AnsweringProcesses()

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *raised: object) -> None:
        self.processes.kill()

    def run(self, row: Row) -> list[dict[str, Any]]:
        """Return the answers of all ranks; an error for a rank that did not answer."""
        is_fresh = not self.processes.processes
        if is_fresh:
            self._start()
        self.number += 1
        order = {"number": self.number, "double": self.double, **asdict(row)}
        answers = self.processes.request(order, _ROW_S + (_START_S if is_fresh else 0.0), _GRACE_S)
        if any("at" not in answer for answer in answers):
            self.processes.kill()
            self.processes = AnsweringProcesses()
        return [{"rank": rank, "at": time.monotonic(), **answer} for rank, answer in enumerate(answers)]

    def _start(self) -> None:
        environment = source_environment()
        if (interface := loopback_interface()) is not None:
            environment[GLOO_INTERFACE] = interface
        store = self.ranks.folder / f"store-{self.number}"
        for rank in range(self.ranks.size):
            words = [*self.ranks.command, *map(str, (rank, self.ranks.size, store))]
            self.processes.start(words, environment, self.ranks.folder / f"rank-{rank}.log", pipes=True)


def verify_rank(networks: Callable[[], VerifiedNetworks], rank: int, size: int, folder: Path, store: Path) -> None:
    """Run one rank: answer the orders on standard input until the parent process closes it."""
    reply = reserve_output()
    subject = networks()
    plain = _load_trace(folder)
    base = dist.FileStore(str(store), size)
    with exact_arithmetic():
        for line in sys.stdin:
            order = json.loads(line)
            row = Row(order["strategy"], order["uneven"])
            chosen = subject if order["double"] else subject.without(Can.DOUBLE_BACKWARD)
            prefixed = dist.PrefixStore(f"row {order['number']}", base)
            answer = _run_row(chosen, plain, row, rank, size, prefixed)
            reply({"at": time.monotonic(), **answer})


def _run_row(
    subject: VerifiedNetworks, plain: Trace, row: Row, rank: int, size: int, store: dist.Store
) -> dict[str, Any]:
    """Run a row in a separate process group: a failed row leaves nothing behind."""
    done_keys = [f"done {other}" for other in range(size)]
    store.set(f"here {rank}", "")
    try:
        with reraise_as_config_error(row.name):
            store.wait([f"here {other}" for other in range(size)], timedelta(seconds=_START_S))
            world = _group(rank, size, store)
            first, count = row.share(rank, size, subject.batch)
            found = compare_traces(ReferenceRun(subject, row.strategy, world, {}, first, count).trace(), plain)
            store.set(f"done {rank}", "")
            store.wait(done_keys, timedelta(seconds=_TALK_S))
        return {"difference": asdict(found)}
    except ParaganError as error:
        store.set(f"done {rank}", "")
        return {"error": str(error).removeprefix(f"{row.name} ")}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()  # the networks of this row reference the group, and so hold its connections


def _group(rank: int, size: int, store: dist.Store) -> World:
    timeout = timedelta(seconds=_TALK_S)
    group = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group, rank=rank, world_size=size, timeout=timeout)
    control = dist.new_group(backend="gloo", timeout=timeout)
    host = _HOST if size % _HOST == 0 else size
    return World(rank, size, rank % host, host, torch.device("cpu"), dist.group.WORLD, control, store)


def _save_trace(trace: Trace, folder: Path) -> None:
    """Write the reference run for the ranks to compare with."""
    weights: dict[str, Tensor] = {}
    for step, tensors in trace.items():
        weights |= {f"{step}/{name}": tensor.contiguous() for name, tensor in tensors.items()}
    write_bytes(folder / _TRACE, save(weights))


def _load_trace(folder: Path) -> Trace:
    trace: Trace = {}
    for name, value in load_file(folder / _TRACE).items():
        step, _, rest = name.partition("/")
        trace.setdefault(int(step), {})[rest] = value
    return trace
