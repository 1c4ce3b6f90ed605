"""The process of one side: prints one line of JSON, then CPU seconds of a step for each line that it reads.

python -m benchmarks.compare.child PEER WORK [PATH]
python -m benchmarks.compare.child paragan WORK [SETTING ...]
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.compare import stand_ins
from benchmarks.compare.works import Prepared, ours


class NotRun(Exception):
    """Reason why a peer cannot be compared here."""


def prepare(peer: str, work: str, words: list[str]) -> tuple[Prepared, tuple[str, ...]]:
    """Return one side, and the packages that stand-ins replace in it."""
    if peer == "paragan":
        return ours(work, tuple(words)), ()
    adapter: Any = importlib.import_module(f"benchmarks.compare.peers.{peer}")
    path = Path(words[0]).resolve() if words else None
    if adapter.SOURCE is not None and (path is None or not (path / adapter.SOURCE).is_file()):
        where = f"no {adapter.SOURCE} in {path}" if path else "no checkout"
        raise NotRun(f"{where}; pass {peer}=PATH")
    if path is not None:
        sys.path[:0] = [str(path / folder) for folder in getattr(adapter, "FOLDERS", (".",))]
    absent = stand_ins.install(getattr(adapter, "STAND_INS", ()))
    return adapter.prepare(work, path), absent


def parameters(side: Prepared) -> list[int]:
    """Return the number of parameters of G and of D."""
    return [sum(p.numel() for p in net.parameters()) for net in side.networks]


def main(peer: str, work: str, *words: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with os.fdopen(os.dup(1), "w") as answers, contextlib.redirect_stdout(sys.stderr):  # peers print
        try:
            side, absent = prepare(peer, work, list(words))
            side.step()
        except (Exception, SystemExit) as error:  # of whatever the peer does
            reason = str(error) if isinstance(error, NotRun) else f"{type(error).__name__}: {error}"
            print(json.dumps({"reason": reason.splitlines()[0]}), file=answers, flush=True)
            return
        found = {"version": side.version, "parameters": parameters(side), "stand_ins": absent}
        print(json.dumps(found), file=answers, flush=True)
        for _ in sys.stdin:
            start = time.process_time()
            side.step()
            print(time.process_time() - start, file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
