"""A copy of the checkout in a temporary folder, for tests that change its files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT


class CheckoutCopy:
    """The files that git lists or does not ignore, as they are here now. folder: the copy."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / "checkout"
        words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)

    def restore(self, name: str | Path) -> None:
        shutil.copy(ROOT / name, self.folder / name)

    def insert(self, name: str, before: str, text: str) -> None:
        """Put text in front of a line of a file, which must be there once."""
        file = self.folder / name
        held = file.read_text()
        assert held.count(before) == 1, f"{name}: {before!r} is there {held.count(before)} times"
        file.write_text(held.replace(before, text + before))

    def run(self, *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run `python -m WORDS` in the copy; raises `subprocess.TimeoutExpired`."""
        data = os.environ.get("PARAGAN_DATA", str(ROOT.parent / "shared" / "data"))
        environment = {
            **os.environ,
            "PARAGAN_DATA": data,
            "PYTHONPATH": f"{self.folder / 'src'}{os.pathsep}{self.folder}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
