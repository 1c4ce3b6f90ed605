"""Settings that several data sets share. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paragan.core.addresses import secret_in_url as secret_in_url
from paragan.core.option_types import FilePath


@dataclass(frozen=True)
class IdxOptions:
    """Location of the files and size of the images."""

    path: FilePath = ""
    """Folder of the four idx files, gzipped or plain. If empty, they are downloaded once."""
    size: Literal[28, 32] = 28
    """Height and width in pixels: 28, or 32 with a black border of two pixels."""
