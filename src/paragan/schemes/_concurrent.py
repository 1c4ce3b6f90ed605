"""Base of schemes that train both players at the same time, in a session of links or threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from paragan.core.roles import Roles
from paragan.game import scheme
from paragan.game.gan import GAN
from paragan.schemes._lag import LagRecord


class ConcurrentSession(Protocol):
    """Links or threads of one game, from its first step until `close`."""

    gan: GAN

    @property
    def lag_records(self) -> Mapping[str, LagRecord]: ...

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
        self._session: SessionType | None = None  # also once closed: its records stay readable
        self._is_closed = False

    def quiesce(self) -> None:
        """Wait until both players have made the same steps and no message is in flight."""
        if self._session is not None and not self._is_closed:
            self._session.quiesce()

    def close(self) -> None:
        """Close the session. Collective: every rank must call this."""
        if self._session is not None and not self._is_closed:
            self._session.close()
            self._is_closed = True

    @property
    def lag_records(self) -> Mapping[str, LagRecord]:
        """Lags, waits and versions used by the turns of this rank, by side."""
        return {} if self._session is None else self._session.lag_records

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return the lag records since the last call, ready for JSON."""
        return {side: record.drain() for side, record in self.lag_records.items()}

    def _session_of(self, gan: GAN, make: Callable[[], SessionType]) -> SessionType:
        """Return the open session of this game, or a new one by `make`."""
        if self._session is None or self._is_closed or self._session.gan is not gan:
            self._session = make()
            self._is_closed = False
        return self._session
