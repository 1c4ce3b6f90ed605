"""Folders of results that the user names: a record says which weights and options made the files in them."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from paragan.core.errors import ConfigError
from paragan.core.files import check_no_link, read_bytes, write_text
from paragan.export.sampler import Sampler

_MAX_RECORD_BYTES = 1 << 16


def prepare_output_folder(out: Path, name: str, sampler: Sampler, options: Mapping[str, Any]) -> None:
    """Create a folder with the record `name` of weights and options; `ConfigError` for a folder of other results."""
    check_no_link(out)
    record = json.dumps({"weights": _digest(sampler), **options}, sort_keys=True)
    if not out.is_dir() or not any(out.iterdir()):
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / name, record)
    elif _recorded(out / name) != record:
        raise ConfigError(
            f"--out: '{out}' holds other files, or results of another checkpoint or of other options; pass a new folder"
        )


def _recorded(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return read_bytes(path, _MAX_RECORD_BYTES).decode()
    return ""


def _digest(sampler: Sampler) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(sampler.net.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
