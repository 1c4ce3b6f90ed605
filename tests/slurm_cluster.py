"""A Slurm cluster of this machine: its daemons on ports of their own, with all files in one folder."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import guarded, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
# A requeued job waits for `cred_expire`, 120 s by default.
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SchedulerParameters=sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=60 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""


def why_absent() -> str:
    """Why no cluster can be started here; empty if one can."""
    missing = [name for name in PROGRAMS if _find(name) is None]
    if missing:
        return f"no {missing[0]}; apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "Slurm's daemons need root"


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster of one host with two cores and the partitions `low` and `high`."""

    environment: dict[str, str]

    def run(self, *words: str, folder: Path | None = None) -> str:
        """Output of one of Slurm's programs."""
        options = {"cwd": folder, "env": self.environment, "text": True, "timeout": 60}
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, **options).stdout.strip()

    def submit(self, *words: str, folder: Path) -> str:
        """Id of a new job. words: of `sbatch`."""
        return self.run("sbatch", "--parsable", *words, folder=folder)

    def signal(self, job: str) -> bool:
        """Send SIGUSR1 to the steps of a job; return whether Slurm accepted it."""
        words = ["scancel", "--signal=USR1", job]
        ended = subprocess.run(words, env=self.environment, capture_output=True, timeout=60, check=False)
        return ended.returncode == 0

    def state(self, job: str) -> str:
        """State of a job, such as RUNNING."""
        words = self.run("scontrol", "--oneliner", "show", "job", job).split()
        return next(word.removeprefix("JobState=") for word in words if word.startswith("JobState="))

    def wait(self, job: str, *states: str, seconds: float = 120) -> None:
        """Return once the job is in one of these states."""
        deadline = time.monotonic() + seconds
        while (now := self.state(job)) not in states:
            assert time.monotonic() < deadline, f"job {job} is {now}, not {' or '.join(states)}"
            time.sleep(0.5)


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster that ends with the block, or with this process, and all its jobs with it."""
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=socket.gethostname().partition(".")[0], ports=_free_ports(), folder=folder))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munged = [f"--{option}={folder}/munge.{name}" for option, name in names.items()]
    environment = os.environ | {"SLURM_CONF": str(config)}
    daemons = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with guarded([_find("munged"), "--foreground", "--force", *munged], **daemons):
        wait_for((folder / "munge.socket").exists, seconds=30)
        with guarded([_find("slurmctld"), "-D"], **daemons), guarded([_find("slurmd"), "-D"], **daemons):
            cluster = SlurmCluster(environment)
            wait_for(lambda: _is_idle(environment), seconds=60)
            yield cluster


def _is_idle(environment: dict[str, str]) -> bool:
    found = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, text=True, capture_output=True, check=False)
    return found.stdout.split() == ["idle"]


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
