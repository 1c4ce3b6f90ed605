"""Divergence: updates skipped for gradients that are not finite, and state that is not finite."""

from collections.abc import Mapping

from paragan.core.dist import ALONE, World
from paragan.core.errors import DivergedError
from paragan.core.layout import Pieces
from paragan.core.not_finite import not_finite_message
from paragan.core.source import Source
from paragan.game.player import Player

_MAX_SKIPPED = 100  # updates in a row; fp16 finds its loss scale within about 20


class SkipMonitor:
    """Monitor of skipped updates since its construction; a call synchronizes once per player.

    world: ranks that train the same run, with equal or other players. source: of their samples. last_applied: (due
    turns, updates) of each player when `raise_if_idle` last saw a new update. A resumed run with rollbacks sets those
    of the former session, so that skips before a kill count.
    """

    def __init__(self, players: Mapping[str, Player], world: World = ALONE, source: Source | None = None) -> None:
        self._players = players
        self._world = world
        self._source = source
        self._not_finite: set[str] = set()  # names of samples, of all ranks
        self._reported = {name: player.num_skipped() for name, player in players.items()}
        self._first = {name: (player.due_turns, int(player.updates)) for name, player in players.items()}
        self.last_applied = dict(self._first)

    def messages(self) -> list[str]:
        """Return a line for each player that skipped updates since the last call, and for what is new in the data.

        Collective. What the notices of the source have named has no line.
        """
        new = self._new_not_finite()
        has_line = bool(new) and not (self._source is not None and self._source.notices_not_finite)
        lines = [f"warning: {not_finite_message(new, ', and updates on it are skipped')}"] if has_line else []
        for name, player in self._players.items():
            count = player.num_skipped()
            if count > self._reported[name]:
                skipped = count - self._reported[name]
                lines.append(f"warning: {name}: updates skipped, because their gradients were not finite: {skipped}")
            self._reported[name] = max(count, self._reported[name])  # a count that is read while updates run may be low
        return lines

    def _new_not_finite(self) -> set[str]:
        """Return the names of samples that are not finite and were not seen before. Collective."""
        local = None if self._source is None else self._source.not_finite
        # `[*…]`: threads of the loader add names meanwhile
        by_rank = self._world.gather([name for name in [*(local or ())] if name not in self._not_finite])
        self._not_finite |= (new := {name for names in by_rank for name in names})
        return new

    def raise_if_idle(self, step: int, at_the_end: bool = False) -> None:
        """Raise `DivergedError` if a player skipped many updates in a row, or all of a session.

        Collective: it is raised on all ranks.
        """
        problems = self._world.gather(self._idle_player(step, at_the_end))
        if problem := next(filter(None, problems), ""):
            raise DivergedError(problem)

    def _idle_player(self, step: int, at_the_end: bool) -> str:
        """Return the text about a player of this rank that skipped too many updates, or ""."""
        for name, player in self._players.items():
            updates = int(player.updates)
            if updates > self.last_applied[name][1]:
                self.last_applied[name] = (player.due_turns, updates)
            idle = player.due_turns - self.last_applied[name][0]
            first_due_turns, first_updates = self._first[name]
            has_only_skipped = player.due_turns > first_due_turns and updates == first_updates
            if idle >= _MAX_SKIPPED or (at_the_end and has_only_skipped):  # a session may be shorter than the limit
                cure = "lower the learning rate, or look for a division or logarithm of 0"
                return (
                    f"step {step}: {name}: no update of the last {idle} was made, their gradients were not "
                    f"finite; {not_finite_message(self._not_finite) if self._not_finite else cure}"
                )
        return ""


def raise_if_not_finite(world: World, step: int, groups: Mapping[str, Pieces], source: Source) -> None:
    """Raise `DivergedError` on all ranks before non-finite state is saved. Collective.

    source: of this rank's samples.
    """
    by_rank = world.gather((_first_not_finite(groups), [*(source.not_finite or ())]))
    name = next((name for name, _ in by_rank if name is not None), None)
    if name is not None:
        samples = {sample for _, names in by_rank for sample in names}
        cure = "lower the learning rate, or add clipping (max_norm) or the penalty r1"
        raise DivergedError(
            f"step {step}: {name} is no longer finite: the run has diverged (earlier checkpoints "
            f"are intact); {not_finite_message(samples) if samples else cure}"
        )


def _first_not_finite(groups: Mapping[str, Pieces]) -> str | None:
    """Return the group and the name of a tensor of this rank that is not finite; None if there is none."""
    for group, pieces in groups.items():
        for name, tensor in pieces.tensors.items():
            if not tensor.isfinite().all():
                return f"{group}: {name}"
    return None
