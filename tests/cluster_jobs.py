"""Jobs of tests, and programs that stand in for a cluster's."""

import json
import subprocess
import sys
from pathlib import Path

from paragan.extensions.clusters import ClusterJob

HOSTILE = ("a b", "it's", '"', "$(touch planted)", "`touch planted`", "a\nb", "été 日本", "$HOME", "--x=;&|<>*?", "")
RECORDER = f"""#!{sys.executable}
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "VALUE")
record = {{"words": sys.argv[1:], "directory": os.getcwd(), **{{name: os.environ.get(name) for name in names}}}}
with open(os.environ["RECORD"], "a") as file:
    file.write(json.dumps(record) + "\\n")
start = len(open(os.environ["RECORD"]).readlines())  # of all tasks
codes = os.environ.get("CODE", "0").split()
sys.exit(int(codes[min((start - 1) // 2, len(codes) - 1)]))
"""
# Of srun's options only the last words matter: the command of each task.
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
highest=0
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@"
    code=$?
    [ "$code" -le "$highest" ] || highest=$code
done
exit "$highest"
"""
SCONTROL = """#!/bin/sh
if [ "$1" = show ]; then echo host-a; echo host-b; else echo "$@" >> "$RECORD.scontrol"; fi
"""


def a_job(**changes) -> ClusterJob:
    """A job of two nodes with two ranks each."""
    values = {"python": "python3", "nodes": 2, "ranks_per_node": 2, "cpus_per_rank": 4} | changes
    words = values.pop("words", ("digits", "train.batch=64"))
    return ClusterJob(name="digits", words=words, out=values.pop("out", "runs/digits"), **values)


def write_program(path: Path, text: str) -> Path:
    """An executable file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def start_script(text: str, folder: Path, **environment: str) -> subprocess.Popen:
    """A script in a folder, next to programs that record what it does with Slurm."""
    write_program(folder / "bin" / "srun", SRUN)
    write_program(folder / "bin" / "scontrol", SCONTROL)
    (folder / "script").write_text(text)
    slurm = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "host-[a-b]", "RECORD": str(folder / "record")}
    variables = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", **slurm, **environment}
    return subprocess.Popen(["sh", "script"], cwd=folder, env=variables)


def run_script(text: str, folder: Path, **environment: str) -> tuple[int, list[dict], list[str]]:
    """Exit code of a script, what each start of `recorder` found, and the calls of `scontrol requeue`."""
    code = start_script(text, folder, **environment).wait(60)
    record = folder / "record"
    found = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    calls = folder / "record.scontrol"
    return code, found, calls.read_text().splitlines() if calls.exists() else []
