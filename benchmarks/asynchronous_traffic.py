"""Bytes that four ranks send per step: synchronous (`ddp`) against two ranks of G and two of D, counted and measured.

    python -m benchmarks.asynchronous_traffic digits|mnist [DATA] [--steps 200]

Every row is a run of `paragan train` on four ranks in a network namespace of its own, whose only interface is the
loopback. Measured: the bytes of that interface (/proc/net/dev), with the headers of packets and everything else that
the processes say to each other, of a run of STEPS + 40 steps less one of 40. Counted: the record's `traffic` of the
longer run, from step 40 on. Needs root and `ip`; else it prints why it did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.record import write
from tests.shaped_hosts import ROOT, lacking

RANKS, FIRST, TIMEOUT_S = 4, 40, 900
LIMITS = {"preset paragan, H = 1": 0.5, "preset paragan": 0.3}  # of what `sync` sends
TABLES = {
    "digits": ("digits",),
    "mnist": ("dcgan-mnist", "model.width=32", "train.batch=64"),
}
_EVERY_OTHER = ("g.strategy={name: local_sgd, every: 2}", "d.strategy={name: local_sgd, every: 2}")
_EVERY = ("g.strategy=ddp", "d.strategy=ddp")
ROWS: dict[str, tuple[str, ...]] = {
    "sync": (),
    "sync, H = 2": _EVERY_OTHER,
    "async": ("scheme.name=asynchronous",),
    "async, H = 2": ("scheme.name=asynchronous", *_EVERY_OTHER),
    "preset paragan, H = 1": ("preset=paragan", *_EVERY),
    "preset paragan": ("preset=paragan",),
}


@contextmanager
def loopback() -> Iterator[str]:
    """The name of a network namespace that has nothing but a loopback interface."""
    name = f"pg{os.getpid()}lo"
    try:
        for words in (("netns", "add", name), ("netns", "exec", name, "ip", "link", "set", "lo", "up")):
            subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], timeout=30, check=False, capture_output=True)


def interface_bytes(name: str) -> int:
    """Bytes that its loopback interface has carried: received equals sent."""
    command = ["ip", "netns", "exec", name, "cat", "/proc/net/dev"]
    lines = subprocess.run(command, check=True, timeout=30, capture_output=True, text=True).stdout.splitlines()
    (values,) = (line.partition(":")[2].split() for line in lines if line.strip().startswith("lo:"))
    return int(values[0])


def measured(table: Sequence[str], row: Sequence[str], data: str | None, steps: int, batch: int) -> tuple[int, Path]:
    """Bytes on the interface of one run, and its folder."""
    out = Path(tempfile.mkdtemp(prefix="traffic-")) / "run"
    words = [*table, f"devices={RANKS}", f"train.kimg={steps * batch / 1000}", f"train.batch={batch}"]
    words += ["evaluation.features=null", "every.sample_kimg=0", "every.save_kimg=0", "every.score_kimg=0"]
    words += ["every.log_steps=20", "writers=[jsonl]", *([] if data is None else [f"data.path={data}"]), *row]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "paragan", "train", *words, "--out", str(out)]
    with loopback() as name:
        done = subprocess.run(
            ["ip", "netns", "exec", name, *command], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return interface_bytes(name), out


def counted(out: Path, kind: str) -> dict[str, float]:
    """Mean bytes per step after the first steps, by kind of content; kind: `sent` or `links`."""
    lines = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    found = [line for line in lines if line["kind"] == "traffic" and line["step"] > FIRST]
    steps = sum(line["steps"] for line in found)
    kinds = sorted({name for line in found for name in line[kind]})
    return {name: round(sum(line["steps"] * line[kind].get(name, 0) for line in found) / steps) for name in kinds}


def row_of(table: Sequence[str], words: Sequence[str], data: str | None, steps: int, batch: int) -> dict[str, Any]:
    """Bytes per step of one row."""
    began = time.monotonic()
    short, _ = measured(table, words, data, FIRST, batch)
    long, out = measured(table, words, data, FIRST + steps, batch)
    links, sent = counted(out, "links"), counted(out, "sent")
    return {
        "settings": list(words),
        "measured on the interface": round((long - short) / steps),
        "links": sum(links.values()),
        "links by kind": links,
        "sent": sum(sent.values()),
        "sent by kind": sent,
        "seconds": round(time.monotonic() - began),
    }


def print_results(rows: dict[str, dict[str, Any]]) -> None:
    """The table on the console, as the page has it."""
    print("| settings | KB on links, counted | of `sync` | KB measured | of `sync` |\n|---|---:|---:|---:|---:|")
    for name, row in rows.items():
        links, lo = row["links"] / 1000, row["measured on the interface"] / 1000
        missed = "" if row["ratio measured"] <= LIMITS.get(name, 9.0) else "  MISSED"
        print(f"| {name} | {links:,.0f} | {row['ratio']:.2f} | {lo:,.0f} | {row['ratio measured']:.2f}{missed} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.asynchronous_traffic")
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("data", nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    if reason := lacking():
        print(f"not run: {reason}")
        return
    rows: dict[str, dict[str, Any]] = {}
    for name, words in ROWS.items():
        row = row_of(TABLES[given.table], words, given.data, given.steps, given.batch)
        base = rows.get("sync", row)
        row["ratio"] = round(row["links"] / base["links"], 3)
        row["ratio measured"] = round(row["measured on the interface"] / base["measured on the interface"], 3)
        rows[name] = row
        print(f"{name}: {row['links']:,} counted, {row['measured on the interface']:,} measured", flush=True)
    print_results(rows)
    about = {"unit": "bytes per step, all ranks", "ranks": RANKS, "batch": given.batch, "steps": given.steps}
    write(f"asynchronous-traffic-{given.table}", {**about, "limits": LIMITS, "rows": rows})


if __name__ == "__main__":
    main()
