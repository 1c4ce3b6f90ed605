"""Base of schemes that train both players at the same time, in a session of links or threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from paragan.core.roles import Roles
from paragan.game import scheme
from paragan.game.gan import GAN
from paragan.schemes._lag import LagRecord


class Session(Protocol):
    """Links or threads of one game, from its first step until `close`."""

    gan: GAN

    @property
    def lag_records(self) -> Mapping[str, LagRecord]: ...

    def quiesce(self) -> None: ...

    def close(self) -> None: ...


SessionType = TypeVar("SessionType", bound=Session)


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

    def _open_session(self, gan: GAN) -> SessionType | None:
        """Return the session of this game; None without one that is still open."""
        is_other = self._session is None or self._is_closed or self._session.gan is not gan
        return None if is_other else self._session

    def _start(self, session: SessionType) -> SessionType:
        self._session = session
        self._is_closed = False
        return session
