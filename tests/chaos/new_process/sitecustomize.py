"""Faults for processes that are no forks: Python imports this at its start where this folder is on PYTHONPATH."""

import os
import sys

from tests.chaos import inject


class _Watcher:
    """Enters the phase `import` before torch, and patches the other phases before the package trains."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            inject.enter("import")
        if name == "paragan.runs.train":
            inject.install()  # imports torch
            sys.meta_path.remove(self)  # type: ignore[arg-type]


if inject.PLAN in os.environ:
    sys.meta_path.insert(0, _Watcher())  # type: ignore[arg-type]
