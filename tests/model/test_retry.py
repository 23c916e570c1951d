"""Which failures of a model are retried, and after which delay."""

import errno
import http.client
import socket
import urllib.error

import pytest

from treadle.effects import drive_sync
from treadle.messages import NotAResponseError
from treadle.model import delay_before_retry, is_retryable, status_of
from treadle.model.retry import MAX_DELAY


def failure(cls=Exception, **facts):
    error = cls("x")
    for name, value in facts.items():
        setattr(error, name, value)
    return error


class Holder:
    def __init__(self, **facts):
        self.__dict__.update(facts)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529, 599])
@pytest.mark.parametrize("name", ["status_code", "status", "code", "http_status"])
def test_a_temporary_status_is_retried(status, name):
    assert is_retryable(failure(**{name: status}))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 301])
@pytest.mark.parametrize("name", ["status_code", "status", "code", "http_status"])
def test_a_permanent_status_is_not_retried(status, name):
    assert not is_retryable(failure(**{name: status}))


def test_a_status_takes_precedence_over_the_class():
    assert is_retryable(failure(TypeError, status_code=503))
    assert not is_retryable(failure(ConnectionError, status_code=400))


@pytest.mark.parametrize("code", ["context_length_exceeded", 7, None, True, 99, 600, 12.5])
def test_a_code_that_is_not_an_http_status_is_ignored(code):
    assert status_of(failure(code=code)) is None


def test_the_status_may_be_that_of_the_response_an_error_carries():
    """As in httpx and requests, whose errors have no status of their own."""
    assert status_of(failure(response=Holder(status_code=401))) == 401
    assert not is_retryable(failure(response=Holder(status_code=401)))
    assert status_of(failure(status_code=500, response=Holder(status_code=401))) == 500


def test_a_real_error_of_httpx():
    httpx = pytest.importorskip("httpx")
    request = httpx.Request("GET", "http://x")
    for status, again in ((400, False), (401, False), (429, True), (503, True)):
        response = httpx.Response(status, request=request, headers={"retry-after": "7"})
        with pytest.raises(httpx.HTTPStatusError) as caught:
            response.raise_for_status()
        assert is_retryable(caught.value) is again
        assert drive_sync(delay_before_retry(caught.value, 1, 0.5)) == 7


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("gone"),
        ConnectionResetError("reset"),
        BrokenPipeError("closed"),
        TimeoutError("slow"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        urllib.error.URLError(ConnectionRefusedError("refused")),
        http.client.IncompleteRead(b"half"),
    ],
    ids=repr,
)
def test_a_connection_that_failed_is_retried(error):
    assert is_retryable(error)


CONNECTIONS = {
    "httpx": [
        "ConnectError", "ConnectTimeout", "DecodingError", "PoolTimeout", "ProxyError", "ReadError",
        "ReadTimeout", "RemoteProtocolError", "WriteError", "WriteTimeout",
    ],
    "httpcore": ["ConnectError", "ConnectTimeout", "ReadError", "RemoteProtocolError"],
    "openai": ["APIConnectionError", "APITimeoutError"],
    "requests.exceptions": [
        "ChunkedEncodingError", "ConnectionError", "ConnectTimeout", "ContentDecodingError",
        "JSONDecodeError", "ProxyError", "ReadTimeout",
    ],
    "urllib3.exceptions": [
        "ConnectTimeoutError", "DecodeError", "IncompleteRead", "NewConnectionError",
        "ProtocolError", "ReadTimeoutError",
    ],
    "http.client": ["IncompleteRead", "RemoteDisconnected"],
    "asyncio": ["IncompleteReadError", "TimeoutError"],
    "anyio": ["BrokenResourceError"],
    "trio": ["BrokenResourceError", "TooSlowError"],
    "ssl": ["SSLEOFError", "SSLZeroReturnError"],
    "json": ["JSONDecodeError"],
}  # fmt: skip
BUGS = {
    "httpx": ["InvalidURL", "LocalProtocolError", "StreamConsumed", "TooManyRedirects", "UnsupportedProtocol"],
    "openai": ["APIResponseValidationError", "LengthFinishReasonError", "OpenAIError"],
    "requests.exceptions": ["InvalidURL", "MissingSchema"],
    "ssl": ["SSLCertVerificationError", "SSLError"],
    "asyncio": ["InvalidStateError", "QueueEmpty"],
}  # fmt: skip


def made(package, name):
    """An exception of an SDK, made without the arguments of its constructor."""
    kind = getattr(pytest.importorskip(package), name)
    return kind.__new__(kind)


@pytest.mark.parametrize(
    ("package", "name"), [(p, name) for p in CONNECTIONS for name in CONNECTIONS[p]]
)
def test_a_connection_error_of_an_sdk_is_retried(package, name):
    assert is_retryable(made(package, name))


@pytest.mark.parametrize(("package", "name"), [(p, name) for p in BUGS for name in BUGS[p]])
def test_another_error_of_an_sdk_is_not_retried(package, name):
    assert not is_retryable(made(package, name))


@pytest.mark.parametrize(
    ("name", "status", "again"),
    [
        ("BadRequestError", 400, False),
        ("AuthenticationError", 401, False),
        ("PermissionDeniedError", 403, False),
        ("NotFoundError", 404, False),
        ("ConflictError", 409, True),
        ("UnprocessableEntityError", 422, False),
        ("RateLimitError", 429, True),
        ("InternalServerError", 500, True),
    ],
)
def test_a_status_error_of_openai(name, status, again):
    openai, httpx = pytest.importorskip("openai"), pytest.importorskip("httpx")
    response = httpx.Response(status, request=httpx.Request("POST", "http://x"))
    assert is_retryable(getattr(openai, name)("no", response=response, body=None)) is again


