"""The run: steps of a scheme, and what is due between them. It yields values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import Checkpoint, read_checkpoint, read_counts
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.clock import Clock, Every
from paragan.core.collective import run_on_all_ranks
from paragan.core.dist import ALONE, World
from paragan.core.errors import CheckpointError, is_out_of_memory
from paragan.core.event import Event
from paragan.core.interrupt import StopRequested
from paragan.core.pieces import Pieces
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Report
from paragan.engine.agreement import Agreement
from paragan.engine.divergence import raise_if_not_finite
from paragan.engine.options import EveryOptions
from paragan.evaluation.evaluator import Score
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.scheme import Batches, Scheme
from paragan.game.state import restore, state_of

Telemetry = Callable[[GAN, Mapping[str, Tensor | float] | None], Mapping[str, float]]


@dataclass
class Trainer:
    """A game, its scheme and its data, and what is due between the steps.

    images: length of the run. stop: asked between steps; a true answer saves and ends. score: of the sampling
    generator. telemetry: looks at the game whenever pictures are due, and leaves it as it is. pictures: what is shown.
    roles: who sits where. period: steps between two moments at which all ranks of a player hold the same weights.
    """

    gan: GAN
    scheme: Scheme
    batches: Batches
    images: int
    every: EveryOptions
    checkpoints: CheckpointWriter
    score: Callable[[Player, Prior], Score] | None = None
    stop: Callable[[], bool] = lambda: False
    telemetry: Telemetry | None = None
    fixed_samples: FixedSamples = FixedSamples()
    roles: Roles = colocated_roles(ALONE)
    sync_period: int = 1
    saved_at: int = -1  # steps
    scored_at: int = -1
    observed_at: int = 0  # images
    is_score_pending: bool = False  # one that was due was left for a stop

    @property
    def world(self) -> World:
        return self.roles.world

    @property
    def clock(self) -> Clock:
        return self.gan.clock

    @property
    def prior(self) -> Prior:
        return self.gan.prior

    @property
    def is_finished(self) -> bool:
        return self.clock.images >= self.images and self.is_synchronized

    @property
    def is_complete(self) -> bool:
        """Finished and, where the run is scored, with its last score."""
        return self.is_finished and not self.is_score_pending

    @property
    def is_synchronized(self) -> bool:
        """Whether all ranks hold the same weights: what looks at the game, saves it or ends it waits for that."""
        is_due = self.clock.step % self.sync_period == 0
        return is_due and all(player.is_synchronized for player in self.players.values())

    def release_workers(self) -> None:
        """The run is over, however it ended: whoever works for it may go."""

    @property
    def start_values(self) -> dict[str, Any]:
        """What the record's first line tells beside players and data."""
        return {}

    @property
    def images_per_report(self) -> float:
        """Real images between two reports, on average."""
        return self.clock.images / max(1, self.clock.step)

    @property
    def is_scored(self) -> bool:
        return self.score is not None

    @property
    def best(self) -> Best:
        """Where the checkpoint with the best score is kept."""
        return Best(self.checkpoints.folder.parent / "best")

    @property
    def players(self) -> dict[str, Player]:
        """Those that sit here."""
        seats = (self.gan.g, self.gan.d)
        return {seat.side.value: seat for seat in seats if isinstance(seat, Player) and seat.side in self.roles.sides}

    def run(self) -> Iterator[Report | Event]:
        """Until the clock has seen `images`, or a stop; ends with a checkpoint and, if finished, a score."""
        for stage in self.stages():
            yield from stage

    def stages(self) -> Iterator[Iterator[Report | Event]]:
        """The same in stages, each to be exhausted before the next: the beginning, every step, the end."""
        yield self._begin()
        agreement, self.observed_at = Agreement(self.roles.batch_world, self.every.check_steps), self.clock.images
        while not self.is_finished and not (self.is_synchronized and self._stopped()):
            yield self._step(agreement)
        yield self.end()

    def _begin(self) -> Iterator[Report | Event]:
        if self.clock.step == 0:
            yield from self._evaluate_untrained()
        elif self.is_score_pending and not self.is_finished:
            yield from self.scores()

    def _step(self, agreement: Agreement) -> Iterator[Report | Event]:
        report = yield from self.run_step()
        if self.is_synchronized:
            agreement.check(self.clock, self.players)
            yield from self._run_due(self.observed_at, report)
            self.observed_at = self.clock.images

    def run_step(self) -> Generator[Report | Event, None, Report]:
        """One step, and what is told of it."""
        report = self.scheme.step(self.gan, self.batches)
        yield report
        return report

    def end(self) -> Iterator[Report | Event]:
        """What follows the last step: a checkpoint and, of a finished run, its score."""
        if self.saved_at != self.clock.step:
            yield self.save()
        if self.is_finished:
            yield from self.scores()
        self.scheme.close()

    def _stopped(self) -> bool:
        """All ranks decide together. Where players sit apart that would keep them in step: they do it now and then."""
        return not (self.roles.is_split and self.clock.step % self.every.log_steps) and self.stop()

    def read(self, report: Report, beside: Mapping[str, float] | None = None) -> dict[str, float]:
        """The numbers of a step, of both players wherever they sit; all ranks have to ask."""
        return self.roles.gather_merged(report.read(self.roles.batch_world.sum) | dict(beside or {}))

    def save(self) -> Event:
        """A checkpoint of this moment."""
        self.scheme.quiesce()
        groups, values = self.state()
        raise_if_not_finite(self.world, self.clock.step, groups)
        source = self.batches.source
        values |= {
            "clock": {"step": self.clock.step, "images": self.clock.images},
            "position": self.batches.position,
            "model": {"shape": source.shape, "class_names": source.class_names},
            "owes_score": self.is_score_pending,
        }
        path = self.checkpoints.save(self.clock.step, groups, values)
        self.saved_at = self.clock.step
        return self.event("checkpoint", {"path": str(path)})

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        """What a checkpoint holds beside the run's own position: tensors by group, and numbers."""
        states = {name: state_of(player) for name, player in self.players.items()}
        counters = self.roles.gather_merged({name: numbers for name, (_, numbers) in states.items()})
        return {name: pieces for name, (pieces, _) in states.items()}, {"players": counters}

    def resume(self, best: bool = False) -> bool:
        """Go on from the newest undamaged checkpoint, or look at the best; False if there is none."""
        found = read_checkpoint(self.best.path()) if best else self.checkpoints.newest()
        if found is not None:
            run_on_all_ranks(self.world, lambda: self._resume(found))
        return found is not None

    def _resume(self, found: Checkpoint) -> None:
        try:
            position = read_counts(found.values, "position")
            clock = read_counts(found.values["clock"], "step", "images")
            self.restore(found)
        except KeyError as error:
            raise CheckpointError(f"checkpoint {found.path}: {error} is missing; start anew with --fresh") from None
        except (TypeError, ValueError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            text = " ".join(str(error).split())[:100]
            raise CheckpointError(f"checkpoint {found.path}: invalid value ({text}); start anew with --fresh") from None
        self.batches.position = position["position"]
        self.clock.step, self.clock.images = clock["step"], clock["images"]
        self.saved_at, self.is_score_pending = self.clock.step, found.values.get("owes_score") is True

    def restore(self, found: Checkpoint) -> None:
        """Take in what `state` gave. `KeyError`, `TypeError`, `ValueError` where it lacks something or is odd."""
        for name, player in self.players.items():
            counts = read_counts(found.values["players"][name], "version", "images")
            restore(player, found.groups[name], counts)

    def _evaluate_untrained(self) -> Iterator[Report | Event]:
        """Pictures and a score before the first step, where any are wanted during the run."""
        if self.every.sample_kimg:
            yield from self._sample_events()
            yield from self._observe(Report(0, 0, {}))
        if self.every.score_kimg:
            yield from self.scores()

    def _run_due(self, before: int, report: Report) -> Iterator[Report | Event]:
        """What is due after a step; a finished run is scored at its end."""
        now = report.images
        if Every(self.every.sample_kimg).due(before, now):
            self.scheme.quiesce()
            yield from self._sample_events()
            yield from self._observe(report)
        if Every(self.every.score_kimg).due(before, now) and not self.is_finished:
            yield from self.scores()
        if Every(self.every.save_kimg).due(before, now) and self.saved_at != self.clock.step:
            yield self.save()

    def _sample_events(self) -> Iterator[Event]:
        if "g" in self.players:
            yield self.samples()
        self.roles.wait_for_all()

    def samples(self) -> Event:
        names = self.batches.source.class_names
        return self.samples_event(*self.fixed_samples(self.players["g"], self.prior, names))

    def samples_event(self, x_BCHW: Tensor, columns: int, rows: tuple[str, ...]) -> Event:
        """rows: the class of each row; empty where there are no classes."""
        path = f"samples/step-{self.clock.step:07d}.png"
        values = {"path": path, "columns": columns, "rows": rows, "shape": list(x_BCHW.shape[1:])}
        event = self.event("samples", values | {"num": len(x_BCHW), "mode": self.fixed_samples.mode})
        return replace(event, x_BCHW=x_BCHW, columns=columns)

    def event(self, kind: str, values: Mapping[str, Any]) -> Event:
        """An event of this moment."""
        return Event(kind, self.clock.step, self.clock.images, values=values)

    def _observe(self, report: Report) -> Iterator[Event]:
        if self.telemetry is None:
            return
        scalars = self._scalars_of(report)
        if "g" in self.players:
            yield self.event("telemetry", self.telemetry(self.gan, scalars or None))
        self.roles.wait_for_all()

    def _scalars_of(self, report: Report) -> Mapping[str, Tensor | float]:
        """Without waiting for the device, where both players sit here."""
        if self.roles.is_split:
            return self.read(report)
        return {name: self.world.sum(share.detach().clone()) for name, share in report.scalars.items()}

    def scores(self) -> Iterator[Event]:
        """Score the sampling generator; the best checkpoint so far is kept. Collective."""
        if not self.is_scored:
            return
        self.scheme.quiesce()
        score = None
        if "g" in self.players:
            self.is_score_pending = True
            try:
                score = self.compute_score()
            except StopRequested:
                return
            self.is_score_pending = False
            yield replace(self.event("score", score.values), repeat_s=score.seconds)
        self.roles.wait_for_all()
        self.scored_at = self.clock.step
        if self.clock.step == 0:
            return
        leads = score if self.world.is_main else None
        if run_on_all_ranks(self.world, lambda: leads is not None and self.best.is_beaten_by(leads))[0]:
            if self.saved_at != self.clock.step:
                yield self.save()
            place = self.checkpoints.path_of(self.clock.step), self.clock.step, self.clock.images
            run_on_all_ranks(self.world, lambda: None if leads is None else self.best.update(*place, leads))

    def compute_score(self, prior: Prior | None = None) -> Score:
        """Of what is sampled. prior: other latents than the run's own."""
        assert self.score is not None
        return self.score(self.players["g"], prior or self.prior)
