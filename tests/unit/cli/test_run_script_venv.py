"""Which `.venv` the script `./run` may fill, and which process may at a time: links, foreign folders, locks."""

import os
import subprocess

import pytest

from tests.unit.cli.stand_in_checkout import Checkout, assert_refused


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


def test_two_first_calls_install_once(checkout):
    both = [checkout.start("train", STUB_PIP_SLEEPS="0.3") for _ in range(2)]
    ends = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert len(checkout.calls(" venv ")) == len(checkout.calls(" -e ")) == 1
    assert len(checkout.calls("-m paragan")) == 2


def test_a_lock_that_is_held_is_waited_for_but_not_for_ever(checkout):
    hold(checkout, os.getpid())
    done = checkout.run("train", PARAGAN_LOCK_S="1")
    assert_refused(done, "another installation", "lock", alone=False)
    assert f" {os.getpid()})" in done.stderr
    assert not checkout.calls("")
    assert (checkout.root / ".venv" / "lock").exists()  # it is not ours to remove


def test_the_lock_of_a_dead_installation_is_taken_over(checkout):
    dead = subprocess.Popen(["true"])
    dead.wait(timeout=60)
    hold(checkout, dead.pid)
    assert checkout.run("train", PARAGAN_LOCK_S="1").returncode == 0


@pytest.mark.parametrize("is_being_taken_over", [False, True])
@pytest.mark.parametrize("is_signed", [False, True])
def test_a_lock_that_a_killed_installer_left_is_taken_over_within_seconds(checkout, is_signed, is_being_taken_over):
    checkout.stub("sleep", "#!/bin/sh\n")  # seconds are counted, not slept
    dead = subprocess.Popen(["true"])
    dead.wait(timeout=60)
    hold(checkout, dead.pid)
    if not is_signed:  # killed between making the lock and signing it
        (checkout.root / ".venv" / "lock" / "owner").unlink()
    if is_being_taken_over:  # killed while it took over the lock of another
        (checkout.root / ".venv" / "takeover").mkdir()
    done = checkout.run("train", PARAGAN_LOCK_S="10")
    assert done.returncode == 0, done.stderr
    assert not (checkout.root / ".venv" / "lock").exists()


def test_a_lock_is_not_taken_over_before_its_owner_had_time_to_sign(checkout):
    checkout.stub("sleep", "#!/bin/sh\n")
    (checkout.root / ".venv" / "lock").mkdir(parents=True)
    assert_refused(checkout.run("train", PARAGAN_LOCK_S="3"), "another installation", alone=False)


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_venv_that_is_a_link_is_installed_where_it_leads(checkout, is_empty):
    target = checkout.folder / "large disk"
    if is_empty:
        target.mkdir()
    else:  # an installation of this script
        checkout.run("train", STUB_VERSION="3.11.1")
        (checkout.root / ".venv").rename(target)
    (checkout.root / ".venv").symlink_to(target)
    done = checkout.run("train")
    assert done.returncode == 0, done.stderr
    assert checkout.calls(" venv ")[-1] == f"-m venv {target}"
    before = len(checkout.calls(" pip "))
    assert checkout.run("train").returncode == 0
    assert len(checkout.calls(" pip ")) == before


@pytest.mark.parametrize("is_link", [True, False])
def test_a_venv_that_the_script_did_not_make_is_not_emptied(checkout, is_link):
    foreign = checkout.folder / "theirs" if is_link else checkout.root / ".venv"
    (foreign / "lib").mkdir(parents=True)
    (foreign / "lib" / "mine.py").write_text("precious")
    if is_link:
        (checkout.root / ".venv").symlink_to(foreign)
    assert_refused(checkout.run("train"), "did not write", "such as .venv/lib", str(foreign), "rename or remove")
    assert [path.name for path in foreign.iterdir()] == ["lib"]
    assert (foreign / "lib" / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("is_link", [True, False])
def test_a_venv_that_is_no_folder_is_refused(checkout, is_link):
    venv = checkout.root / ".venv"
    if is_link:
        venv.symlink_to(checkout.folder / "nowhere")
    else:
        venv.write_text("a file")
    assert_refused(checkout.run("train"), "neither a folder nor a link", str(venv), "remove it")


def hold(checkout, pid: int) -> None:
    lock = checkout.root / ".venv" / "lock"
    lock.mkdir(parents=True)
    (lock / "owner").write_text(f"{os.uname().nodename} {pid}\n")
