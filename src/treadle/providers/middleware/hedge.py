"""`Hedge`: a second request when the first takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from treadle import labels
from treadle.effects import Bounded, Call, Parallel, Reporter, Signal, Sleep, Steps, Stopped
from treadle.errors import OptionError
from treadle.messages import Chunk
from treadle.model import Model, ModelRequest, SendRequest, StreamInterruptedError, TimedResponse
from treadle.model.registry import check_model
from treadle.model.request import EventsOf
from treadle.providers.middleware.other_models import answered_by, client_of


class Hedge:
    """Middleware that sends a request a second time when nothing of a response has come after some seconds.

    The first of the two to give the first piece of a stream, or a whole response, is used. The other is cancelled,
    and listeners receive nothing of it; it was sent, so the usage of the run becomes a lower bound. A request that
    fails before the time is not sent again here: `ask_model` retries it.

    Args:
        after: seconds until the second request. With the 95th percentile of the time to the first piece, one
            request in twenty is sent twice (source: Dean and Barroso, The Tail at Scale, 2013).
        model: the model of the second request, a callable or a name; None means the same model. See `Fallback` for
            what another model receives.

    Raises:
        OptionError: the seconds are not positive, or the model is none.
    """

    def __init__(self, after: float, *, model: Model | None = None) -> None:
        if not isinstance(after, (int, float)) or not after > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"Hedge: after: expected seconds above 0, got {after!r}")
        if model is not None:
            check_model(model)
        self._after = after
        self._model = model

    def __call__(self, request: ModelRequest, send: SendRequest) -> Steps[TimedResponse]:
        """Send a request once or twice, and return the first response."""
        race = _Race()
        outcomes = yield Parallel(
            [self._first(race, request, send), self._second(race, request, send)]
        )
        errors: list[Exception] = []
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                errors.append(outcome)
            elif outcome is not None:
                return outcome
        # Nothing may be requested again after text was shown, whatever the other error is.
        raise next((one for one in errors if isinstance(one, StreamInterruptedError)), errors[0])

    def _first(
        self, race: _Race, request: ModelRequest, send: SendRequest
    ) -> Steps[TimedResponse | Exception | None]:
        outcome = yield from race.entered(0, request.copy(), send)
        race.no_second.set()
        return outcome

    def _second(
        self, race: _Race, request: ModelRequest, send: SendRequest
    ) -> Steps[TimedResponse | Exception | None]:
        try:
            yield Bounded(_slept(self._after), until=race.no_second)
        except Stopped:
            return None
        try:
            client = request.model if self._model is None else client_of(self._model)
        except Exception as error:  # noqa: BLE001 - it cannot be opened; the first request may still succeed
            return error
        outcome = yield from race.entered(1, request.copy(client), send)
        if outcome is None or isinstance(outcome, Exception) or self._model is None:
            return outcome
        return answered_by(client, outcome)


def _slept(seconds: float) -> Steps[None]:
    yield Sleep(seconds)


class LostRaceError(Exception):
    """The other request was faster."""

    retryable = False


class _Race:
    """Two requests, of which one wins; ``no_second`` is set when the second is not needed."""

    def __init__(self) -> None:
        self.no_second = Signal()
        self._lost = Signal(), Signal()
        self._winner: int | None = None
        self._mutex = threading.Lock()

    def entered(
        self, place: int, request: ModelRequest, send: SendRequest
    ) -> Steps[TimedResponse | Exception | None]:
        """Send a request; return the answer, the exception, or None if the other one has won."""
        request.events = self._claiming(place, request.events)
        try:
            answer = yield Bounded(send(request), until=self._lost[place])
        except (Stopped, LostRaceError):
            return None
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            return error
        # An effect, since the other request affects the answer.
        has_won = yield Call(self.claim, place, label=labels.RACE, key=str(request.iteration))
        return answer if has_won else None

    def claim(self, place: int) -> bool:
        """Win, if the other one has not won."""
        with self._mutex:
            if self._winner is None:
                self._winner = place
            has_won = self._winner == place
        if has_won:
            self.no_second.set()
            self._lost[1 - place].set()
        return has_won

    def _claiming(
        self, place: int, events: Callable[[], EventsOf] | None
    ) -> Callable[[], EventsOf]:
        """Win at the first piece of a stream, before an event of it is made."""

        def made() -> EventsOf:
            if not self.claim(place):
                raise LostRaceError("the other request was faster")
            return _no_events if events is None else events()

        return made


def _no_events(_chunk: Chunk, _reporter: Reporter) -> Iterable[Any]:
    return ()
