"""Foreign run folders and exported files whose checksums agree with their content, and records of runs."""

import contextlib
import io
import json
import shutil
import struct
from pathlib import Path
from random import Random

import paragan
from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.engine.advice import advise
from paragan.engine.session import read_history
from paragan.runs.open_run import open_run
from paragan.writers import jsonl
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


def _change_record(draws: Random, path: Path) -> None:
    """Values of some lines, or bytes anywhere."""
    lines = path.read_bytes().splitlines()
    if draws.random() < 0.3:
        path.write_bytes(mutate_bytes(draws, path.read_bytes()))
        return
    for _ in range(draws.randint(1, 4)):
        at = draws.randrange(len(lines))
        try:
            lines[at] = dump(mutate_json(draws, json.loads(lines[at])))
        except ValueError:  # mutated before
            lines[at] = mutate_bytes(draws, lines[at])
    path.write_bytes(b"\n".join(lines) + b"\n")


def fuzz_record(draws: Random, folder: Path) -> None:
    run = small_run.copy("run", folder)
    unchanged = shutil.copytree(run, folder / "unchanged")
    page = folder / "compare.html"
    _change_record(draws, run / "metrics.jsonl")
    commands = [["report", str(run)], ["watch", str(run), "--once"]]
    if draws.random() < 0.2:
        commands.append(["compare", str(unchanged), str(run), "--out", str(page)])
    for words in commands:
        shown, message = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(message):
            code = main(words)
        if "\x1b" in shown.getvalue() + message.getvalue():
            raise AssertionError(f"{words[0]} printed an escape sequence of the record")
        if code != 0:
            raise DataError(message.getvalue() or "refused without a word")
    if any("<script>alert" in file.read_text() for file in (run / "report.html", page) if file.exists()):
        raise AssertionError("a page contains a script of the record")


def fuzz_resumed_record(draws: Random, folder: Path) -> None:
    """What a run reads of its record when it resumes at step 2."""
    run = small_run.copy("run", folder)
    path = run / "metrics.jsonl"
    for _ in range(draws.randint(1, 3)):
        _change_record(draws, path)
    lines = read_history(path, 2)
    advise([line for line in lines if line["kind"] in ("telemetry", "score")], 100)
    jsonl.Writer(None, run, 2).close()


TARGETS = {
    "manifest": fuzz_manifest,
    "state": fuzz_state,
    "weights": fuzz_weights,
    "exported": fuzz_exported,
    "record": fuzz_record,
    "resumed-record": fuzz_resumed_record,
}
