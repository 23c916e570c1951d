"""Metrics from a Prometheus server, or another server with its HTTP API."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NoReturn

from treadle.codec import finite
from treadle.messages import is_dict, is_list
from treadle.reports.dashboards.expressions import ACTIVE
from treadle.reports.dashboards.panel import Question
from treadle.reports.sources.source import Grid, RefusedError, Series, SourceError

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a response."""
USUAL_SCRAPE = 15.0
"""Seconds between two scrapes, if there are no samples to derive it from."""
SCRAPES_IN_A_WINDOW = 4
"""The minimum window of a rate, which needs two samples even if a scrape failed."""
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError)
"""Exceptions that a malformed response causes."""


class PrometheusSource:
    """Queries a Prometheus.

    Args:
        url: its address, such as ``http://127.0.0.1:9090``. A path in front of its API may be part of it, and
            so may a name and a password.
        timeout: seconds to wait for one answer.

    Raises:
        ValueError: it is not a URL with http or https.
    """

    hint = (
        "Choose a longer range. If there were runs, check that their process exports metrics "
        "and that this Prometheus scrapes it."
    )

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"expected a URL such as http://127.0.0.1:9090, got {url!r}")
        where = parts.netloc.rpartition("@")[2]
        self._url = urllib.parse.urlunsplit((parts.scheme, where, parts.path.rstrip("/"), "", ""))
        self.title = f"Prometheus at {self._url}"  # without name and password
        self._timeout = timeout
        self.page_timeout: float | None = 3 * timeout
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            login = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}").encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        # A proxy of the environment would not reach 127.0.0.1 of this machine.
        is_here = parts.hostname in _HERE
        proxies = urllib.request.ProxyHandler({} if is_here else None)
        self._opener = urllib.request.build_opener(proxies)
        self._scrape = USUAL_SCRAPE

    def refresh(self) -> None:
        """Check that it responds, and determine its scrape interval."""
        try:
            data = self._get("query", f"{ACTIVE}[10m]", {"time": time.time()})
        except RefusedError:
            self._check_responds()  # the panels say which queries are rejected
            return
        try:
            gaps = [gap for series in _result(data) for gap in _gaps(series)]
        except _MALFORMED as error:
            raise self._not_prometheus() from error
        self._scrape = median(gaps) if gaps else USUAL_SCRAPE

    def _check_responds(self) -> None:
        try:
            self._get("query", "vector(1)", {"time": time.time()})
        except RefusedError as error:
            raise SourceError(f"{self.title} rejected the query: {error}") from error

    def span(self) -> None:
        """Unknown: Prometheus has no cheap query for the time of its first data."""

    def window(self, step: float) -> float:
        """The step and one scrape, and no less than a few scrapes; Grafana's ``$__rate_interval``.

        What grew between the last scrape before a step and the first in it would be seen in neither step
        otherwise.
        """
        return max(step + self._scrape, SCRAPES_IN_A_WINDOW * self._scrape)

    def ask(self, question: Question, grid: Grid) -> Sequence[Series]:
        """Answer a query; see `Source.ask`."""
        path, times = "query", {"time": grid.first}
        if grid.count > 1:
            path, times = "query_range", {"start": grid.first, "end": grid.last, "step": grid.step}
        try:
            data = self._get(path, str(question), times)
            return [_series(series, grid) for series in _result(data)]
        except SourceError as error:  # it did respond before: this is about one query
            raise RefusedError(str(error)) from error
        except _MALFORMED as error:
            raise RefusedError(f"{self.title} sent an answer that cannot be read") from error

    def _get(self, path: str, expression: str, times: Mapping[str, float]) -> dict[str, Any]:
        """The data of an answer."""
        parameters = {"query": expression, **{name: f"{at:.3f}" for name, at in times.items()}}
        query = urllib.parse.urlencode(parameters, errors="replace")
        request = urllib.request.Request(  # noqa: S310 - http or https, as __init__ checks
            f"{self._url}/api/v1/{path}?{query}", headers=self._headers
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                body = self._read(answer)
        except urllib.error.HTTPError as error:
            self._refuse(error)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        answer = _parsed(body)
        data = answer.get("data")
        if answer.get("status") != "success" or not is_dict(data):
            raise self._not_prometheus()
        return data

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """The whole response, limited in size and time."""
        until = time.monotonic() + self._timeout
        body = bytearray()
        while piece := answer.read1(65536):
            body += piece
            if time.monotonic() > until:
                raise TimeoutError
            if len(body) > MOST_BYTES:
                raise SourceError(f"{self.title} responded with more than {MOST_BYTES} bytes")
        return bytes(body)

    def _refuse(self, error: urllib.error.HTTPError) -> NoReturn:
        """Raise the error of a rejected query, or of a server that is not a Prometheus."""
        with error, contextlib.suppress(OSError, http.client.HTTPException):
            _parsed(error.read(65536))
        status = f"HTTP {error.code} {_one_line(error.reason)}".rstrip()
        raise SourceError(f"{self._url} is not a Prometheus: it responded with {status}") from error

    def _unreachable(self, error: Exception) -> SourceError:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            return SourceError(f"{self.title} did not respond within {self._timeout:g} seconds")
        if isinstance(cause, http.client.HTTPException):
            return self._not_prometheus()
        problem = getattr(cause, "strerror", None) or str(cause)
        return SourceError(f"{self.title} cannot be reached: {_one_line(problem)}")

    def _not_prometheus(self) -> SourceError:
        return SourceError(f"the server at {self._url} is not a Prometheus")


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:500]


def _parsed(body: bytes) -> dict[str, Any]:
    """The object in a response; empty if it is invalid. Raises `RefusedError` if the query was rejected."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if is_dict(answer) and answer.get("status") == "error":
        raise RefusedError(_one_line(answer.get("error")))
    return answer if is_dict(answer) else {}


def _result(data: Mapping[str, Any]) -> list[Any]:
    result = data.get("result")
    if not is_list(result):
        raise TypeError("expected a list of results")
    return result


def _gaps(series: Any) -> list[float]:
    """Seconds between the samples of a series."""
    values = series.get("values") if is_dict(series) else None
    times = [float(one[0]) for one in values] if is_list(values) else []
    return [later - before for before, later in itertools.pairwise(times)]


def _series(given: Any, grid: Grid) -> Series:
    """A series, with None for missing times."""
    values: list[float | None] = [None] * grid.count
    pairs = [given["value"]] if "value" in given else given["values"]
    for at, text in pairs:
        place = round((float(at) - grid.first) / grid.step)
        if 0 <= place < grid.count:
            values[place] = finite(float(text))
    return Series({str(name): str(value) for name, value in given["metric"].items()}, values)
