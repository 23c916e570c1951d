"""Which failures of a model are retried, and after which delay."""

import errno
import http.client
import socket
import urllib.error
from types import SimpleNamespace

import pytest

from treadle.effects import drive_sync
from treadle.messages import NotAResponseError
from treadle.model import is_retryable
from treadle.model.retry import MAX_DELAY, delay_before_retry, retry_after, status_of


def failure(cls=Exception, **facts):
    error = cls("x")
    for name, value in facts.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize("name", ["status_code", "status", "code", "http_status"])
def test_a_status_is_read_by_each_name_and_decides_on_a_retry(name):
    for status in (408, 409, 425, 429, 500, 502, 503, 504, 529, 599):
        assert is_retryable(failure(**{name: status}))
    for status in (400, 401, 403, 404, 413, 422, 301):
        assert not is_retryable(failure(**{name: status}))


@pytest.mark.parametrize("code", ["context_length_exceeded", 7, None, True, 99, 600, 12.5])
def test_a_code_that_is_not_an_http_status_is_ignored(code):
    assert status_of(failure(code=code)) is None


def test_the_status_may_be_that_of_the_response_an_error_carries():
    """As in httpx and requests, whose errors have no status of their own."""
    assert status_of(failure(response=SimpleNamespace(status_code=401))) == 401
    assert not is_retryable(failure(response=SimpleNamespace(status_code=401)))
    assert status_of(failure(status_code=500, response=SimpleNamespace(status_code=401))) == 500


TEMPORARY = [
    ConnectionError("gone"),
    ConnectionResetError("reset"),
    BrokenPipeError("closed"),
    TimeoutError("slow"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    OSError(errno.ENETUNREACH, "Network is unreachable"),
    urllib.error.URLError(ConnectionRefusedError("refused")),
    http.client.IncompleteRead(b"half"),
    failure(TypeError, status_code=503),
    ExceptionGroup("two", [ConnectionError("a"), TimeoutError("b")]),
]
PERMANENT = [  # mistakes in the code of the backend would only be repeated
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
    failure(ConnectionError, status_code=400),
    ExceptionGroup("two", [ConnectionError("a"), ValueError("b")]),
]


@pytest.mark.parametrize(
    ("error", "again"),
    [*((error, True) for error in TEMPORARY), *((error, False) for error in PERMANENT)],
    ids=repr,
)
def test_an_error_is_retried_only_if_it_is_known_to_be_temporary(error, again):
    assert is_retryable(error) is again


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
    ("package", "name", "again"),
    [
        (package, name, names is CONNECTIONS)
        for names in (CONNECTIONS, BUGS)
        for package in names
        for name in names[package]
    ],
)
def test_an_error_of_an_sdk_is_retried_if_its_connection_failed(package, name, again):
    assert is_retryable(made(package, name)) is again


@pytest.mark.parametrize("package", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("name", "status", "kind", "again"),
    [
        ("BadRequestError", 400, "invalid_request_error", False),
        ("AuthenticationError", 401, "authentication_error", False),
        ("PermissionDeniedError", 403, "permission_error", False),
        ("NotFoundError", 404, "not_found_error", False),
        ("ConflictError", 409, "conflict", True),
        ("UnprocessableEntityError", 422, "invalid", False),
        ("RateLimitError", 429, "rate_limit_error", True),
        ("InternalServerError", 500, "api_error", True),
        ("APIStatusError", 529, "overloaded_error", True),
        ("APIStatusError", 200, "overloaded_error", True),  # within a stream
    ],
)
def test_a_status_error_of_openai_and_anthropic(package, name, status, kind, again):
    sdk, httpx = pytest.importorskip(package), pytest.importorskip("httpx")
    response = httpx.Response(status, request=httpx.Request("POST", "http://x"))
    body = {"type": "error", "error": {"type": kind, "message": "m"}}
    assert is_retryable(getattr(sdk, name)("no", response=response, body=body)) is again


@pytest.mark.parametrize(
    ("status", "name", "again"),
    [
        (429, "RESOURCE_EXHAUSTED", True),
        (503, "UNAVAILABLE", True),
        (500, "INTERNAL", True),
        (400, "INVALID_ARGUMENT", False),
        (403, "PERMISSION_DENIED", False),
    ],
)
def test_a_status_error_of_google(status, name, again):
    errors = pytest.importorskip("google.genai.errors")
    body = {"error": {"code": status, "status": name, "message": "m"}}
    assert is_retryable(errors.APIError(status, body)) is again


def test_an_http_error_of_urllib():
    for status, again in ((503, True), (404, False)):
        with urllib.error.HTTPError(
            "http://x", status, "no", http.client.HTTPMessage(), None
        ) as error:
            assert is_retryable(error) is again


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error"}}
AGAIN, NOT_AGAIN = {"x-should-retry": "true"}, {"x-should-retry": "false"}


