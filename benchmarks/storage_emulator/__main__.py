"""Run the emulator as a process: prints its address, then a line of counts after each line of input.

python -m benchmarks.storage_emulator FOLDER|URL [NAME=VALUE …]    (the names of `Conditions`, and seed)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.storage_emulator.conditions import Conditions
from benchmarks.storage_emulator.proxy import serve
from benchmarks.storage_emulator.upstream import forward, read_files


def main(place: str, *words: str) -> None:
    given = {name: float(value) for name, _, value in (word.partition("=") for word in words)}
    seed = int(given.pop("seed", 0))
    upstream = forward(place) if place.startswith("http://") else read_files(Path(place))
    with serve(Conditions(**given), upstream, seed) as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            if line.strip() == "restart":
                server.restart()
            print(json.dumps({"seconds": server.seconds, "most_open": server.most_open, **server.counts}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
