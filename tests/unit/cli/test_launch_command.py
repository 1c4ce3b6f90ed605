"""`paragan launch`: what it prints, submits and refuses."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paragan.cli.main import main
from tests.cluster_jobs import write_program
from tests.processes import environment

pytestmark = pytest.mark.usefixtures("here")
TURNS = "scheme=asynchronous scheme.staleness=0 scheme.reuse=false"
MORE = "players.more.updates_per_step=2"


@pytest.mark.parametrize("target", ["slurm", "local", "kubernetes", "ray"])
def test_dry_run_prints_the_file_and_writes_nothing(target, here, capsys):
    image = ["--image", "x"] if target == "kubernetes" else []
    assert main(["launch", target, "digits", "train.kimg=1", "--dry-run", "--out", "s3://bucket/runs/a", *image]) == 0
    printed = capsys.readouterr().out
    assert "train.kimg=1" in printed and "s3://bucket/runs/a" in printed
    assert printed.endswith("\n")
    assert not list(here.iterdir())


def test_options_reach_the_file(capsys):
    words = "--nodes 2 --ranks 4 --cpus 8 --gpus 1 --memory-mb 500 --time-limit 60 --save-s 30 --retries 5"
    more = ["--seeds", "3-4,9", "--env", "A=b=c d", "--site=--partition=low", "--out", "o", "--name", "mine"]
    assert main(["launch", "slurm", "digits", "--dry-run", "--python", "py", *words.split(), *more]) == 0
    lines = capsys.readouterr().out.splitlines()
    options = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    limits = {"nodes=2", "ntasks-per-node=4", "cpus-per-task=8", "gpus-per-node=4", "mem=2000M", "time=60"}
    assert options > limits | {"signal=USR1@30", "array=0-2", "partition=low", "job-name=mine"}
    assert {"export A='b=c d'", "set -- 3 4 9"} < set(lines)
    assert any(line.endswith('py -P -m paragan train digits seed="$seed" --out o/seed-"$seed"') for line in lines)
    assert any('"$failures" -le 5' in line for line in lines)


@pytest.mark.parametrize(
    "words", [f"scheme=dmd2 {MORE}", f"{TURNS} {MORE} 'scheme.ranks={{g: 1, d: 1, more: 2}}'"], ids=["shared", "split"]
)
@pytest.mark.parametrize("target", ["slurm", "local", "ray"])
def test_job_of_further_players_has_all_ranks(target, words, capsys):
    assert main(["launch", target, "digits", *shlex.split(words), "--ranks", "4", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "players.more.updates_per_step=2" in text
    assert ("ntasks-per-node=4" if target == "slurm" else "devices=4") in text


def test_run_folder_is_resumed_in_place(here, capsys):
    assert main(["config", "digits"]) == 0
    (here / "mine").mkdir()
    (here / "mine" / "config.yaml").write_text(capsys.readouterr().out)
    assert main(["launch", "local", "mine", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("train mine/config.yaml --out mine")


def test_submission_hands_the_written_file_to_the_program_of_the_site(here):
    write_program(here / "bin" / "sbatch", '#!/bin/sh\necho "got $*"\nhead -n 1 "$1"\nexit 7\n')
    command = [sys.executable, "-m", "paragan", "launch", "slurm", "digits"]
    variables = environment(PATH=f"{here / 'bin'}:/usr/bin:/bin")
    ended = subprocess.run(command, text=True, capture_output=True, env=variables, timeout=120, check=False)
    assert ended.returncode == 7, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["got launch/digits.sbatch", "#!/bin/sh"]
    assert Path("launch/digits.sbatch").stat().st_mode & 0o777 == 0o600  # --env may hold a secret


@pytest.mark.parametrize("word", ["ghp_Secret", "=ghp_Secret", "TOKEN:ghp_Secret"])
def test_a_variable_without_a_name_is_refused_without_its_value(word, here, capsys):
    assert main(["launch", "slurm", "digits", "--env", word]) == 2
    assert "ghp_Secret" not in capsys.readouterr().err


def test_ray_gets_a_folder_without_files_of_other_jobs(here, monkeypatch):
    """Which may hold their secrets: it copies the folder to the cluster."""
    got = []
    monkeypatch.setattr(os, "execvp", lambda _, words: got.append(words))
    for name in ("sbatch", "ray"):
        write_program(here / "bin" / name, "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(here / "bin"))
    for words in (["slurm", "digits", "--env", "A=b"], ["ray", "digits", "--name", "x"], ["ray", "digits"]):
        assert main(["launch", *words]) == 0
    for ray in got[1:]:
        folder = Path(ray[ray.index("--working-dir") + 1])
        assert [file.name for file in folder.iterdir()] == [ray[-1]]
        assert (folder / ray[-1]).stat().st_mode & 0o777 == 0o600


def test_missing_program_is_named_and_nothing_is_written(here, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(here))
    assert main(["launch", "slurm", "digits"]) == 2
    assert capsys.readouterr().err == (
        "the program sbatch is not on PATH; run this where it is installed, or pass --dry-run to print the file\n"
    )
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pbs digits", "unknown target 'pbs'"),
        ("slurm digit", "unknown recipe 'digit'"),
        ("slurm digits train.bach=3", "train.bach"),
        ("slurm digits --ranks 65", "65 ranks share train.batch=64"),
        ("slurm digits --rank 2", "did you mean --ranks?"),
        ("slurm digits --nodes 0", "nodes is 0"),
        ("slurm digits --nodes two", "--nodes"),
        ("slurm digits --gpus 2", "one accelerator"),
        ("slurm digits --seeds 0-x", "--seeds"),
        ("slurm digits --seeds 0-5000", "--seeds"),
        ("slurm digits --seeds 9-3", "--seeds"),
        ("slurm digits --seeds 1,1", "--seeds"),
        ("slurm digits seed=3 --seeds 1", "leave one of them out"),
        ("slurm digits --env A", "--env NAME=VALUE"),
        ("slurm digits --env 'A B=c'", "not the name of a variable"),
        ("slurm digits --name 'a\nb'", "not a name"),
        ("slurm digits --site 'touch x'", "not an option of sbatch"),
        ("slurm digits devices=2", "use --ranks 2"),
        ("slurm digits train.batch=8 g.micro_batches=4 --ranks 4", "is more than the 2 images of a rank"),
        ("slurm digits scheme=asynchronous 'scheme.ranks={g: 2, d: 1}' --ranks 4", "does not fit 4 ranks"),
        (f"local digits {TURNS} {MORE} 'scheme.ranks={{g: 1, d: 1, more: 1}}' --ranks 2", "does not fit 2 ranks"),
        (f"slurm digits {TURNS} {MORE} --ranks 4", "the players are g, d, more, and scheme asynchronous has ranks for"),
        (f"slurm digits {TURNS} {MORE} 'scheme.ranks={{g: 1, d: 1, less: 2}}' --ranks 4", "has ranks for g, d, less"),
        (f"slurm digits scheme=asynchronous {MORE} --ranks 4", "needs players other than G and D"),
        ("slurm cellular-mnist data.path=x transport=mpi", "transport=mpi does not apply"),
        ("local cellular-mnist data.path=x --ranks 3", "use workers=3"),
        ("local digits --image x", "--image does not apply"),
        ("mpi digits", "torchrun --standalone --nproc-per-node=1 -m paragan train digits --out runs/digits`"),
        (
            "mpi digits seed=3 --ranks 4 --out 'my runs'",
            "--nproc-per-node=4 -m paragan train digits seed=3 --out 'my runs'`",
        ),
        ("mpi digits --nodes 2 --ranks 4", "torchrun --nnodes=2 --nproc-per-node=4 --master-addr=ADDRESS-OF-A"),
        ("mpi dcgan-mnist --trust --nodes 2", "train dcgan-mnist --trust --out runs/dcgan-mnist` on each host"),
        ("kubernetes digits", "pass --image"),
        ("kubernetes digits --image x --volume data", "--volume CLAIM:PATH"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_bad_input_is_one_line_and_exit_code_2(words, expected, dry_run, here, capsys):
    assert main(["launch", *shlex.split(words), *(["--dry-run"] if dry_run else [])]) == 2
    printed = capsys.readouterr()
    assert expected in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not list(here.iterdir())


@pytest.fixture
def no_process(monkeypatch):
    """A submission fails the test."""
    monkeypatch.setattr("os.execvp", lambda *words: pytest.fail(f"started {words}"))


@pytest.mark.parametrize(
    "words",
    [
        "fewstep-digits",  # its teacher is not trained
        "own",
        "own data.path=/nowhere",
        "digits init.path=gone",
        "digits evaluation.features=inception",
        "digits scheme=cached scheme.share=0.5 penalties=[{name: relativistic}]",
        "digits model=pix2pix",
        "cellular-mnist data.path=/nowhere",
    ],
)
def test_local_job_that_cannot_start_gets_the_line_of_train_before_any_process(
    words, here, no_process, monkeypatch, capsys
):
    monkeypatch.setenv("PARAGAN_CACHE", str(here / "cache"))
    lines = []
    for command in (["train"], ["launch", "local"]):
        assert main([*command, *shlex.split(words)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        lines.append(printed.err)
    assert lines[0] == lines[1]
    assert not list(here.iterdir())


@pytest.mark.parametrize("words", ["fewstep-digits", "digits init.path=gone --seeds 0-2"])
def test_cluster_job_without_the_weights_it_starts_from_is_refused(words, here, no_process, capsys):
    assert main(["launch", "slurm", *shlex.split(words)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not list(here.iterdir())


def test_cluster_job_may_name_data_that_only_its_hosts_have(here, monkeypatch, capsys):
    write_program(here / "bin" / "sbatch", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{here / 'bin'}:/usr/bin:/bin")
    started = []
    monkeypatch.setattr("os.execvp", lambda *words: started.append(words))
    assert main(["launch", "slurm", "own", "data.path=/nowhere"]) == 0
    assert len(started) == 1
