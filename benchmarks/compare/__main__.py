"""Steps of paragan and of its peers in turn, on this machine.

    python -m benchmarks.compare [PEER=PATH ...] [--only PEER ...] [--pairs 15] [--name compare] [--add]

PATH: a checkout, or a folder of installed packages. A peer that is not here is a row with the reason. CPU seconds at
one thread, theirs / ours, pair by pair. Aim: >= 1 in the column `equal`.
"""

from __future__ import annotations

import argparse
import json
from datetime import date

from benchmarks.compare.table import markdown, names, rows
from benchmarks.record import RESULTS, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PEER=PATH")
    parser.add_argument("--only", nargs="*", choices=names(), default=names())
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--name", default="compare", help="of the file of results")
    parser.add_argument("--add", action="store_true", help="to the rows of other peers in today's file")
    arguments = parser.parse_args()
    paths = dict(word.partition("=")[::2] for word in arguments.paths)
    if unknown := sorted(paths.keys() - set(names())):
        parser.error(f"unknown peer {unknown[0]}; choose one of {', '.join(names())}")
    path = RESULTS / f"{date.today().isoformat()}-{arguments.name}.json"
    before = json.loads(path.read_text())["rows"] if arguments.add and path.exists() else []
    found = [row for row in before if row["peer"] not in arguments.only]
    for peer in arguments.only:
        found += rows(peer, paths, arguments.pairs)
    found.sort(key=lambda row: row["peer"])
    print(markdown(found))
    note = "CPU seconds of theirs / ours; equal: float32, same order of operations; defaults: of the recipe"
    write(arguments.name, {"threads": 1, "note": note, "rows": found})


if __name__ == "__main__":
    main()
