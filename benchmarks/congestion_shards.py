"""Shards of `benchmarks.congestion`, and the one function with which its loaders read a sample from a proxy."""

from __future__ import annotations

import http.client
import io
import json
import os
import tarfile
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import torch
from PIL import Image

NUM_SHARDS = 4
SAMPLES = 500  # of a shard
_TIMEOUT_S = 60
_connections = threading.local()


def write_shards(folder: Path, height: int) -> None:
    """Write tar files of JPEG images of smooth noise, with an index of offsets."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    places = []
    for shard in range(NUM_SHARDS):
        path = folder / f"shard-{shard}.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(SAMPLES):
                image = Image.fromarray(draw.integers(0, 256, (8, 8, 3), np.uint8)).resize((height, height))
                data = io.BytesIO()
                image.save(data, "jpeg")
                member = tarfile.TarInfo(f"{number:06d}.jpg")
                member.size = len(data.getvalue())
                data.seek(0)
                tar.addfile(member, data)
        with tarfile.open(path) as tar:
            places += [(path.name, member.offset_data, member.size) for member in tar]
    (folder / "index.json").write_text(json.dumps(places))


def read_index(url: str) -> list[tuple[str, int, int]]:
    """Return shard, offset and size of all samples."""
    with urllib.request.urlopen(f"{url}/index.json", timeout=_TIMEOUT_S) as response:
        return [tuple(place) for place in json.load(response)]


def read_sample(url: str, place: tuple[str, int, int]) -> bytes:
    """Request the bytes of a sample on this thread's connection."""
    shard, offset, size = place
    key = f"{os.getpid()} {url}"  # a worker process has connections of its own
    connection = vars(_connections).get(key)
    if connection is None:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=_TIMEOUT_S)
        vars(_connections)[key] = connection
    connection.request("GET", f"/{shard}", headers={"Range": f"bytes={offset}-{offset + size - 1}"})
    data = connection.getresponse().read()
    assert len(data) == size
    return data


def decode(data: bytes) -> torch.Tensor:
    """Return an image, uint8 (C, H, W)."""
    return torch.from_numpy(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).copy()).permute(2, 0, 1)
