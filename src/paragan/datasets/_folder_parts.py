"""Folders of images by split and class, and texts about folders in messages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from paragan.core.printable import join_some
from paragan.datasets._image_paths import folder_names
from paragan.datasets._split_names import TRAIN

Choice = Literal["folders", "none"] | None
# folders of one set, never classes
PART_NAME = re.compile(rb"(?i)(k?[_-]?fold|cv|split|part|batch|chunk|shard|subset|run|trial|session|seed)[ _-]?\d+")
BOTH_WAYS = "data.classes=folders makes them classes, data.classes=none trains without classes"


@dataclass(frozen=True)
class FolderPart:
    """A folder whose images are of one split, and perhaps of one class, which is called `folder`."""

    top: bytes
    split: int = TRAIN
    folder: bytes | None = None


def choose_one(named: str) -> str:
    return f"pass the folder of one of {named}, or choose: {BOTH_WAYS.replace('them', named)}"


def names_in(paths: list[bytes], parts: list[FolderPart], unread: list[bytes]) -> set[bytes]:
    folders = ((part.top, name) for part in parts for name in folder_names(paths, part.top))
    return {name for top, name in folders if top + name + b"/" not in unread}


def listed(folders: list[bytes]) -> str:
    return join_some([repr(os.fsdecode(folder)) for folder in folders])
