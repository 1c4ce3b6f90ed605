"""The file and the command of `launch ray`; test_ray.py submits them to Ray."""

from pathlib import Path, PurePosixPath

import pytest

from paragan.core.errors import ConfigError
from paragan.extensions.clusters import load_target
from tests.cluster_jobs import HOSTILE, RECORDER, a_job, run_script, write_program

RAY = load_target("ray")
PATH = PurePosixPath("launch/digits.ray.sh")


def words_of(**changes) -> list[str]:
    return RAY.submit(a_job(nodes=1, **changes), PATH)


def test_script_with_hostile_words_passes_them_unchanged(tmp_path):
    place = tmp_path / "it's a $(folder)\n"
    place.mkdir()
    job = {"words": HOSTILE, "directory": place, "environment": (("VALUE", "$(touch planted)'\n\""),)}
    recorder = str(write_program(tmp_path / "recorder", RECORDER))
    code, found, _ = run_script(RAY.render(a_job(nodes=1, python=recorder, out="run 'y'", **job)), tmp_path)
    expected = ["-P", "-m", "paragan", "train", *HOSTILE, "devices=2", "--out", "run 'y'"]
    assert code == 0
    assert [start["words"] for start in found] == [expected]
    assert (found[0]["VALUE"], found[0]["directory"]) == ("$(touch planted)'\n\"", str(place))
    assert not list(tmp_path.rglob("planted"))


def test_script_trains_in_the_directory_of_the_command_and_ends_with_the_exit_code_of_training(tmp_path):
    recorder = str(write_program(tmp_path / "recorder", RECORDER))
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
    assert words[:5] == ["ray", "job", "submit", "--working-dir", "launch"]
    assert words[-4:] == ["--address=http://a:8265", "--", "sh", "digits.ray.sh"]
    assert '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "240"}}' in words
    with pytest.raises(ConfigError, match="--site"):
        words_of(site=("--",))


def test_submission_requests_the_resources_of_all_ranks():
    words = [word for word in words_of(gpus_per_rank=1, memory_mb=1000) if word.startswith("--entrypoint")]
    assert words == ["--entrypoint-num-cpus=8", "--entrypoint-num-gpus=2", f"--entrypoint-memory={2000 << 20}"]
    assert [word for word in words_of() if word.startswith("--entrypoint")] == ["--entrypoint-num-cpus=8"]
