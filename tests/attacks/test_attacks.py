"""The attacks of this folder, each in its process; a few of every kind by default, all with `./run test all`."""

import json
import subprocess
import sys

import pytest

from tests.attacks.fuzz import MODULES
from tests.attacks.small_run import SETTINGS
from tests.processes import ROOT, environment

COUNTS = {  # inputs by target
    **{"yaml": 8_250, "overrides": 8_250},
    **{"idx": 2_000, "npz": 2_000, "zip": 1_750, "tar": 1_750, "folder": 1_200, "index": 1_000},
    **{"images": 24_000, "manifest": 1_000, "state": 1_000, "weights": 1_000, "exported": 1_000},
    **{"record": 1_000, "resumed-record": 4_500},
    **{"labels": 1_000, "tables": 1_000, "published": 1_000, "statistics": 1_000, "tokens": 1_000},
    **{"control": 1_000, "heartbeat": 1_000, "server": 1_000, "address": 1_000, "bucket": 1_000},
}
PLAIN = ("evaluation.features=null", "train.kimg=0.16", "every.save_kimg=0.016")
SCORED = ("evaluation.features=judge", "evaluation.num_images=16", "every.score_kimg=0.032")


FORKS = """
import json, os, runpy, sys
from paragan import build
for words in json.loads(sys.argv[1]):
    if (pid := os.fork()) == 0:
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, words
"""
FEW = {"fuzz": ("all", 6), "kill_points": (80, *SETTINGS, *PLAIN[:1], *PLAIN[2:]), "damage": (48,)}


def attack(module, *words, timeout_s):
    """What the attack prints, as JSON."""
    return read_json("-m", f"tests.attacks.{module}", *map(str, words), timeout_s=timeout_s)[-1]


def read_json(*words, timeout_s):
    """The lines of JSON that a new process prints."""
    env = environment(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}", PARAGAN_OFFLINE="1")
    command = [sys.executable, *words]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A few inputs of each attack; each runs in a fork of one process that has imported torch."""
    commands = []
    for module, words in FEW.items():
        folder = () if module == "fuzz" else (tmp_path_factory.mktemp(module),)
        commands.append([f"tests.attacks.{module}", *map(str, (*folder, *words))])
    return dict(zip(FEW, read_json("-c", FORKS, json.dumps(commands), timeout_s=280), strict=True))


def run_code(code, folder):
    env = environment(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}")
    command = [sys.executable, "-c", code, str(folder)]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr


def test_fuzz_targets_have_counts_that_add_up_to_the_stated_number():
    assert COUNTS.keys() == MODULES.keys()
    assert sum(COUNTS.values()) >= 67_000 and min(COUNTS.values()) >= 1_000


def test_a_few_fuzzed_inputs_of_every_kind_are_accepted_or_refused_in_a_line(few):
    results = few["fuzz"]
    assert {target: result["failed"] for target, result in results.items() if result["failed"]} == {}
    assert all(result["inputs"] == 6 for result in results.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("target", "count"), COUNTS.items())
def test_fuzzed_inputs_are_accepted_or_refused_in_a_line(target, count):
    found = attack("fuzz", target, count, timeout_s=3500)[target]
    assert found["failed"] == {}
    assert found["inputs"] == count
    if "record" not in target:  # lines that cannot be read are left out of a record
        assert found["refused"] > 0.05 * count, "mutations that are all harmless attack nothing"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", COUNTS)
def test_inputs_of_hypothesis_are_accepted_or_refused_in_a_line(target):
    found = attack("fuzz", target, 1_000, "--shrink", timeout_s=3500)[target]
    assert found["failed"] == {}
    assert found["inputs"] >= 1_000


def test_hypothesis_reports_the_smallest_input_that_fails(tmp_path):
    """An attack that writes the number that it draws, and fails from 100 on."""
    code = (
        "from pathlib import Path; from tests.attacks.fuzz import fuzz_and_shrink; import sys\n"
        "def attack(draws, folder):\n"
        "    number = draws.randint(0, 10_000)\n"
        "    assert number < 100, f'failed at {number}.'\n"
        "found = fuzz_and_shrink(attack, 200, Path(sys.argv[1]))\n"
        "assert 'failed at 100.' in found['failed'][0], found"
    )
    run_code(code, tmp_path)


def test_a_file_written_outside_of_the_folder_is_a_failure(tmp_path):
    """In a process of its own: an audit hook cannot be removed."""
    code = (
        "from pathlib import Path; from tests.attacks.fuzz import fuzz, note_writes; import signal, sys, json\n"
        "root = Path(sys.argv[1]); (root / 'in').mkdir(); note_writes(str(root / 'in'))\n"
        "write = lambda path: lambda draws, folder: Path(path or folder / 'a').write_text('x')\n"
        "found = [fuzz(write(p), 'a', 1, n, root / 'in')['failed'] for n, p in enumerate((None, root / 'b'))]\n"
        "assert not found[0] and 'written outside' in found[1][1], found"
    )
    run_code(code, tmp_path)


def test_a_crash_that_changes_the_outcome_is_found(tmp_path):
    """The comparison of the attack: a folder that lacks a file or has another byte differs."""
    from tests.attacks.kill_points import contents, difference

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"kind": "step", "step": 1}\n')
        (tmp_path / name / "a").write_bytes(name.encode())
    one, other = contents(tmp_path / "one"), contents(tmp_path / "other")
    assert difference(one, other) == "a" and difference(one, one) == ""


@pytest.mark.chaos
def test_killed_before_some_file_system_calls_a_run_resumes_to_the_same_bytes(few):
    """The run makes the four steps of SETTINGS."""
    result = few["kill_points"]
    assert result["failed"] == {}
    assert result["calls"] >= 90 and result["kills"] >= result["calls"] // 80


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.chaos
def test_killed_before_any_file_system_call_a_run_resumes_to_the_same_bytes(tmp_path):
    calls, kills = 0, 0
    for name, words in {"plain": PLAIN, "scored": SCORED}.items():
        (tmp_path / name).mkdir()
        result = attack("kill_points", tmp_path / name, 1, *SETTINGS, *words, timeout_s=3500)
        assert result["failed"] == {}, name
        calls, kills = calls + result["calls"], kills + result["kills"]
    assert kills >= calls >= 259


@pytest.mark.chaos
def test_some_damage_is_passed_over_or_refused_in_a_line(few):
    check_damage(few["damage"], every=48)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.chaos
def test_any_damage_is_passed_over_or_refused_in_a_line(tmp_path):
    check_damage(attack("damage", tmp_path, 1, timeout_s=3500), every=1)


def check_damage(result, every):
    assert result["failed"] == {}
    assert result["damages"] * every >= 94
    assert all("\n" not in line and line.strip() for line in result["refused"])
