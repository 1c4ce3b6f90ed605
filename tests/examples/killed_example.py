"""Trains an example in a folder, on this rank, and kills its process where it reads a batch; 0: never."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

BATCH = 4


def main(name: str, folder: str, steps: int, position: int) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    settings = {"train.batch": BATCH, "train.kimg": steps * BATCH / 1000, "every.save_kimg": 0.016}
    made = module.trainer(1, out=folder, settings=settings)  # settings decide the length
    fetch = made.source.fetch

    def killing(indices, places=None, seed=0):
        if position and places is not None and places[0] // BATCH == position:
            os.kill(os.getpid(), signal.SIGKILL)
        return fetch(indices, places, seed)

    made.source.fetch = killing
    made.run()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
