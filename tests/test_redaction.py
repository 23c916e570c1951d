"""Credentials in the texts of errors."""

import pytest
from tests.growth import is_linear

from treadle.redaction import redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for url 'https://me:pw@host/v1'", "for url 'https://[redacted]@host/v1'"),
        ("https://h/v1?key=AIzaX&alt=sse'", "https://h/v1?key=[redacted]&alt=sse'"),
        ("https://h/?a=1&X-Amz-Signature=ab%20c d", "https://h/?a=1&X-Amz-Signature=[redacted] d"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("{'x-api-key': 'ab c', 'b': 1}", "{'x-api-key': '[redacted]', 'b': 1}"),
        ('{"Authorization": "Basic dXNlcjpwdw=="}', '{"Authorization": "[redacted]"}'),
        ("(b'set-cookie', 1) session_token=abc123def", "(b'set-cookie', 1) session_token=[redacted]"),
        ("Incorrect API key provided: sk-proj-0123456789ab.", "Incorrect API key provided: [redacted]."),
    ],
)  # fmt: skip
def test_credentials_are_removed(text, expected):
    assert redacted(text) == expected
    assert redacted(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Basic authentication is required",
        "the bearer token is missing",
        "api_key: Field required",
        "unexpected keyword argument 'api_key'",
        "'a' is no key: expected one of 'b', 'c'",
        "https://docs.example.org/errors?page=2#sk-",
        "mail me@example.org, or see http://example.org/@me",
        "max_tokens: 4096 is above the limit",
    ],
)
def test_other_text_is_kept(text):
    assert redacted(text) == text


@pytest.mark.parametrize(
    "part", ["token ", "a-", "bearer ", "https://", "?key=", "'api_key': '", "key", "x-api-key:", "sk-"]
)  # fmt: skip
def test_it_takes_linear_time(part):
    def make(size):
        return lambda text=part * size: redacted(text)

    assert is_linear(make, 20_000)
