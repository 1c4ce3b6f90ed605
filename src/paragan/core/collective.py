"""Actions of all ranks that succeed on every rank, or fail on every rank with one reason."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError

from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError, RankError, describe_error, is_out_of_memory

_FILE_ERRORS = (CheckpointError, OSError, SafetensorError, RuntimeError)  # the last: of torch, as for other shapes


def run_on_all_ranks(world: World, act: Callable[[], Any]) -> list[Any]:
    """Call `act` on every rank and return the results (JSON), by rank. Collective.

    `act` must not call collectives. If it raises a file error on some rank, all ranks raise a
    `CheckpointError` with the reason of the first, and no rank waits. Any other error is raised
    where it happened; the other ranks raise a `CheckpointError`.
    """
    fault: Exception | None = None
    result: dict[str, Any]
    try:
        result = {"done": act()}
    except Exception as error:
        if not isinstance(error, _FILE_ERRORS) or is_out_of_memory(error):
            fault = error
        result = {"failed": describe_error(error)}
    results = world.gather(result)
    if fault is not None:
        raise fault
    failed = [(rank, result["failed"]) for rank, result in enumerate(results) if "failed" in result]
    if failed:
        rank, text = failed[0]
        raise CheckpointError(text if len(failed) == world.size else f"rank {rank}: {text}")
    return [result["done"] for result in results]


def run_on_main(world: World, act: Callable[[], Any]) -> Any:
    """Call `act` on rank 0 alone, and return its result (JSON) on every rank. Collective.

    Errors as in `run_on_all_ranks`; a process alone raises those of `act`.
    """
    if world.size == 1:
        return act()
    return run_on_all_ranks(world, lambda: act() if world.is_main else None)[0]


def raise_on_all_ranks(world: World, error: Exception | None) -> None:
    """Raise a `ConfigError` on every rank if one passes an error of any kind, also out of memory. Collective."""
    texts = world.gather(None if error is None else describe_error(error))
    failed = [(rank, text) for rank, text in enumerate(texts) if text is not None]
    if failed:
        rank, text = failed[0]
        raise ConfigError(text if len(failed) == world.size else f"rank {rank}: {text}") from error


@contextmanager
def rank_error_from(problem: str, advice: str) -> Iterator[None]:
    """Raise a `RankError` for a `RuntimeError` of torch in the block other than lack of memory: a rank is missing."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):  # on this rank
            raise
        first = str(error).partition("\n")[0][:200]
        raise RankError(f"{problem} ({first}); {advice}") from error
