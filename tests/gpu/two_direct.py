"""One of some workers with a device each: `python -m tests.gpu.two_direct FOLDER RANK SIZE KIND WHAT`.

What it tells is in FOLDER/told-RANK. KIND cpu: another backend is in the place of the accelerators' own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.distributed.transports.nccl_communicator import NcclCommunicator
from paragan.hardware import peers
from tests.distributed.cases_communicators import MOST_BYTES, PATIENCE_S, graph_of, mishap, play
from tests.distributed.cases_direct import Device


def join(store, rank, graph, device, **options):
    """Its messages come from the host, and return there."""
    pair = Device().pair if device.type == "cpu" else peers.connect_nccl_pair
    comm = NcclCommunicator(
        store, options.pop("name", "m"), rank, len(graph), graph[rank], device=device, pair=pair,
        **{"most_bytes": MOST_BYTES, "timeout_s": PATIENCE_S, **options},
    )  # fmt: skip
    usual = comm.exchange

    def exchange(sends):
        found = usual({peer: [tensor.to(device) for tensor in tensors] for peer, tensors in sends.items()})
        assert all(tensor.device == device for tensors in found.values() for tensor in tensors)
        return {peer: [tensor.cpu() for tensor in tensors] for peer, tensors in found.items()}

    comm.exchange = exchange
    return comm


def main(folder, rank, size, kind, what):
    device = torch.device(kind) if kind == "cpu" else torch.device(kind, 0 if what == "one" else rank)
    store, told = dist.FileStore(str(folder / "store"), size), {}
    if what in ("equals", "one"):
        graph = graph_of(size, [(a, b) for b in range(size) for a in range(b)])
        try:
            comm = join(store, rank, graph, device, timeout_s=30.0)
            play(comm, graph, 20)
            comm.close()
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"}
    else:
        told = mishap(lambda name, _, graph, **o: join(store, rank, graph, device, name=name, **o), rank, size, what)
    (folder / f"told-{rank}").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6])
