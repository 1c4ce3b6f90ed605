"""Base of schemes that train both players at the same time, in a session of links or threads."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from paragan.core.roles import Roles
from paragan.game import scheme
from paragan.game.gan import GAN


@dataclass(kw_only=True)
class StalenessLog:
    """Lags and waits of one player, for the record.

    lags: number of opponents, or fakes, by age in steps. waits: number of updates by time of their wait for the other
    side, in milliseconds rounded up to a power of 2; wait_s: seconds in all. used: for each update of G the version of
    its opponent D; for each update of D the number of deliveries received. in_step_at: version at which S became 0.
    """

    lags: Counter[int] = field(default_factory=Counter)
    waits: Counter[int] = field(default_factory=Counter)
    wait_s: float = 0.0
    used: list[int] = field(default_factory=list)
    in_step_at: int | None = None

    def record_wait(self, seconds: float) -> None:
        """Add the wait of one update."""
        self.wait_s += seconds
        milliseconds = 1000 * seconds
        self.waits[0 if milliseconds < 0.5 else 1 << max(0, math.ceil(math.log2(milliseconds)))] += 1

    def drain(self) -> dict[str, Any]:
        """Return all values as JSON and reset them, except `in_step_at`."""
        values = {
            "lags": dict(self.lags),
            "waits_ms": dict(self.waits),
            "wait_s": round(self.wait_s, 4),
            "used": self.used,
            "in_step_at": self.in_step_at,
        }
        self.lags = Counter()
        self.waits = Counter()
        self.wait_s = 0.0
        self.used = []
        return values


class ConcurrentSession(Protocol):
    """Links or threads of one game, from its first step until `close`."""

    gan: GAN

    @property
    def staleness_logs(self) -> Mapping[str, StalenessLog]: ...

    def quiesce(self) -> None: ...

    def close(self) -> None: ...


SessionType = TypeVar("SessionType", bound=ConcurrentSession)


class ConcurrentScheme(scheme.Scheme, Generic[SessionType]):
    """Scheme with the roles and the session of one run.

    A step on another game, or after `close`, starts a new session.
    """

    is_concurrent = True

    def __init__(self) -> None:
        self._roles: Roles | None = None
        self._session: SessionType | None = None  # also once closed: its logs stay readable
        self._is_closed = False

    def quiesce(self) -> None:
        """Wait until both players have made the same steps and no message is in flight."""
        if self._session is not None and not self._is_closed:
            self._session.quiesce()

    def close(self) -> None:
        if self._session is not None and not self._is_closed:
            self._session.close()
            self._is_closed = True

    @property
    def staleness_logs(self) -> Mapping[str, StalenessLog]:
        """Lags, waits and versions used by the turns of this rank, by side."""
        return {} if self._session is None else self._session.staleness_logs

    def describe(self) -> dict[str, dict[str, Any]]:
        return {side: log.drain() for side, log in self.staleness_logs.items()}

    def _session_of(self, gan: GAN, make: Callable[[], SessionType]) -> SessionType:
        """Return the open session of this game, or a new one by `make`."""
        if self._session is None or self._is_closed or self._session.gan is not gan:
            self._session = make()
            self._is_closed = False
        return self._session
