"""Law "ranks are the batch", run on processes of this host.

Every wait has a timeout and all processes are ended.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save

from paragan.core.answering_processes import AnsweringProcesses, reserve_output, source_environment
from paragan.core.capabilities import Capability
from paragan.core.dist import World
from paragan.core.errors import ParaganError
from paragan.core.files import write_bytes
from paragan.core.outside_code import reraise_as_config_error
from paragan.distributed.launch.rank_env import loopback_environment
from paragan.extensions.verify import explanations
from paragan.extensions.verify.law_result import NO_REFERENCE_RUN, LawResult
from paragan.extensions.verify.laws import PreparedLaws, law_result
from paragan.extensions.verify.reference_run import (
    ReferenceRun,
    Trace,
    TraceDifference,
    VerifiedNetworks,
    compare_traces,
    exact_arithmetic,
)

_RANKS = "ranks are the batch"
_START_S = 120.0  # Python and torch on a busy machine
_EXCHANGE_S = 60.0  # one message between ranks
_ROW_S = 240.0  # a run under one strategy
_GRACE_S = 15.0  # for the others, once one rank has failed
# parts of the messages of errors that the failure of another rank caused
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
            counts[0] -= 1
            counts[1] += 1
        return sum(counts[:rank]), counts[rank]


class RankProcesses:
    """The law on `size` processes, which start again after a row that a rank did not answer.

    command: starts a rank; it receives the rank, the number of ranks and the file of a store, and
    calls `verify_rank`. folder: for the reference run, logs and stores.
    """

    def __init__(self, command: Sequence[str], size: int, folder: Path) -> None:
        self._command = command
        self._size = size
        self._folder = folder
        self._num_rows = 0  # so far
        self._processes = AnsweringProcesses()

    def __call__(self, ready: PreparedLaws) -> Iterator[LawResult]:
        """Yield the rows of the law, then the strategies that are exempt or need more ranks."""
        ready = ready.without_dropout
        if ready.plain is not None:
            _save_trace(ready.plain, self._folder)
        not_run = []
        exempt = []
        try:
            for name, strategy in ready.subject.joining_strategies.items():
                if strategy.exemption:
                    exempt.append(LawResult(law=_RANKS, strategy=name, result="exempt", reason=strategy.exemption))
                elif strategy.needs_hosts and (self._size <= _HOST or self._size % _HOST):
                    reason = "needs 4 ranks for shards and replicas; pass --ranks 4"
                    not_run.append(LawResult(law=_RANKS, strategy=name, result="not run", reason=reason))
                else:
                    known = self._result_without_run(ready, name)
                    for row in (Row(name, uneven=False), Row(name, uneven=True)):
                        yield replace(known or self._run(row, ready), strategy=row.name)
        finally:
            self._processes.kill()
        yield from not_run
        yield from exempt

    def _result_without_run(self, ready: PreparedLaws, name: str) -> LawResult | None:
        """Return the result of a strategy's rows if it is known without processes; None: they must run."""
        result: Literal["not run", "exempt"] = "not run"
        if ready.plain is None:
            reason = NO_REFERENCE_RUN
        elif self._size == 1:
            reason = "--ranks 1 starts no other process"
        elif reason := explanations.explain_randomness(ready.traits):
            result = "exempt"
        else:
            reason = explanations.unsupported_penalty(ready.subject, name)
            reason = reason or explanations.unsupported_network(ready.subject, name, self._size)
        return LawResult(law=_RANKS, strategy=name, result=result, reason=reason) if reason else None

    def _run(self, row: Row, ready: PreparedLaws) -> LawResult:
        """Return the result of a row: the largest difference of a rank, or the error that came first."""
        is_first = not self._processes.processes
        if is_first:
            self._start()
        self._num_rows += 1
        double = any(Capability.DOUBLE_BACKWARD in penalty.needs for penalty in ready.subject.penalties)
        dropout = explanations.describe_dropout(ready.traits)
        order = {"number": self._num_rows, "double": double, "dropout": not dropout, **asdict(row)}
        answers = self._processes.request(order, _ROW_S + (_START_S if is_first else 0.0), _GRACE_S)
        if any("at" not in answer for answer in answers):  # instead of a rank that ended or hangs: its own has a time
            self._processes.kill()
            self._processes = AnsweringProcesses()
        errors = {rank: answer for rank, answer in enumerate(answers) if "error" in answer}
        if errors:
            rank = min(errors, key=lambda rank: _priority(errors[rank]))
            reason = f"rank {rank}: {errors[rank]['error']}"
            result = LawResult(law=_RANKS, strategy=row.name, result="FAILED", reason=reason)
        else:
            differences = [TraceDifference(**answer["difference"]) for answer in answers]
            worst = max(differences, key=lambda difference: (bool(difference.name), difference.largest))
            result = replace(law_result(worst, ready.traits), law=_RANKS, strategy=row.name)
        sharding = explanations.explain_sharding(ready.traits, result, row.strategy)
        return replace(result, reason=(result.reason or dropout) + sharding)

    def _start(self) -> None:
        environment = source_environment() | loopback_environment()
        store = self._folder / f"store-{self._num_rows}"
        for rank in range(self._size):
            command = [*self._command, str(rank), str(self._size), str(store)]
            self._processes.start(command, environment, self._folder / f"rank-{rank}.log", pipes=True)


