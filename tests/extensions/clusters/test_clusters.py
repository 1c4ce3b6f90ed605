"""Files of cluster jobs: their texts, and scripts that really run with programs that stand in for Slurm's."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import yaml

from paragan.core.errors import ConfigError
from paragan.extensions.clusters import load_target, target_names
from tests.cluster_jobs import HOSTILE, RECORDER, a_job, run_script, start_script, write_program
from tests.processes import wait_for

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "launch"
FULL = {"memory_mb": 8000, "time_limit_min": 90, "gpus_per_rank": 1, "environment": (("A", "b c"),)}
JOBS = {
    "slurm": {**FULL, "seeds": (0, 7), "site": ("--partition=gpu",), "directory": PurePosixPath("/home/me/my runs")},
    "kubernetes": {**FULL, "image": "registry.example/paragan:1", "volumes": (("runs", "/runs"),)},
    "local": {"nodes": 1, "seeds": (0, 7)},
    "mpi": {"words": ("cellular-mnist",), "site": ("--hostfile", "my hosts")},
}


def render(target: str, **changes) -> str:
    return load_target(target).render(a_job(**changes))


@pytest.fixture
def recorder(tmp_path):
    return str(write_program(tmp_path / "recorder", RECORDER))


def test_every_target_has_a_golden_text():
    assert set(JOBS) | {"ray"} == set(target_names())  # the script of Ray is that of `local`


def test_script_of_ray_is_that_of_this_host():
    job = {"nodes": 1, "seeds": (0, 7), "directory": PurePosixPath("/home/me/my runs"), "environment": (("A", "b c"),)}
    assert render("ray", **job) == render("local", **job)


@pytest.mark.parametrize("target", JOBS)
def test_file_of_a_job_equals_the_golden_text(target):
    path = GOLDEN / f"{target}{load_target(target).suffix}"
    assert render(target, **JOBS[target]) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["slurm", "local"])
def test_script_with_hostile_words_passes_them_unchanged(target, tmp_path, recorder):
    place = tmp_path / "it's a $(folder)\n"
    place.mkdir()
    job = {
        "python": recorder,
        "words": HOSTILE,
        "directory": place,
        "environment": (("VALUE", "$(touch planted)'\n\""),),
    }
    text = render(target, nodes=1, out="run $(x) 'y'", **job)
    code, found, _ = run_script(text, tmp_path)
    assert code == 0
    devices = ["devices=2"] if target == "local" else []
    expected = ["-P", "-m", "paragan", "train", *HOSTILE, *devices, "--out", "run $(x) 'y'"]
    assert [start["words"] for start in found] == [expected] * (1 if target == "local" else 2)
    assert {start["VALUE"] for start in found} == {"$(touch planted)'\n\""}
    assert {start["directory"] for start in found} == {str(place)}
    assert not list(tmp_path.rglob("planted"))


def test_slurm_script_gives_each_task_its_rank(tmp_path, recorder):
    _, found, _ = run_script(render("slurm", nodes=1, python=recorder), tmp_path)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    ranks = [tuple(start[name] for name in names) for start in found]
    assert ranks == [("0", "2", "0", "2", "host-a", "10041"), ("1", "2", "1", "2", "host-a", "10041")]


@pytest.mark.parametrize(
    ("codes", "ended", "starts", "requeued"),
    [
        *((code, int(code), 1, False) for code in ("0", "1", "2")),
        *((code, int(code), 1, True) for code in ("85", "138", "143")),
        *((code, int(code), 3, False) for code in ("75", "137")),
        ("75 0", 0, 2, False),
        ("137 75 85", 85, 3, True),  # the cluster stops the job after two failures
        ("137 1", 1, 2, False),  # Slurm has ended the job meanwhile: srun finds no allocation
        ("75 2", 2, 2, False),
        ("75 143", 143, 2, True),  # stopped while the ranks started again
    ],
)
def test_slurm_script_acts_by_the_exit_code(codes, ended, starts, requeued, tmp_path, recorder):
    text = render("slurm", nodes=1, python=recorder, retries=2)
    code, found, calls = run_script(text, tmp_path, CODE=codes)
    assert (code, len(found)) == (ended, 2 * starts)  # two tasks
    assert calls == (["requeue 41"] if requeued else [])


def test_slurm_script_that_is_cancelled_neither_requeues_nor_starts_again(tmp_path):
    """`scancel` signals the script and its tasks; a task that is slow to end is killed later."""
    words = "#!/bin/sh\necho x >> starts\nwhile [ ! -e end ]; do sleep 0.1; done\nexit 75\n"
    sleeper = write_program(tmp_path / "sleeper", words)
    process = start_script(render("slurm", nodes=1, python=str(sleeper)), tmp_path)
    wait_for((tmp_path / "starts").exists, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    (tmp_path / "end").touch()
    wait_for(lambda: (tmp_path / "starts").read_text() == "x\nx\n")  # both tasks of the one start
    assert not (tmp_path / "record.scontrol").exists()


def test_slurm_script_of_an_array_trains_and_requeues_one_seed(tmp_path, recorder):
    array = {"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "1"}
    text = render("slurm", nodes=1, python=recorder, seeds=(3, 1000000), out="a b")
    _, found, calls = run_script(text, tmp_path, CODE="85", **array)
    assert found[0]["words"][-3:] == ["seed=1000000", "--out", "a b/seed-1000000"]
    assert calls == ["requeue 40_1"]  # by SLURM_JOB_ID it could be the whole array
    assert "#SBATCH --array=0-1\n" in text


def test_local_script_stops_at_the_first_failed_seed(tmp_path, recorder):
    text = render("local", nodes=1, python=recorder, seeds=(5, 6))
    code, found, _ = run_script(text, tmp_path, CODE="85")
    assert (code, len(found)) == (85, 1)
    assert found[0]["words"][-3:] == ["seed=5", "--out", "runs/digits/seed-5"]


@pytest.mark.parametrize(
    ("target", "changes", "expected"),
    [
        ("slurm", {"site": ("--partition=a\n#SBATCH --uid=0",)}, "not an option of sbatch"),
        ("slurm", {"site": ("touch planted",)}, "not an option of sbatch"),
        ("slurm", {"image": "x"}, "--image does not apply to `launch slurm`"),
        ("local", {"time_limit_min": 5, "nodes": 1}, "--time-limit does not apply"),
        ("local", {}, "--nodes does not apply to `launch local`; for several hosts use `launch slurm`"),
        ("local", {"time_limit_min": 1, "nodes": 1}, "--time-limit does not apply"),
        ("mpi", {"memory_mb": 5}, "--memory-mb does not apply"),
        ("mpi", {"memory_mb": 1}, "--memory-mb does not apply"),
        ("ray", {"time_limit_min": 1, "nodes": 1}, "--time-limit does not apply"),
        ("kubernetes", {}, "needs an image"),
        ("kubernetes", {"image": "x", "site": ("a b=c",)}, "not a label"),
    ],
)
def test_job_that_a_target_cannot_run_is_refused(target, changes, expected):
    with pytest.raises(ConfigError, match=re.escape(expected)):
        render(target, **changes)


def container(**changes) -> dict:
    """The container of the job's pods, as Kubernetes would start it: `$(NAME)` replaced, `$$` read as `$`."""
    text = render("kubernetes", image="x", **changes)
    found = list(yaml.safe_load_all(text))[1]["spec"]["template"]["spec"]["containers"][0]
    values = {variable["name"]: variable["value"] for variable in found["env"]}

    def expand(word: str) -> str:
        return re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else values.get(m[1], m[0]), word)

    words = [expand(word) for word in (*found["command"], *found["args"])]
    return {"words": words, "env": {name: expand(value) for name, value in values.items()}}


