"""The record of a run, metrics.jsonl: read by the report and `watch`, and by a run that resumes."""

import contextlib
import io
import json
import shutil
from pathlib import Path
from random import Random

from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.engine.advice import advise
from paragan.engine.session import read_history
from paragan.writers import jsonl
from tests.attacks import small_run
from tests.attacks.mutations import dump, mutate_bytes, mutate_json


def _change(draws: Random, path: Path) -> None:
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
    _change(draws, run / "metrics.jsonl")
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
        _change(draws, path)
    lines = read_history(path, 2)
    advise([line for line in lines if line["kind"] in ("telemetry", "score")], 100)
    jsonl.Writer(None, run, 2).close()


TARGETS = {"record": fuzz_record, "resumed-record": fuzz_resumed_record}