def of_botocore(status, **metadata):
    return {"response": {"ResponseMetadata": {"HTTPStatusCode": status, **metadata}}}


@pytest.mark.parametrize(
    ("facts", "again"),
    [
        # an error that a stream reports, after the status 200, is known by its code
        ({"status_code": 200, "body": OVERLOADED}, True),
        ({"code": "server_error"}, True),
        ({"body": {"type": "server_error"}}, True),
        ({"status_code": 400, "type": "rate_limit_error"}, False),
        ({"status_code": 200, "body": {"error": {"type": "invalid_request_error"}}}, False),
        ({"body": {"error": {"code": "insufficient_quota", "type": "server_error"}}}, False),
        ({"body": ["server_error"]}, False),
        (of_botocore(429), True),
        (of_botocore(500), True),
        (of_botocore(400), False),
        # a permanent code takes precedence over the status: a used-up quota is a 429
        *(
            ({"status_code": 429, "code": code}, False)
            for code in ("context_length_exceeded", "insufficient_quota", "invalid_api_key")
        ),
        ({"status_code": 429, "code": "model_not_found"}, False),
        ({"status_code": 429, "code": "rate_limit_exceeded"}, True),
        ({"status_code": 429, "code": ["insufficient_quota"]}, True),
        # before both, as in the SDKs, the server may ask for a retry, or for none
        ({"headers": {"X-Should-Retry": "True"}}, True),
        ({"status_code": 400, "headers": [(b"x-should-retry", b"true")]}, True),
        ({"status_code": 429, "code": "insufficient_quota", "headers": AGAIN}, True),
        ({"status_code": 503, "headers": NOT_AGAIN}, False),
        ({"status_code": 429, "headers": NOT_AGAIN}, False),
        ({"status_code": 503, "headers": {"x-should-retry": "perhaps"}}, True),
        # before all else, an adapter may declare it
        ({"retryable": True}, True),
        ({"status_code": 400, "retryable": True}, True),
        ({"status_code": 503, "retryable": False}, False),
        ({"status_code": 503, "retryable": "no"}, True),  # not a declaration
        ({"status_code": 400, "headers": AGAIN, "retryable": False}, False),
        ({"status_code": 503, "headers": NOT_AGAIN, "retryable": True}, True),
    ],
    ids=repr,
)
def test_the_attributes_of_an_error_decide_in_this_order(facts, again):
    assert is_retryable(failure(**facts)) is again


def test_a_declaration_takes_precedence_over_the_class():
    assert not is_retryable(failure(ConnectionError, retryable=False))


def test_an_invalid_certificate_is_not_retried():
    """Although the SDKs report it as a connection that failed."""
    error = failure(ConnectionError)
    error.__cause__ = failure()
    error.__cause__.__context__ = made("ssl", "SSLCertVerificationError")
    assert not is_retryable(error)
    error.__cause__.__context__ = error  # a circle
    assert is_retryable(error)


@pytest.mark.parametrize(
    "name",
    ["APIConnectionError", "ClientConnectionError", "ClientPayloadError", "ReadTimeoutError"],
)
def test_a_connection_error_of_an_sdk_is_recognised_by_the_name_of_a_base_class(name):
    base = type(name, (Exception,), {})
    assert is_retryable(type("SpecialError", (base,), {})("slow"))


def wait(error=None, attempt=1, base=0.5):
    return drive_sync(delay_before_retry(retry_after(error or failure()), attempt, base))


def test_each_delay_is_twice_as_long_less_a_jitter_of_a_quarter():
    delays = {1: 0.5, 2: 1.0, 3: 2.0, 6: 16.0, 7: MAX_DELAY, 50: MAX_DELAY, 5000: MAX_DELAY}
    for attempt, longest in delays.items():
        waits = [wait(attempt=attempt) for _ in range(20)]
        assert all(0.75 * longest <= seconds <= longest for seconds in waits)
    assert len({wait() for _ in range(20)}) > 1


def test_a_base_of_zero_is_no_delay():
    assert wait(base=0) == 0


