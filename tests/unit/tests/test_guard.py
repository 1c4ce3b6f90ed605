"""Clusters of tests end with the tests, even with those that are killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, environment, guarded, kill, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
TEST = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from tests.processes import guarded
with guarded(["sh", "-c", sys.argv[1]]):
    time.sleep(100)
"""


def _daemon(folder: Path) -> str:
    """A shell's command that starts a process outside of its session, and ends; the process writes its id."""
    return f"(setsid sh -c 'echo $$ > {folder}/new && mv {folder}/new {folder}/pid && exec sleep 1000' &) & exit"


def _started(folder: Path) -> Path:
    wait_for((folder / "pid").exists, seconds=60)
    return Path("/proc") / (folder / "pid").read_text().strip()


def test_daemon_of_a_guarded_process_ends_with_the_block(tmp_path):
    with guarded(["sh", "-c", _daemon(tmp_path)]):
        daemon = _started(tmp_path)
        assert daemon.exists()
    assert not daemon.exists()


def test_daemon_of_a_guarded_process_ends_with_a_killed_test(tmp_path):
    test = subprocess.Popen([sys.executable, "-c", TEST, _daemon(tmp_path)], env=environment())
    daemon = _started(tmp_path)
    kill(test.pid)
    test.wait(60)
    wait_for(lambda: not daemon.exists(), seconds=60)
