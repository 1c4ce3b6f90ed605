"""What all ranks do at once succeeds on all of them, or fails on all of them with one reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safetensors import SafetensorError

from paragan.core.dist import World
from paragan.core.errors import CheckpointError, is_out_of_memory

_OF_FILES = (CheckpointError, OSError, SafetensorError, RuntimeError)


def run_on_all_ranks(world: World, act: Callable[[], Any]) -> list[Any]:
    """`act` on every rank: what each returned (JSON), by rank. It uses no collectives.

    Where files fail it on some rank, all raise a `CheckpointError` with the reason of the first, and nobody waits. A
    fault of another kind is raised where it happened; the others are told of it.
    """
    fault: Exception | None = None
    said: dict[str, Any]
    try:
        said = {"done": act()}
    except Exception as error:
        if not isinstance(error, _OF_FILES) or is_out_of_memory(error):
            fault = error
        said = {"failed": describe_error(error)}
    answers = world.gather(said)
    if fault is not None:
        raise fault
    failed = [(rank, answer["failed"]) for rank, answer in enumerate(answers) if "failed" in answer]
    if failed:
        rank, told = failed[0]
        raise CheckpointError(told if len(failed) == world.size else f"rank {rank}: {told}")
    return [answer["done"] for answer in answers]


def describe_error(error: Exception) -> str:
    """In one line; a full disk is always called the same."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(text.split()) or type(error).__name__
    return "no space left on the device" if "space left" in text or "code: 28" in text else text
