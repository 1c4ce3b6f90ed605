"""A copy of `./run` among stand-ins for Python and pip, so that its tests install nothing."""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# All that the script may use besides Python; nothing else is on the PATH of these tests.
TOOLS = ("awk", "cat", "cksum", "cp", "df", "cut", "dirname", "grep", "mkdir", "mv", "rm", "rmdir", "sh", "sleep")
TOOLS += ("tail", "tr", "uname")

PYTHON = r"""#!/bin/sh
printf '%s\n' "$*" >>"$CALLS"
case "$*" in
    *version_info*) echo "${STUB_VERSION:-3.11.7}"; [ "${STUB_VERSION:-3.11.7}" != 3.9.2 ] ;;
    *sys.version*) echo "${STUB_VERSION:-3.11.7}" ;;
    '-m venv '*)
        [ -z "${STUB_NO_VENV-}" ] || { echo 'Error: ensurepip is not available'; exit 1; }
        mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    *' pip '*)
        sleep "${STUB_PIP_SLEEPS:-0}"
        case "$*" in ${STUB_PIP_FAILS-}) echo "ERROR: ${STUB_PIP_SAYS:-No matching distribution}"; exit 1 ;; esac ;;
    '-P -m paragan'*) echo "pid=$$ cwd=$PWD"; exit "${STUB_EXIT:-0}" ;;
    *) case "$*" in ${STUB_STEP_FAILS-}) exit 1 ;; esac ;;
esac
"""


@dataclass
class Checkout:
    """A copy of the script in a folder of its own, with a PATH that holds the tools above and the stand-ins."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root, self.bin, self.log = (self.folder / name for name in ("a checkout", "bin", "calls"))
        self.root.mkdir()
        self.bin.mkdir()
        for name in ("run", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.root / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.skip(f"no {tool} here"))
        self.stub("python3.11", PYTHON)

    def stub(self, name: str, text: str) -> None:
        """Put a script on the PATH; a link of that name is removed first, never written through."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        with path.open("x") as file:
            file.write(text)
        path.chmod(0o755)

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        environment = {"PATH": str(self.bin), "CALLS": str(self.log), "PARAGAN_MIN_DISK_MB": "1"}
        return subprocess.Popen(
            [str(self.root / "run"), *arguments],
            cwd=self.folder,
            env={**environment, **self.settings, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **settings)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def calls(self, word: str) -> list[str]:
        """What the stand-in was asked so far, where it holds this word."""
        return [line for line in self.log.read_text().splitlines() if word in line] if self.log.exists() else []

    @property
    def stamp(self) -> Path:
        return self.root / ".venv" / "stamp"


def assert_refused(done, *words: str, alone: bool = True) -> None:
    """Exit 2 and three lines: what, where, what to do; alone: not even progress before them."""
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done
    assert len(lines) == 3 or not alone, lines
    what, where, cure = lines[-3:]
    assert what.startswith("paragan: ")
    assert where.startswith("  where: ")
    assert cure.startswith("  to do: ")
    assert all(word in "\n".join(lines[-3:]) for word in words), lines
