"""Request of a command or a program: a run in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.config import RunConfig, outside_names
from paragan.core.outside_code import CodeFolder
from paragan.distributed.launch.rank_env import RankEnv

if TYPE_CHECKING:
    from paragan.core.network_factory import Model


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run to start or to resume.

    name: of the recipe, or of the program. out: the run folder. fresh: set a former run aside.
    place: the rank of this process, if there are several. model: networks from memory, instead of
    the config's. resume_hint: how to stop and resume, in words. has_commands: whether commands of
    the command line apply to the run. overrides: settings of the command. address: of a run in an object store, whose
    working folder is `out`. code: where the outside code of the run lies now.
    """

    config: RunConfig
    name: str
    out: Path
    fresh: bool = False
    place: RankEnv | None = None
    model: Model | None = None
    resume_hint: str = "Ctrl-C saves; the same command resumes"
    has_commands: bool = False
    overrides: tuple[str, ...] = ()
    address: str = ""
    code: CodeFolder | None = None

    @property
    def where(self) -> str:
        """Address or folder of the run, as `--out` takes it."""
        return self.address or str(self.out)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of `paragan` for the processes that a launcher starts."""
        options = ["--fresh"] if self.fresh else []
        if self.code is not None:
            options += ["--code", str(self.code.folder)]
        if outside_names(self.config) and (self.code is None or self.code.trust):
            options.append("--trust")
        return ("train", self.name, *self.overrides, "--out", self.where, *options)
