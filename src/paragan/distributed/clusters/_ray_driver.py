"""The ranks of a job on a Ray cluster: an actor on each node starts them, and starts them again.

`launch ray` fills in JOB, and `ray job submit` runs the file. It needs nothing but Ray.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

JOB: dict[str, Any] = {}

STOPPED = 85  # saved, or the node failed: starting again is not counted as a failure
FAILED = 75
MOST_STOPS = 100
POLL_S = 0.5
ANSWER_S = 60.0  # until a node that does not answer has failed
PLACE_S = 30.0
stopping = threading.Event()


class NodeRanks:
    """Actor of one node: its ranks, as child processes, which stop if this process ends."""

    def __init__(self) -> None:
        self.ranks: list[subprocess.Popen[bytes]] = []

    def address(self) -> dict[str, str]:
        """Return variables that name this node and a free port."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return {"MASTER_ADDR": ray.util.get_node_ip_address(), "MASTER_PORT": str(port)}

    def start(self, words: list[str], directory: str, variables: dict[str, str], first: int) -> None:
        """Start the ranks of this node."""
        for local in range(int(variables["LOCAL_WORLD_SIZE"])):
            place = {"RANK": str(first + local), "LOCAL_RANK": str(local)}
            environment = os.environ | variables | place
            self.ranks.append(subprocess.Popen(words, cwd=directory, env=environment))

    def codes(self) -> list[int | None]:
        """Return exit codes as a shell has them; None: the rank runs."""
        codes = [rank.poll() for rank in self.ranks]
        return [code if code is None or code >= 0 else 128 - code for code in codes]

    def send(self, number: int) -> None:
        """Send a signal to the ranks that run."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.send_signal(number)


def call(nodes: list[Any], method: str, *arguments: Any) -> list[Any]:
    """Return the results of a method on each node; None for a node that has failed."""
    import ray

    calls = [getattr(node, method).remote(*arguments) for node in nodes]
    results = []
    for answer in calls:
        try:
            results.append(ray.get(answer, timeout=ANSWER_S))
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            print(f"a node failed: {type(error).__name__}", flush=True)
            results.append(None)
    return results


def supervise(nodes: list[Any]) -> int:
    """Wait until all ranks have ended; return the code that decides what follows.

    The first rank that ends, or a request to stop, leaves the others the time to save.
    """
    deadline = None
    is_sent = False
    while True:
        answers = call(nodes, "codes")
        codes = list(chain.from_iterable(answer or [STOPPED] for answer in answers))
        if None not in codes:
            return STOPPED if STOPPED in codes else max(codes)
        if deadline is None and (stopping.is_set() or any(code is not None for code in codes)):
            deadline = time.monotonic() + JOB["save_s"]
        if stopping.is_set() and not is_sent:
            call(nodes, "send", signal.SIGTERM)
            is_sent = True
        if deadline is not None and time.monotonic() > deadline:
            call(nodes, "send", signal.SIGKILL)
        time.sleep(POLL_S)


def run_once(words: list[str]) -> int:
    """Place the nodes, wait for resources as a job in a queue does, and run all ranks once."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Place

    group = ray.util.placement_group([JOB["resources"]] * JOB["nodes"], strategy="STRICT_SPREAD")
    try:
        while not group.wait(PLACE_S):
            print(f"waiting for {JOB['nodes']} nodes with {JOB['resources']}", flush=True)
            if stopping.is_set():
                return STOPPED
        share = {"num_cpus": 0, "num_gpus": JOB["resources"].get("GPU", 0)}
        places = [Place(group, placement_group_bundle_index=index) for index in range(JOB["nodes"])]
        kind = ray.remote(NodeRanks)
        nodes = [kind.options(**share, scheduling_strategy=place).remote() for place in places]
        (master,) = call(nodes[:1], "address")
        if master is None:
            return STOPPED
        variables = {**JOB["environment"], **master}
        ranks = int(variables["LOCAL_WORLD_SIZE"])
        for index, node in enumerate(nodes):
            call([node], "start", words, JOB["directory"], variables, index * ranks)
        return supervise(nodes)
    finally:
        ray.util.remove_placement_group(group)


def run_until_done(words: list[str]) -> int:
    """Run all ranks until they finish or fail for good; return the exit code."""
    failures = 0
    for _ in range(MOST_STOPS + JOB["retries"]):
        code = run_once(words)
        if code != STOPPED and code != FAILED and code < 128:
            return code
        failures += code != STOPPED
        if stopping.is_set() or failures > JOB["retries"]:
            return code
        print(f"ended with exit code {code}; starting again", flush=True)
    return STOPPED


def _main() -> int:
    """Train all runs of JOB at the same time, as far as the cluster has room."""
    import ray

    ray.init(address="auto")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with ThreadPoolExecutor(len(JOB["runs"])) as pool:
        return max(pool.map(run_until_done, JOB["runs"]))


if __name__ == "__main__":
    sys.exit(_main())
