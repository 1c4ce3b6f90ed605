"""SIGKILL at a file-system call of a whole run: `python -m tests.attacks.kill_points FOLDER EVERY [SETTING ...]`.

One process imports everything and trains nothing; each run is a fork of it. The undisturbed run counts its calls in
the run folder. Then, for every EVERY-th call, one run is killed just before that call, the same command runs to the
end, and both folders are compared. Prints one JSON object: {"calls": int, "kills": int, "failed": {call: reason}}.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

import paragan.runs.train  # noqa: F401 once, not in every fork
from paragan.cli.main import main
from paragan.engine import telemetry
from paragan.features.base import classifier as classifier

RUN_S = 120.0  # no run may take longer
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CALLS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_VOLATILE = ("run.lock", "environment.json", "report.html")  # process ids, command lines, times


class Calls:
    """Counts the file-system calls that change anything below `folder`, and kills the process before one of them."""

    def __init__(self, folder: Path, kill_before: int = 0) -> None:
        self.folder, self.kill_before, self.count = str(folder), kill_before, 0
        self._fsync = os.fsync

    def install(self) -> None:
        """For the rest of the process: an audit hook cannot be removed. `os.fsync` raises no audit event."""
        sys.addaudithook(self._hear)
        os.fsync = self._sync

    def _hear(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and self._is_inside(path):
                self._call()
        elif event in _CALLS and self._is_inside(arguments[0]):
            self._call()

    def _is_inside(self, path) -> bool:
        # removals below a directory handle name the entry alone
        return isinstance(path, (str, Path)) and (str(path).startswith(self.folder) or not os.path.isabs(path))

    def _sync(self, handle: int) -> None:
        self._call()
        self._fsync(handle)

    def _call(self) -> None:
        self.count += 1
        if self.count == self.kill_before:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, words: list[str], kill_before: int = 0) -> tuple[int, int]:
    """Run in a fork; its wait status and the number of calls that it made (0 if it was killed)."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        code = 99
        try:
            with open(folder.with_suffix(".log"), "a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            calls = Calls(folder, kill_before)
            calls.install()
            code = main(["train", "digits", *words, "--out", str(folder)])
            os.write(writer, str(calls.count).encode())
        finally:
            os._exit(code)
    os.close(writer)
    deadline = time.monotonic() + RUN_S
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"a run took longer than {RUN_S:.0f} s (killed before call {kill_before})")
        time.sleep(0.005)
    counted = os.read(reader, 32)
    os.close(reader)
    return ended[1], int(counted or 0)


def contents(folder: Path) -> dict[str, str]:
    """sha256 of every file that two equal runs have in common, and the steps of the record."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in _VOLATILE and name != "metrics.jsonl":
            text = path.read_bytes()
            if name == "score.json":
                text = json.dumps(_without_times(json.loads(text))).encode()
            found[name] = hashlib.sha256(text).hexdigest()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["steps of the record"] = str([line["step"] for line in lines if line["kind"] == "step"])
    return found


def _without_times(value):
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if not key.endswith(("seconds", "_s", "time"))}
    return value


def difference(expected: dict[str, str], found: dict[str, str]) -> str:
    """The names that differ; empty where there are none."""
    names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    return ", ".join(names[:5])


def attack(root: Path, every: int, words: list[str]) -> dict:
    torch.set_num_threads(1)
    classifier.STEPS, telemetry.NUM_IMAGES = 20, 32  # a judge of little skill judges all runs alike
    straight = root / "straight"
    status, calls = train(straight, words)
    if status != 0:
        raise RuntimeError(
            f"the undisturbed run ended with {status}: {straight.with_suffix('.log').read_text()[-2000:]}"
        )
    expected, failed, kills = contents(straight), {}, 0
    for call in range(1, calls + 1, every):
        folder = root / f"killed-{call}"
        status, _ = train(folder, words, kill_before=call)
        kills += 1
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            failed[call] = f"the run was not killed: it ended with {status}"
            continue
        status, _ = train(folder, words)
        reason = f"the same command ended with {status}" if status else difference(expected, contents(folder))
        if reason:
            failed[call] = reason
        else:
            shutil.rmtree(folder)
    return {"calls": calls, "kills": kills, "failed": failed}


if __name__ == "__main__":
    print(json.dumps(attack(Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3:])))
