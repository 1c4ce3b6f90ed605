"""Pipes and endless devices in place of the files of a run folder: one line, no wait, no memory."""

import os
import resource
import shutil
import signal
import tracemalloc
from pathlib import Path

import pytest

from paragan.checkpoint.best import Best
from paragan.cli.main import main
from paragan.core.files import read_bytes
from paragan.datasets import digits
from paragan.distributed.launch import exit_status
from paragan.export.bundle import read_score
from paragan.features import judge
from tests.tiny_run import SMALL, TINY, newest, train

TRAIN = ("train", "digits", *TINY, *SMALL, "--out", "RUN")
SPACE = 4 << 30  # bytes of address space that a test may add


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endless") / "run"
    train(folder)
    shutil.copytree(newest(folder), folder / "best")
    (folder / "metrics.jsonl").write_text('{"kind": "start", "step": 0, "kimg": 0}\n')
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(autouse=True)
def bounded():
    """Ends a test that waits, or that reads without end."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    former = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("waited for a file that never ends"))
    signal.alarm(60)
    resource.setrlimit(resource.RLIMIT_AS, (size + SPACE, hard))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def endless(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


KINDS = pytest.mark.parametrize("kind", ["pipe", "device"])
SAMPLE, BEST, EXPORT, EVAL = ("sample", "RUN"), ("sample", "RUN", "--best"), ("export", "RUN"), ("eval", "RUN")


@KINDS
@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        *(
            (f"checkpoints/step-000000004/{name}", SAMPLE, 2)
            for name in ("manifest.json", "state.json", "g.safetensors")
        ),
        *((f"checkpoints/step-000000004/{name}", EVAL, 2) for name in ("manifest.json", "state.json", "d.safetensors")),
        *((f"best/{name}", BEST, 2) for name in ("manifest.json", "state.json", "g.safetensors")),
        ("config.yaml", SAMPLE, 2),
        ("score.json", EXPORT, 0),
        *(("generator.safetensors", words, 0) for words in (SAMPLE, EXPORT)),  # no file: the run folder is read
        ("metrics.jsonl", TRAIN, 2),
        ("run.lock", TRAIN, 2),
        ("config.yaml", TRAIN, 2),
        ("exit.json", TRAIN, 0),
        ("metrics.jsonl", ("report", "RUN"), 2),
        ("metrics.jsonl", ("watch", "RUN", "--once"), 2),
    ],
)
def test_a_verb_refuses_or_leaves_out_an_endless_file(run, name, kind, words, code, capfd):
    endless(run / name, kind)
    assert main([word.replace("RUN", str(run)) for word in words]) == code
    said = capfd.readouterr().err
    assert "Traceback" not in said and (code == 0 or len(said.splitlines()) <= 3), said


@KINDS
def test_the_files_of_judge_best_score_and_ranks_are_left_out(run, kind):
    for name in ("judge/judge.json", "judge/judge.safetensors"):
        endless(run / name, kind)
        assert judge._load(digits.source(digits.Options(), "train"), run / "judge", "fingerprint", 0) is None
    endless(run / "best" / "score.json", kind)
    assert Best(run / "best")._read_score() == {} == read_score(run, best=True)
    endless(run / "ranks" / "rank-0.exit.json", kind)
    assert exit_status.read_all(run, "none") == []


@KINDS
def test_an_exported_file_that_never_ends_is_refused(tmp_path, kind, capfd):
    endless(tmp_path / "generator.safetensors", kind)
    for path in (tmp_path, tmp_path / "generator.safetensors"):
        assert main(["sample", str(path)]) == 2
    assert all("pass a run folder" in line for line in capfd.readouterr().err.splitlines())


def test_reading_a_small_file_takes_no_memory_for_its_largest_size(tmp_path):
    """`read(most)` of a buffered file allocates `most` bytes, which a process with `ulimit -v` does not have."""
    (tmp_path / "a").write_bytes(b"123")
    tracemalloc.start()
    try:
        assert read_bytes(tmp_path / "a", 1 << 30) == b"123"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert read_bytes(tmp_path / "a", 3) == b"123"
    with pytest.raises(OSError, match="more than 2 bytes"):
        read_bytes(tmp_path / "a", 2)


CONFIGS = {  # of pipes and devices: above
    "bytes": lambda path: path.write_bytes(b"seed: \xff\n"),
    "large": lambda path: path.write_bytes(b"# " + b"x" * (1 << 21)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_that_cannot_be_read_is_refused_when_its_run_resumes(run, kind, capfd):
    """A session compares the config with what the last one has written."""
    CONFIGS[kind](run / "config.yaml")
    assert main([word.replace("RUN", str(run)) for word in TRAIN]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "config.yaml" in line and "Traceback" not in line
