"""Programs of the tests of decoding processes: sources in a .py file, and a loop that is killed."""

from __future__ import annotations

OUTSIDE = '''
import os, signal, time
import torch
import paragan as pg


class Numbers(pg.EncodedSource):
    """A hundred numbers. Row 7 raises an error of this file, row 8 kills its process, row 9 hangs."""

    fingerprint = "numbers"
    tensors = {"number": pg.TensorSpec((), torch.int64), "half": pg.TensorSpec((2, 3), torch.bfloat16)}

    def __len__(self):
        return 100

    def read(self, rows):
        return [bytes([row]) for row in rows]

    def decode(self, encoded, rows, places=None, seed=0):
        if os.getpid() != PARENT:
            self.fail(rows)
        numbers = torch.tensor([data[0] for data in encoded])
        return {"number": numbers, "half": numbers.to(torch.bfloat16)[:, None, None].repeat(1, 2, 3)}

    def fail(self, rows):
        if 7 in rows:
            raise Worse("seven")
        if 8 in rows:
            os.kill(os.getpid(), signal.SIGKILL)
        if 9 in rows:
            time.sleep(60)


class Worse(Exception):
    pass


def source(options, split):
    return Numbers()
'''

HANGING = """
import time
import torch
import paragan as pg


class Hanging(pg.EncodedSource):
    fingerprint = "hanging"
    tensors = {"number": pg.TensorSpec((), torch.int64)}

    def __len__(self):
        return 9

    def read(self, rows):
        return [b"1"] * len(rows)

    def decode(self, encoded, rows, places=None, seed=0):
        print("decodes", flush=True)
        time.sleep(100)


def source(options, split):
    return Hanging()
"""

LOOP = """
import sys, threading
import torch
import paragan as pg
from paragan.core import registry

class Mine(pg.EncodedSource):
    fingerprint = "mine"
    tensors = {"number": pg.TensorSpec((), torch.int64)}
    def __len__(self):
        return 9
    def read(self, rows):
        return [b"1"] * len(rows)
    def decode(self, encoded, rows, places=None, seed=0):
        return {"number": torch.ones(len(rows), dtype=torch.int64)}

try:
    next(pg.loading.TensorBatches(Mine(), 2, decoders=1, decode="processes"))
except pg.ConfigError as error:
    print(error, flush=True)
source = registry.load_module("datasets", sys.argv[2]).source(None, "train")
hanging = pg.loading.TensorBatches(source, 2, decoders=1, decode="processes")
threading.Thread(target=next, args=(hanging,), daemon=True).start()
batches = pg.loading.TensorBatches(pg.loading.open_images(sys.argv[1], size=8), 6, decoders=1, decode="processes")
next(batches)
print("ready", flush=True)
while True:
    next(batches)
"""