def _priority(answer: dict[str, Any]) -> tuple[bool, float]:
    """Order errors: those that another rank's failure caused last, then by time."""
    is_secondary = any(phrase in answer["error"] for phrase in _SECONDARY)
    return is_secondary, answer.get("at", time.monotonic())


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
            row_subject = subject if order["double"] else subject.without(Capability.DOUBLE_BACKWARD)
            row_subject = row_subject if order["dropout"] else row_subject.without_dropout()
            row_store = dist.PrefixStore(f"row {order['number']}", base)
            answer = _run_row(row_subject, plain, row, rank, size, row_store)
            reply({"at": time.monotonic(), **answer})


def _run_row(
    subject: VerifiedNetworks, plain: Trace, row: Row, rank: int, size: int, store: dist.Store
) -> dict[str, Any]:
    """Run a row in a separate process group: a failed row leaves nothing behind."""
    done_keys = [f"done {other}" for other in range(size)]
    store.set(f"ready {rank}", "")
    try:
        with reraise_as_config_error(row.name):
            store.wait([f"ready {other}" for other in range(size)], timedelta(seconds=_START_S))
            world = _group(rank, size, store)
            first, count = row.share(rank, size, subject.batch)
            run = ReferenceRun(subject=subject, strategy=row.strategy, world=world, first=first, count=count)
            difference = compare_traces(run.trace(), plain)
            # a rank that left its group now would close connections that others still use
            store.set(f"done {rank}", "")
            store.wait(done_keys, timedelta(seconds=_EXCHANGE_S))
        return {"difference": asdict(difference)}
    except ParaganError as error:
        store.set(f"done {rank}", "")
        return {"error": str(error).removeprefix(f"{row.name} ")}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()  # the networks of this row reference the group, and so hold its connections


def _group(rank: int, size: int, store: dist.Store) -> World:
    timeout = timedelta(seconds=_EXCHANGE_S)
    group = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group, rank=rank, world_size=size, timeout=timeout)
    host = _HOST if size % _HOST == 0 else size
    return World(
        rank=rank,
        size=size,
        local_rank=rank % host,
        local_size=host,
        device=torch.device("cpu"),
        group=dist.group.WORLD,
        control=dist.new_group(backend="gloo", timeout=timeout),
        store=store,
    )


def _save_trace(trace: Trace, folder: Path) -> None:
    tensors = {f"{step}/{name}": value for step, weights in trace.items() for name, value in weights.items()}
    write_bytes(folder / _TRACE, save({name: value.contiguous() for name, value in tensors.items()}))


def _load_trace(folder: Path) -> Trace:
    trace: Trace = {}
    for name, value in load_file(folder / _TRACE).items():
        step, _, weight_name = name.partition("/")
        trace.setdefault(int(step), {})[weight_name] = value
    return trace
