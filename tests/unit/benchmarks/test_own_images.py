"""Benchmarks of the recipe `own`: what counts as lost, the limit of CPU time, folders that are made."""

import json
import signal
import sys
import time

import pytest

from benchmarks import own_curves, own_folders, own_images


def stored_run(folder, fd, r1=(1.0,)):
    lines = [{"kind": "step", "kimg": 1.0, "d/loss/r1": term} for term in r1]
    lines += [{"kind": "score", "kimg": 0.0, "fd[judge]": 50.0, "real": {"fd[judge]": 1.5}}]
    lines += [
        {"kind": "score", "kimg": 4.0 * number, "fd[judge]": value, "real": {"fd[judge]": 1.5}}
        for number, value in enumerate(fd, start=1)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return own_images.outcome(folder)


@pytest.mark.parametrize(
    ("fd", "r1", "lost", "fell"),
    [
        ([20, 18, 12, 11, 8, 7], [1.0, 5.0], False, True),
        ([20, 18, 12, 11, 13, 14], [1.0, 5.0], False, False),
        ([20, 18, 12, 11, 30, 40], [1.0, 5.0], True, False),
        ([20, 18, 12, 11, 8, 7], [1.0, 667.0], True, True),
        ([], [1.0], True, False),
    ],
)
def test_a_run_is_lost_by_an_exploding_penalty_or_by_a_score_far_from_its_best(tmp_path, fd, r1, lost, fell):
    result = stored_run(tmp_path / "run", fd, r1)
    assert (result["lost"], result["fell"]) == (lost, fell)


def test_thirds_of_a_score_take_all_values_between_first_and_last():
    assert own_images._fell([3, 2, 2, 2, 1])
    assert not own_images._fell([3, 9, 2, 2, 1])  # the middle is 9, 2, 2
    assert not own_images._fell([3, 2])


def test_a_command_is_interrupted_when_its_cpu_time_is_over(tmp_path):
    program = (
        "import signal, sys, time\n"
        "def stop(*_):\n"
        "    open(sys.argv[1], 'w').write(str(time.process_time()))\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGINT, stop)\n"
        "while True: pass\n"
    )
    path = tmp_path / "seconds"
    began_s = time.monotonic()
    own_images.train([sys.executable, "-IS", "-c", program, str(path)], cpu_s=0.3)
    assert 0.2 <= float(path.read_text()) < 1.5
    assert time.monotonic() - began_s < 30


def test_a_background_job_interrupts_its_runs_too(tmp_path):
    program = (
        "import sys\n"
        "try:\n"
        "    while True: sum(range(99))\n"
        "except KeyboardInterrupt:\n"
        "    open(sys.argv[1], 'w').write('interrupted')\n"
    )
    path = tmp_path / "end"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup … &` leaves it
    try:
        own_images.train([sys.executable, "-IS", "-c", program, str(path)], cpu_s=0.3)
    finally:
        signal.signal(signal.SIGINT, before)
    assert path.read_text() == "interrupted"


def test_which_folders_choose_and_which_check_is_fixed():
    assert not set(own_folders.CHOOSING) & set(own_folders.CHECKING)
    assert {*own_folders.CHOOSING, *own_folders.CHECKING, *own_folders.SPECIAL} == set(own_folders.MAKERS)


def test_a_package_with_another_hash_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(own_folders.Path, "home", lambda: tmp_path)
    cache = tmp_path / ".cache" / "paragan-benchmarks"
    cache.mkdir(parents=True)
    (cache / "region-flags-1.1.0.tgz").write_bytes(b"another")
    with pytest.raises(own_folders.ParaganError, match="region-flags"):
        own_folders.flags(tmp_path)


def test_curves_have_the_mean_of_seeds_where_all_have_a_score():
    runs = [
        {"folder": "flags", "size": 32, "fd": {"16": 12.0, "32": 8.0}},
        {"folder": "flags", "size": 32, "fd": {"16": 14.0, "32": 6.0, "48": 5.0}},
    ]
    assert own_curves._points([run["fd"] for run in runs]) == [(16.0, 13.0, 1.0), (32.0, 7.0, 1.0)]
    assert "fd at 32 px" in own_curves.curves(runs)
