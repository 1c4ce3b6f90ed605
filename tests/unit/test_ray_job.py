"""The driver of `launch ray` with a module that stands in for Ray; test_ray.py has the real one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import yaml

from paragan.core.errors import ConfigError
from paragan.distributed.clusters import load_target
from tests.cluster_jobs import HOSTILE, RECORDER, a_job, write_program
from tests.processes import ROOT, wait_for


def start_driver(folder: Path, program: str, code: str = "0", **changes) -> subprocess.Popen:
    """The rendered driver of two ranks on one node, whose ranks run a program."""
    python = str(write_program(folder / "program", program))
    values = {"nodes": 1, "python": python, "directory": folder, "retries": 2, **changes}
    (folder / "job.ray.py").write_text(load_target("ray").render(a_job(**values)), encoding="utf-8")
    (folder / "stand-in").mkdir()
    shutil.copy(ROOT / "tests" / "ray_stand_in.py", folder / "stand-in" / "ray.py")
    more = {"PYTHONPATH": str(folder / "stand-in"), "RECORD": str(folder / "record"), "CODE": code}
    return subprocess.Popen([sys.executable, "job.ray.py"], cwd=folder, env=os.environ | more)


def record(folder: Path) -> list[dict]:
    return [yaml.safe_load(line) for line in (folder / "record").read_text().splitlines()]


def test_driver_passes_hostile_words_unchanged_to_each_rank(tmp_path):
    place = tmp_path / "it's a $(folder)\n"
    place.mkdir()
    job = {"words": HOSTILE, "directory": place, "environment": (("VALUE", "$(touch planted)'\n\""),)}
    assert start_driver(tmp_path, RECORDER, out="run 'y'", **job).wait(60) == 0
    found = record(tmp_path)
    assert [start["words"] for start in found] == [["-P", "-m", "paragan", "train", *HOSTILE, "--out", "run 'y'"]] * 2
    assert sorted((start["RANK"], start["LOCAL_RANK"]) for start in found) == [("0", "0"), ("1", "1")]
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "VALUE", "directory")
    common = ("2", "2", "192.0.2.7", "$(touch planted)'\n\"", str(place))
    assert {tuple(start[name] for name in names) for start in found} == {common}
    assert (tmp_path / "record.groups").read_text() == "STRICT_SPREAD [{'CPU': 8}]\n"
    assert not list(tmp_path.rglob("planted"))


@pytest.mark.parametrize(
    ("codes", "ended", "starts"),
    [("2", 2, 1), ("1", 1, 1), ("75 0", 0, 2), ("75", 75, 3), ("137 85 85 85 0", 0, 5)],
)
def test_driver_starts_ranks_again_by_their_exit_codes(codes, ended, starts, tmp_path):
    assert start_driver(tmp_path, RECORDER, codes).wait(60) == ended
    assert len(record(tmp_path)) == 2 * starts
    assert (tmp_path / "record.groups").read_text().count("\n") == starts  # resources are requested anew


def test_driver_trains_a_run_for_each_seed(tmp_path):
    assert start_driver(tmp_path, RECORDER, seeds=(5, 9)).wait(60) == 0
    last = sorted(tuple(start["words"][-3:]) for start in record(tmp_path))
    assert last == [(f"seed={seed}", "--out", f"runs/digits/seed-{seed}") for seed in (5, 5, 9, 9)]


STOPPED_RANK = f"""#!{sys.executable}
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(85))
open(f"rank-{{os.environ['RANK']}}", "a").write("started\\n")
time.sleep(50)
"""


def test_driver_that_is_stopped_lets_its_ranks_save_and_starts_none_again(tmp_path):
    process = start_driver(tmp_path, STOPPED_RANK)
    files = [tmp_path / f"rank-{rank}" for rank in range(2)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 85
    assert [file.read_text() for file in files] == ["started\n"] * 2


def test_rank_that_does_not_end_is_killed_after_the_time_to_save(tmp_path):
    program = STOPPED_RANK.replace("os._exit(85)", "os.environ['RANK'] == '0' and os._exit(85)")
    process = start_driver(tmp_path, program, save_s=1)
    wait_for(lambda: all((tmp_path / f"rank-{rank}").exists() for rank in range(2)), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 85  # rank 1 would have slept for 50 s


def test_submission_names_the_file_and_the_time_to_stop():
    words = load_target("ray").submit(a_job(site=("--address=http://a:8265",)), PurePosixPath("launch/digits.ray.py"))
    assert words[:5] == ["ray", "job", "submit", "--working-dir", "launch"]
    assert words[-4:] == ["--address=http://a:8265", "--", "python3", "digits.ray.py"]
    assert '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "240"}}' in words
    with pytest.raises(ConfigError, match="--site"):
        load_target("ray").submit(a_job(site=("--",)), PurePosixPath("x"))
