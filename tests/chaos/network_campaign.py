"""Runs on two hosts whose network fails."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from tests.chaos import inject
from tests.chaos.campaign import Start, disturb
from tests.chaos.faults import SEED, STRATEGIES, draw_network_faults
from tests.chaos.forked import ForkedProcess
from tests.chaos.network import Host, lacking, two_hosts

PORT = 29641
_TOKEN_S = 30.0


def start_ranks(hosts: Sequence[Host]) -> Start:
    """Return a function that starts a rank on each host, as a person would."""

    def start(words: Sequence[str], plan: Path, log: BinaryIO) -> list[ForkedProcess]:
        found = []
        for rank, host in enumerate(hosts):
            numbers = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": PORT}
            variables = {name: str(number) for name, number in numbers.items()}
            variables |= {"MASTER_ADDR": hosts[0].address, inject.PLAN: str(plan)}
            found.append(_start_on(host, words, variables, log))
        return found

    return start


def start_grid(hosts: Sequence[Host]) -> Start:
    """Return a function that starts a coordinator with a worker on the first host, and a worker on the second."""

    def start(words: Sequence[str], plan: Path, log: BinaryIO) -> list[ForkedProcess]:
        token = Path(words[-1]) / "ranks" / "token"
        token.unlink(missing_ok=True)
        coordinator = _start_on(hosts[0], words, {inject.PLAN: str(plan)}, log)
        remote = ("paragan", "worker", f"{hosts[0].address}:{PORT}", "--device", "9")
        variables = {inject.PLAN: str(plan), "PARAGAN_TOKEN_FILE": str(token)}
        return [coordinator, _start_on(hosts[1], remote, variables, log, wait_for=token)]

    return start


def _start_on(
    host: Host, words: Sequence[str], variables: dict[str, str], log: BinaryIO, wait_for: Path | None = None
) -> ForkedProcess:
    def before() -> None:
        deadline = time.monotonic() + _TOKEN_S
        while wait_for is not None and not wait_for.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        host.enter()

    env = {**os.environ, "GLOO_SOCKET_IFNAME": host.device, **variables}
    return ForkedProcess(words, env, log, log, before=before)


def attack(name: str, count: int, root: Path, seed: int = SEED) -> dict[str, Any]:
    """Disturb the network of a run by `count` faults. Where there can be no hosts, `not_run` is the reason."""
    if reason := lacking():
        return {"injected": 0, "survived": 0, "failed": "", "not_run": reason}
    strategy = STRATEGIES[name]
    (root / "disk").mkdir(parents=True)
    with two_hosts(inject.wire_of(root / "disk" / "run")) as hosts:
        words = [word for word in strategy.words if not word.startswith(("devices=", "workers="))]
        if strategy.is_grid:
            words += ["workers=1", f"coordinator={hosts[0].address}:{PORT}"]
        start = start_grid(hosts) if strategy.is_grid else start_ranks(hosts)
        found = disturb(start, replace(strategy, words=tuple(words)), draw_network_faults(name, count, seed), root)
    return found | {"not_run": ""}