NOW = 1_792_567_680.0  # Wed, 21 Oct 2026 07:28:00 GMT
DATE = {"date": "Wed, 21 Oct 2026 07:28:00 GMT"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": 3}, 3),
        ({"retry-after": "9999"}, 9999),
        ({"Retry-After": "7"}, 7),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"Retry-After-Ms": "1500"}, 1.5),
        ({"x-ms-retry-after-ms": "40", "retry-after": "1"}, 0.04),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after-ms": "-1", "retry-after": "7"}, 7),
        ([("Retry-After", "7"), ("x-request-id", "1")], 7),
        ([(b"retry-after", b"7")], 7),
        ({b"Retry-After": b"7"}, 7),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:03 GMT"}, 3),
        ({"retry-after": "Wednesday, 21-Oct-26 07:28:03 GMT"}, 3),
        ({"retry-after": "Wed Oct 21 07:28:03 2026"}, 3),
        ({"retry-after": "Wed, 21 Oct 2026 09:28:03 +0200"}, 3),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT"}, 0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0),
        ({"retry-after": "Wed, 21 Oct 2026 08:28:00 GMT"}, 3600),
        # The clock of the server is an hour ahead: its own date says how long it means.
        (
            {
                "date": "Wed, 21 Oct 2026 08:28:00 GMT",
                "retry-after": "Wed, 21 Oct 2026 08:28:05 GMT",
            },
            5,
        ),
        ({"date": "soon", "retry-after": "Wed, 21 Oct 2026 07:28:05 GMT"}, 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", ["response", "error", "a dict", "a group"])
def test_the_wait_that_a_server_asks_for_is_read_from_its_headers(headers, seconds, place):
    error = {
        "response": lambda: failure(response=SimpleNamespace(headers=headers)),
        "error": lambda: failure(headers=headers),
        "a dict": lambda: failure(response={"headers": headers}),
        "a group": lambda: ExceptionGroup("", [failure(headers=headers), failure()]),
    }[place]()
    assert drive_sync(delay_before_retry(retry_after(error, NOW), 1, 0.5)) == pytest.approx(seconds)
    assert retry_after(error, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "header",
    ["-1", "nan", "inf", "-inf", "1e999", "soon", "12:30", "1 day", "Wed, 99 Foo 2026", "", None, [], object(),
     "Wed, 21 Oct 99999999 07:28:00 GMT"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms", "x-ms-retry-after-ms"])
def test_an_invalid_wait_is_ignored(name, header):
    error = failure(response=SimpleNamespace(headers={name: header}))
    assert retry_after(error) is None
    assert 0.375 <= wait(error) <= 0.5


@pytest.mark.parametrize("name", ["x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"])
def test_a_limit_that_every_response_reports_does_not_ask_for_a_wait(name):
    assert retry_after(failure(headers={name: "6m0s"})) is None


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
QUOTA = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []}


def gemini_body(*details):
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [*details]}}


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({"details": gemini_body(QUOTA, RETRY_INFO)}, 34.5),
        ({"details": [gemini_body(RETRY_INFO)]}, 34.5),
        ({"body": [gemini_body(RETRY_INFO)]}, 34.5),  # through OpenAI's SDK
        ({"body": gemini_body(RETRY_INFO)["error"]}, 34.5),
        ({"details": gemini_body(RETRY_INFO), "headers": {"retry-after": "2"}}, 2),
        ({"details": gemini_body({**RETRY_INFO, "retryDelay": "soon"})}, None),
        ({"details": gemini_body({**RETRY_INFO, "retryDelay": None})}, None),
        ({"details": gemini_body(QUOTA)}, None),
        ({"details": "no", "body": 7}, None),
        (of_botocore(429, HTTPHeaders={"retry-after": "4"}), 4),
    ],
    ids=str,
)
def test_the_wait_in_the_details_of_an_error_of_google_and_of_botocore(facts, seconds):
    assert retry_after(failure(**facts)) == seconds


def test_the_wait_of_an_error_of_googles_sdk():
    errors = pytest.importorskip("google.genai.errors")
    error = errors.ClientError(429, gemini_body(QUOTA, RETRY_INFO))
    assert is_retryable(error)
    assert retry_after(error) == 34.5


@pytest.mark.parametrize("package", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("headers", "again", "seconds"),
    [
        ({"retry-after": "Wed, 21 Oct 2026 07:28:03 GMT", **DATE}, True, 3),
        ({"retry-after-ms": "20"}, True, 0.02),
        ({"x-should-retry": "false", "retry-after": "1"}, False, 1),
        ({"x-should-retry": "true"}, True, None),
    ],
    ids=str,
)
def test_the_headers_of_an_error_of_an_sdk(package, headers, again, seconds):
    sdk, httpx = pytest.importorskip(package), pytest.importorskip("httpx")
    response = httpx.Response(429, request=httpx.Request("POST", "http://x"), headers=headers)
    error = sdk.RateLimitError("no", response=response, body=None)
    assert (is_retryable(error), retry_after(error)) == (again, seconds)


def test_an_error_whose_attributes_raise_is_not_retried():
    class OddError(Exception):
        @property
        def status_code(self):
            raise ValueError

        code = response = headers = reason = retryable = status_code

    assert not is_retryable(OddError())
    assert 0 < drive_sync(delay_before_retry(retry_after(OddError()), 1, 4.0)) <= 4.0