def test_kubernetes_pod_with_hostile_words_passes_them_unchanged(tmp_path, recorder):
    variables = (("VALUE", "$(MASTER_PORT)'\n"),)
    pod = container(python=recorder, words=(*HOSTILE, "$(WORLD_SIZE)", "1e3", "no"), environment=variables)
    environment = pod["env"] | {"JOB_COMPLETION_INDEX": "1", "RECORD": str(tmp_path / "record"), "CODE": "85"}
    ended = subprocess.run(pod["words"], cwd=tmp_path, env=environment | {"PATH": os.environ["PATH"]}, check=False)
    assert ended.returncode == 85
    found = [yaml.safe_load(line) for line in (tmp_path / "record").read_text().splitlines()]
    words = ["-P", "-m", "paragan", "train", *HOSTILE, "$(WORLD_SIZE)", "1e3", "no", "--out", "runs/digits"]
    assert [start["words"] for start in found] == [words, words]
    assert sorted((start["RANK"], start["LOCAL_RANK"]) for start in found) == [("2", "0"), ("3", "1")]
    rest = {(start["WORLD_SIZE"], start["LOCAL_WORLD_SIZE"], start["MASTER_ADDR"], start["VALUE"]) for start in found}
    assert rest == {("4", "2", "digits-0.digits", "$(MASTER_PORT)'\n")}
    assert not (tmp_path / "planted").exists()


