"""Foreign run folders and exported files whose checksums agree with their content."""

import json
import shutil
import struct
from pathlib import Path
from random import Random

import paragan
from paragan.runs.open_run import open_run
from tests.attacks import small_run
from tests.attacks.mutations import VALUES, dump, mutate_bytes, mutate_json


def _change(draws: Random, path: Path) -> None:
    """A JSON file or the header of a safetensors file as a value, or the bytes of any file."""
    data = path.read_bytes()
    if draws.random() < 0.3:
        data = mutate_bytes(draws, data)
    elif path.suffix == ".json":
        data = dump(mutate_json(draws, json.loads(data)))
    else:
        data = _with_other_header(draws, data)
    path.write_bytes(data)


def _with_other_header(draws: Random, data: bytes) -> bytes:
    """A safetensors file: 8 bytes of length, a JSON header, the tensors. Metadata are strings that may hold JSON."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.get("__metadata__", {})
    if metadata and draws.random() < 0.8:
        key = draws.choice(list(metadata))
        try:
            metadata[key] = json.dumps(mutate_json(draws, json.loads(metadata[key])))
        except ValueError:
            metadata[key] = str(draws.choice(VALUES))
    else:
        header = mutate_json(draws, header)
    text = dump(header)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _with_one_checkpoint(folder: Path) -> tuple[Path, Path]:
    """A run and its newest checkpoint, without an older one to fall back to."""
    run = small_run.copy("run", folder)
    newest = small_run.newest_checkpoint(run)
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint != newest:
            shutil.rmtree(checkpoint)
    return run, newest


def fuzz_manifest(draws: Random, folder: Path) -> None:
    run, checkpoint = _with_one_checkpoint(folder)
    _change(draws, checkpoint / "manifest.json")
    paragan.load(run).sample(1, seed=0)


def fuzz_state(draws: Random, folder: Path) -> None:
    run, checkpoint = _with_one_checkpoint(folder)
    _change(draws, checkpoint / "state.json")
    small_run.sign(checkpoint)
    open_run(run)


def fuzz_weights(draws: Random, folder: Path) -> None:
    run, checkpoint = _with_one_checkpoint(folder)
    _change(draws, checkpoint / draws.choice(("g.safetensors", "d.safetensors")))
    small_run.sign(checkpoint)
    open_run(run)
    paragan.load(run).sample(1, seed=0)


def fuzz_exported(draws: Random, folder: Path) -> None:
    exported = small_run.copy("exported", folder)
    _change(draws, exported / "generator.safetensors")
    paragan.load(exported / "generator.safetensors").sample(1, seed=0)


TARGETS = {"manifest": fuzz_manifest, "state": fuzz_state, "weights": fuzz_weights, "exported": fuzz_exported}
