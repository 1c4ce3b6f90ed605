"""`./run` against stand-ins for Python and pip: what it asks of them, and what it says when they fail."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from paragan.cli.verbs import VERBS
from tests.unit.cli.stand_in_checkout import Checkout, assert_refused

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_any_shell_parses_it(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([shell, "-n", str(ROOT / "run")], check=True)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("help",)])
def test_usage_costs_nothing(checkout, arguments):
    done = checkout.run(*arguments)
    assert done.returncode == 0
    assert "./run train" in done.stdout
    assert not (checkout.root / ".venv").exists()


def test_usage_has_eight_verbs_with_a_description_then_names_the_others_by_extension(checkout):
    verbs, _, examples = checkout.run("--help").stdout.partition("Examples:")
    described = re.findall(r"^  ([a-z]+)  +\S.*\.$", verbs, re.MULTILINE)
    named = re.findall(r"\b[a-z]+\b", re.sub(r"\[.*?\]|[a-z]+:", "", verbs.partition("  More:")[2]))
    assert [*described, *named] == [*VERBS, "test", "check", "docs"] and len(described) == 8
    extensions = {verb.extension for name, verb in VERBS.items() if name in named and verb.extension}
    assert {name for name in extensions if re.search(rf"\b{name}[:;\n]", verbs)} == extensions
    assert len(re.findall(r"^  \./run \S", examples, re.MULTILINE)) == 3


def test_usage_fits_on_a_screen_of_80_columns_and_25_rows(checkout):
    lines = checkout.run("--help").stdout.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 80


def test_first_call_installs_and_hands_over(checkout):
    done = checkout.run("train", "digits", "data.path=a b")
    assert done.returncode == 0, done.stderr
    assert checkout.calls("-m paragan") == ["-P -m paragan train digits data.path=a b"]
    assert done.stdout.endswith(f" cwd={checkout.folder}\n")  # paths are the caller's
    assert len(checkout.calls(" venv ")) == 1
    assert [line.split(" install ")[1] for line in checkout.calls(" pip ")][-1].endswith("-c constraints.txt -e .")


def test_second_call_installs_nothing(checkout):
    checkout.run("train")
    before = len(checkout.calls(" pip "))
    done = checkout.run("train")
    assert done.stderr == ""
    assert len(checkout.calls(" pip ")) == before > 0


def test_exit_code_and_process_are_those_of_python(checkout):
    checkout.run("train")
    process = checkout.start("train", STUB_EXIT="85")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 85
    assert f"pid={process.pid} " in out  # signals reach it, nothing stands between


def test_old_python(checkout):
    done = checkout.run("train", STUB_VERSION="3.9.2")
    assert_refused(done, "no Python 3.11", "python3.11 is 3.9.2", "PARAGAN_PYTHON")
    assert not checkout.stamp.exists()


def test_no_python(checkout):
    (checkout.bin / "python3.11").unlink()
    assert_refused(checkout.run("train"), "no Python 3.11", "none found")


def test_full_disk_is_seen_before_anything_is_written(checkout):
    done = checkout.run("train", PARAGAN_MIN_DISK_MB="999999999")
    assert_refused(done, "disk", "999999999 MB")
    assert not checkout.calls(" venv ")


@pytest.mark.parametrize(
    ("says", "cure"), [("No matching distribution found", "network"), ("No space left on device", "disk space")]
)
@pytest.mark.parametrize(("fails", "what"), [("*", "torch"), ("*-e*", "paragan")])
def test_failing_pip(checkout, fails, what, says, cure):
    done = checkout.run("train", STUB_PIP_FAILS=fails, STUB_PIP_SAYS=says)
    assert_refused(done, f"cannot install {what}", "install.log", says, cure, alone=False)
    assert not checkout.stamp.exists()
    assert not (checkout.root / ".venv" / "lock").exists()


CPU = "--no-deps --timeout 10 --retries 1 torch==1.2.3+cpu"
INDEX = f"--index-url https://download.pytorch.org/whl/cpu {CPU}"
PLAIN = "torch==1.2.3"


@pytest.mark.parametrize(
    ("fails", "asked"), [("", [CPU]), ("*no-cache-dir --no-deps*", [CPU, INDEX]), ("*+cpu", [CPU, INDEX, PLAIN])]
)
@pytest.mark.parametrize("choice", ["auto", "cpu"])
def test_without_a_device_a_cpu_build_comes_first(checkout, choice, fails, asked):
    pin_torch(checkout)
    done = checkout.run("train", PARAGAN_TORCH=choice, STUB_PIP_FAILS=fails)
    assert done.returncode == 0
    assert torch_asked(checkout) == asked
    assert ("no CPU build" in done.stderr) == (PLAIN in asked)


def test_a_full_disk_is_no_reason_to_take_a_larger_build(checkout):
    pin_torch(checkout)
    done = checkout.run("train", PARAGAN_TORCH="cpu", STUB_PIP_FAILS="*+cpu", STUB_PIP_SAYS="No space left on device")
    assert_refused(done, "disk space", alone=False)
    assert torch_asked(checkout) == [CPU, INDEX]
    assert not (checkout.root / ".venv" / "tmp").exists()


def test_with_a_device_the_plain_build_is_taken(checkout):
    pin_torch(checkout)
    checkout.stub("nvidia-smi", "#!/bin/sh\n")
    checkout.run("train")
    assert torch_asked(checkout) == [PLAIN]


def pin_torch(checkout, system: str = "Linux") -> None:
    checkout.stub("uname", f"#!/bin/sh\necho {system}\n")
    (checkout.root / "constraints.txt").write_text("# torch\ntorch==1.2.3\nnumpy==1\n")


def torch_asked(checkout) -> list[str]:
    return [line.split("--no-cache-dir ")[1] for line in checkout.calls("torch==")]


def test_changed_pins_are_installed_into_the_same_environment(checkout):
    checkout.run("train")
    before = len(checkout.calls(" pip "))
    (checkout.root / "constraints.txt").write_text("torch==1.2.3\n")
    assert checkout.run("train").returncode == 0
    assert len(checkout.calls(" pip ")) == 2 * before
    assert len(checkout.calls(" venv ")) == 1


@pytest.mark.parametrize(
    "change", [{"PARAGAN_TORCH": "cpu"}, {"PARAGAN_PYTHON": "python3.11"}, {"STUB_VERSION": "3.12.1"}]
)
def test_another_python_or_torch_means_another_environment(checkout, change):
    checkout.run("train")
    assert checkout.run("train", **change).returncode == 0
    assert len(checkout.calls(" venv ")) == 2


def test_a_moved_checkout_is_set_up_again(checkout):
    checkout.run("train")
    checkout.root = checkout.root.rename(checkout.folder / "elsewhere")
    assert checkout.run("train").returncode == 0
    assert len(checkout.calls(" venv ")) == 2


def test_development_tools_come_with_the_first_test_and_stay(checkout):
    checkout.run("train")
    checkout.run("test")
    assert [line.rsplit(" -e ", 1)[1] for line in checkout.calls(" -e ")] == [".", ".[dev]"]
    checkout.run("train")
    checkout.run("check")
    assert len(checkout.calls(" -e ")) == 2
    assert len(checkout.calls(" venv ")) == 1


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_installation_is_never_trusted(checkout, blow):
    process = checkout.start("train", STUB_PIP_SLEEPS="30")
    wait_until(lambda: checkout.calls(" pip "))
    os.killpg(process.pid, blow)
    process.communicate(timeout=60)
    assert process.returncode == (130 if blow == signal.SIGINT else -signal.SIGKILL)
    assert not checkout.stamp.exists()
    assert checkout.run("train").returncode == 0
    assert len(checkout.calls(" venv ")) == 2


def wait_until(condition, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "markers"),
    [
        ((), "not gpu and not slow"),
        (("fast",), "not gpu and not slow and not distributed and not chaos and not training and not browser"),
        (("all",), ""),
    ],
)
def test_tests_are_chosen_by_marker(checkout, arguments, markers):
    checkout.run("test", *arguments, "-k", "ema")
    (call,) = checkout.calls("-m pytest")
    assert call == f"-m pytest -n 4 --dist loadfile --no-loadscope-reorder -m {markers} -k ema"


@pytest.mark.parametrize(("fails", "code"), [("", 0), ("*ruff check*", 1), ("-c *importlinter*", 1)])
def test_check_runs_every_step_and_fails_if_one_fails(checkout, fails, code):
    done = checkout.run("check", STUB_STEP_FAILS=fails)
    assert done.returncode == code
    assert [len(checkout.calls(word)) for word in ("ruff check", "ruff format", "mypy", "importlinter")] == [1] * 4
    assert done.stderr.count("FAILED") == code