def rank_that_waits_for_sigterm(tmp_path, saving_s=0.0):
    program = f"""#!{sys.executable}
import os, signal, time
def save(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL) # as at the end of a run: a second signal kills
    time.sleep({saving_s})
    os._exit(85)
signal.signal(signal.SIGTERM, save)
open(os.environ["LOCAL_RANK"], "w").close()
for _ in range(1800): # signal.pause() would wait for ever where the signal came just before it
    time.sleep(0.05)
"""
    return str(write_program(tmp_path / "sleeper", program))


def start_pod(shell, words, pod, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    environment = pod["env"] | {"JOB_COMPLETION_INDEX": "0", "PATH": os.environ["PATH"]}
    return subprocess.Popen([shell, *words[1:]], cwd=tmp_path, env=environment)


@pytest.mark.parametrize("saving_s", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_kubernetes_pod_passes_sigterm_to_its_ranks_and_waits(shell, saving_s, tmp_path):
    pod = container(python=rank_that_waits_for_sigterm(tmp_path, saving_s))
    assert pod["words"][0] == "sh"
    process = start_pod(shell, pod["words"], pod, tmp_path)
    try:
        wait_for(lambda: {"0", "1"} <= {path.name for path in tmp_path.iterdir()}, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 85
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.parametrize("line", ['    pids="$pids $!"', "    rank=$((rank + 1))"])
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_sigterm_while_the_ranks_of_a_pod_are_started_reaches_all_of_them(shell, line, tmp_path):
    pod = container(python=rank_that_waits_for_sigterm(tmp_path))
    slow = [word.replace(line, f"    sleep 2\n{line}") for word in pod["words"]]
    assert slow != pod["words"]
    process = start_pod(shell, slow, pod, tmp_path)
    try:
        wait_for(lambda: (tmp_path / "0").exists(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in {85, 128 + signal.SIGTERM}  # the last rank may end before it handles the signal
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_sigterm_before_the_first_rank_of_a_pod_is_a_pre_emption(shell, tmp_path):
    pod = container(python=rank_that_waits_for_sigterm(tmp_path))
    slow = [word.replace("rank=0\n", "touch begun\nsleep 1\nrank=0\n") for word in pod["words"]]
    process = start_pod(shell, slow, pod, tmp_path)
    wait_for(lambda: (tmp_path / "begun").exists(), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 85
    assert not (tmp_path / "0").exists()


def test_kubernetes_file_is_valid_by_the_schemas_of_kubernetes():
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for document in yaml.safe_load_all(render("kubernetes", **JOBS["kubernetes"])):
        validate.validate(document, "1.31", strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate(document | {"spec": document["spec"] | {"completion": 1}}, "1.31", strict=True)


RAY = load_target("ray")


def words_of(**changes) -> list[str]:
    return RAY.submit(a_job(nodes=1, **changes), PurePosixPath("launch/digits.ray/job.sh"))


def test_ray_script_trains_in_the_directory_of_the_command_and_ends_with_its_exit_code(tmp_path, recorder):
    code, found, _ = run_script(RAY.render(a_job(nodes=1, python=recorder, seeds=(5, 9))), tmp_path, CODE="85")
    assert code == 85
    assert [start["words"][-3:] for start in found] == [["seed=5", "--out", "runs/digits/seed-5"]]
    assert found[0]["directory"] == str(Path.cwd())


@pytest.mark.parametrize("option", ["nodes", "image", "volumes", "time_limit_min"])
def test_option_that_ray_does_not_have_is_refused(option):
    values = {"nodes": 2, "image": "x", "volumes": (("runs", "/runs"),), "time_limit_min": 5}
    with pytest.raises(ConfigError, match=r"--[a-z-]+ does not apply to `launch ray`"):
        RAY.render(a_job(**{"nodes": 1, option: values[option]}))


def test_submission_names_the_file_and_the_time_to_stop():
    words = words_of(site=("--address=http://a:8265",))
    assert words[:5] == ["ray", "job", "submit", "--working-dir", "launch/digits.ray"]
    assert words[-4:] == ["--address=http://a:8265", "--", "sh", "job.sh"]
    assert '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "240"}}' in words
    with pytest.raises(ConfigError, match="--site"):
        words_of(site=("--",))


def test_submission_requests_the_resources_of_all_ranks():
    words = [word for word in words_of(gpus_per_rank=1, memory_mb=1000) if word.startswith("--entrypoint")]
    assert words == ["--entrypoint-num-cpus=8", "--entrypoint-num-gpus=2", f"--entrypoint-memory={2000 << 20}"]
    assert [word for word in words_of() if word.startswith("--entrypoint")] == ["--entrypoint-num-cpus=8"]
