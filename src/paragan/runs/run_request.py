"""Request of a command or a program: a run in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paragan.config import RunConfig
from paragan.core.network_factory import Model
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.rank_env import RankEnv


@dataclass(frozen=True)
class RunRequest:
    """A run to start or to resume.

    name: of the recipe, or of the program. out: the run folder. fresh: set a former run aside.
    place: the rank of this process, if there are several. model: networks from memory, instead of
    the config's. resume_hint: how to stop and resume, in words. has_commands: whether commands of
    the command line apply to the run. company: processes that wait to be the workers of a grid.
    """

    config: RunConfig
    name: str
    out: Path
    fresh: bool = False
    place: RankEnv | None = None
    model: Model | None = None
    resume_hint: str = "Ctrl-C saves; the same command resumes"
    has_commands: bool = False
    company: ExternalWorkers | None = None
