"""Every answer of the doctor is provoked once; the real checks end and tell no home folder."""

import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from paragan.cli import doctor
from paragan.hardware import health, installation, loopback
from paragan.hardware.health import CheckResult

ROOT = Path(__file__).resolve().parents[3]
FIT = installation.requirements()


def broken_torch():
    raise OSError("libtorch.so: cannot open shared object file\nmore")


PROVOKED = {
    "a full disk": ("FAIL", "free some", lambda: health.disk(free=lambda _: 1e8)),
    "a small disk": ("warn", "--out DIR", lambda: health.disk(free=lambda _: 1e9)),
    "a container's shared memory": ("warn", "--shm-size", lambda: health.shared_memory("/", free=lambda _: 64 << 20)),
    "a folder that is not there": ("FAIL", "--out DIR", lambda: health.writable("/nowhere/at/all")),
    "few open files": ("warn", "ulimit -n", lambda: health.open_files(256)),
    "a package too old": ("FAIL", "'torch>=2.11'", lambda: installation.packages(lambda: FIT | {"torch": "2.9.1"})),
    "a package missing": ("FAIL", "pip install 'jinja2>=3.1.4'", lambda: installation.packages(without("jinja2"))),
    "torch does not load": ("FAIL", "reinstall it", lambda: installation.devices(visible=broken_torch)),
    "CUDA build, no device": ("warn", "nvidia-smi", lambda: seen("cuda 13.0", False)),
    "CPU build, a driver": ("warn", "PARAGAN_TORCH=cuda", lambda: seen("cpu", True)),
    "too many threads": ("warn", "OMP_NUM_THREADS=2", lambda: installation.processor(8, 2)),
    "processes that never meet": ("FAIL", "GLOO_SOCKET_IFNAME", lambda: meet("import time; time.sleep(60)", 0.5)),
    "processes that fail": ("FAIL", "GLOO_SOCKET_IFNAME", lambda: meet("raise RuntimeError('no lo')", 20)),
}
FINE = {
    "much disk": lambda: health.disk(free=lambda _: 9e9),
    "much shared memory": lambda: health.shared_memory("/", free=lambda _: 9e9),
    "no shared memory": lambda: health.shared_memory("/nowhere"),
    "no limit": lambda: health.open_files(resource.RLIM_INFINITY),
    "all packages": lambda: installation.packages(lambda: FIT),
    "a device": lambda: installation.devices(visible=lambda: ["A Device (80 GB)"]),
    "no device, no driver": lambda: seen("cpu", False),
}


def without(name):
    return lambda: {key: value for key, value in FIT.items() if key != name}


def seen(build, driver):
    return installation.devices(lambda: build, lambda: [], lambda: driver)


def meet(code, timeout_s):
    return loopback.all_reduce(("-c", code), timeout_s)


@pytest.mark.parametrize("case", PROVOKED)
def test_failed_check_reports_message_and_fix(case):
    level, cure, check = PROVOKED[case]
    finding = check()
    assert finding.level == level
    assert cure in finding.fix
    assert "\n" not in doctor.format_finding(finding)


@pytest.mark.parametrize("case", FINE)
def test_what_is_fine_needs_no_cure(case):
    assert (FINE[case]().level, FINE[case]().fix) == ("ok", "")


def test_torchvision_is_imported_in_another_process(tmp_path, monkeypatch):
    module = tmp_path / "torchvision.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module.write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    finding = installation.torchvision()
    assert finding.level == "warn" and "pip uninstall torchvision" in finding.fix
    assert finding.message.endswith("RuntimeError: operator torchvision::nms does not exist")
    module.write_text("import time; time.sleep(60)")
    assert "did not end" in installation.torchvision(0.5).message
    module.write_text("")
    assert installation.torchvision().level == "ok"
    assert "torchvision" not in sys.modules


def test_requirements_are_those_of_the_project():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(f"{name}>={least}" for name, least in installation.requirements().items()) == sorted(wanted)


def run(capsys, *checks, as_json=False):
    """The exit code, what is printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "ALWAYS", checks)
        with pytest.raises(typer.Exit) as ended:
            doctor.doctor(as_json=as_json, fast=True)
    return ended.value.exit_code, capsys.readouterr().out


def found(level):
    return lambda: CheckResult("it", level, f"in {Path.home()}/runs", "mend it")


def broken():
    raise ValueError("a bug\nof ours")


def test_the_exit_code_is_2_only_if_something_fails(capsys):
    assert [run(capsys, found(level))[0] for level in ("ok", "warn", "FAIL")] == [0, 0, 2]


def test_doctor_output_is_lines_without_the_home_folder(capsys):
    out = run(capsys, found("warn"), broken)[1].splitlines()
    assert out[0] == "warn  it               in ~/runs; mend it"
    assert out[1].startswith("warn  broken           ValueError: a bug; the check itself failed: please report it")
    assert out[-1] == "0 ok, 2 warn, 0 FAIL"


def test_doctor_fast_imports_no_torch_and_starts_no_process():
    code = (
        "import sys, typer\nfrom paragan.cli import doctor\n"
        "sys.addaudithook(lambda name, _: name == 'subprocess.Popen' and sys.exit(98))\n"
        "try: doctor.doctor(fast=True)\nexcept typer.Exit: pass\n"
        "sys.exit(99 if 'torch' in sys.modules else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert all(re.match(r"(ok  |warn|FAIL)  \S|\d+ ok, ", line) for line in ended.stdout.splitlines())


def patiently():
    return loopback.all_reduce(timeout_s=120)


def test_every_check_gives_an_answer_and_two_processes_meet():
    checks = [patiently if check is loopback.all_reduce else check for check in (*doctor.ALWAYS, *doctor.WITH_TORCH)]
    answers = {finding.name: finding for finding in doctor.examine(checks)}
    assert len(answers) == len(checks)
    for finding in answers.values():
        assert finding.level in ("ok", "warn", "FAIL")
        assert "itself failed" not in finding.fix
    assert (answers["gloo"].level, answers["gloo"].fix) == ("ok", "")