def test_an_http_error_of_urllib():
    for status, again in ((503, True), (404, False)):
        with urllib.error.HTTPError(
            "http://x", status, "no", http.client.HTTPMessage(), None
        ) as error:
            assert is_retryable(error) is again


@pytest.mark.parametrize(("status", "again"), [(429, True), (500, True), (400, False)])
def test_a_status_error_of_botocore(status, again):
    response = {"Error": {"Code": "Oh"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert is_retryable(failure(response=response)) is again


@pytest.mark.parametrize(
    ("facts", "again"),
    [
        (
            {"status_code": 200, "body": {"type": "error", "error": {"type": "overloaded_error"}}},
            True,
        ),
        ({"code": "server_error"}, True),
        ({"body": {"type": "server_error"}}, True),
        ({"status_code": 400, "type": "rate_limit_error"}, False),
        ({"status_code": 200, "body": {"error": {"type": "invalid_request_error"}}}, False),
        ({"body": {"error": {"code": "insufficient_quota", "type": "server_error"}}}, False),
        ({"body": ["server_error"]}, False),
    ],
    ids=repr,
)
def test_an_error_that_a_stream_reports_is_known_by_its_code(facts, again):
    """The status of such a response is 200."""
    assert is_retryable(failure(**facts)) is again


def test_an_invalid_certificate_is_not_retried():
    """Although the SDKs report it as a connection that failed."""
    error = failure(ConnectionError)
    error.__cause__ = failure()
    error.__cause__.__context__ = made("ssl", "SSLCertVerificationError")
    assert not is_retryable(error)
    error.__cause__.__context__ = error  # a circle
    assert is_retryable(error)


def test_a_group_is_retried_if_all_of_its_errors_are():
    assert is_retryable(ExceptionGroup("two", [ConnectionError("a"), TimeoutError("b")]))
    assert not is_retryable(ExceptionGroup("two", [ConnectionError("a"), ValueError("b")]))


@pytest.mark.parametrize(
    "name",
    ["APIConnectionError", "ClientConnectionError", "ClientPayloadError", "ReadTimeoutError"],
)
def test_a_connection_error_of_an_sdk_is_recognised_by_the_name_of_a_base_class(name):
    base = type(name, (Exception,), {})
    assert is_retryable(type("SpecialError", (base,), {})("slow"))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        RuntimeError("a bug"),
        Exception("unknown"),
        TypeError("a bug"),
        KeyError("a bug"),
        AssertionError("a bug"),
        OSError("what?"),
        PermissionError(errno.EACCES, "denied"),
        FileNotFoundError(errno.ENOENT, "missing"),
        urllib.error.URLError("unknown url type"),
        NotAResponseError("no response"),
    ],
    ids=repr,
)
def test_an_error_that_is_not_known_to_be_temporary_is_not_retried(error):
    """Mistakes in the code of the backend would only be repeated."""
    assert not is_retryable(error)


def test_what_an_adapter_declares_wins():
    assert is_retryable(failure(ValueError, retryable=True))
    assert is_retryable(failure(status_code=400, retryable=True))
    assert not is_retryable(failure(ConnectionError, retryable=False))
    assert not is_retryable(failure(status_code=503, retryable=False))
    assert is_retryable(failure(status_code=503, retryable="no"))  # not a declaration


def wait(error=None, attempt=1, base=0.5):
    return drive_sync(delay_before_retry(error or failure(), attempt, base))


def test_each_delay_is_twice_as_long_less_a_jitter_of_a_quarter():
    for attempt, longest in (
        (1, 0.5),
        (2, 1.0),
        (3, 2.0),
        (6, 16.0),
        (7, MAX_DELAY),
        (50, MAX_DELAY),
        (5000, MAX_DELAY),
    ):
        waits = [wait(attempt=attempt) for _ in range(20)]
        assert all(0.75 * longest <= seconds <= longest for seconds in waits)
    assert len({wait() for _ in range(20)}) > 1


def test_a_base_of_zero_is_no_delay():
    assert wait(base=0) == 0


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("0", 0), ("1.5", 1.5), ("9999", MAX_DELAY)]
)
@pytest.mark.parametrize("place", ["response", "error"])
def test_the_delay_that_a_server_asks_for_is_kept_up_to_the_maximum(header, seconds, place):
    headers = {"retry-after": header}
    error = (
        failure(headers=headers) if place == "error" else failure(response=Holder(headers=headers))
    )
    assert wait(error) == seconds


@pytest.mark.parametrize("header", ["-1", "nan", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "", None])
def test_a_header_that_is_not_a_number_of_seconds_is_ignored(header):
    error = failure(response=Holder(headers={"retry-after": header}))
    assert 0.375 <= wait(error) <= 0.5


@pytest.mark.parametrize(
    "code",
    ["context_length_exceeded", "insufficient_quota", "invalid_api_key", "model_not_found"],
)
def test_a_permanent_code_takes_precedence_over_the_status(code):
    """A used-up quota is reported as 429, which is temporary otherwise."""
    error = Exception("no")
    error.status_code, error.code = 429, code
    assert not is_retryable(error)
    error.code = "rate_limit_exceeded"
    assert is_retryable(error)
    error.code = [code]  # nothing that could be looked up
    assert is_retryable(error)


def test_an_error_whose_attributes_raise_is_not_retried():
    class OddError(Exception):
        @property
        def status_code(self):
            raise ValueError

        code = response = headers = reason = retryable = status_code

    assert not is_retryable(OddError())
    assert 0 < drive_sync(delay_before_retry(OddError(), 1, 4.0)) <= 4.0
