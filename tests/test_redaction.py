"""Credentials in the texts of errors."""

import pytest
from tests.growth import growth, is_linear

from treadle.redaction import HEAD, MARGIN, TAIL, redacted, without_credentials


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


SECRETS = [
    "sk-proj-0123456789abcdefSECRET0",
    "Authorization: Bearer abc.0def-SECRET",
    "{'x-api-key': 'ab c SECRET'}",
    "https://me:0SECRET@host/v1",
    "https://h/v1?key=" + "0SECRET" * 1_000,
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("filling", ["x ", "token=abc123 ", "word"])
def test_a_cut_through_a_credential_does_not_show_a_part_of_it(secret, filling):
    """Wherever the credential is, of the places at which the text could be cut."""
    for place in (HEAD, HEAD + MARGIN, -TAIL, -TAIL - MARGIN):
        for shift in (*range(-len(secret) - 3, 4, 1 + len(secret) // 9), 0):
            text = f" {filling * (150_000 // len(filling))}"
            at = place + shift if place > 0 else len(text) + place + shift
            text = f"{text[:at]} {secret} {text[at:]}"
            assert "SECRET" not in redacted(text)


def test_of_a_long_text_the_start_and_the_end_are_kept_with_the_number_of_characters_between_them():
    text = "start " + "x" * 1_000_000 + " end"
    made = redacted(text)
    start, end = "start " + "x" * (HEAD - 6), "x" * (TAIL - 4) + " end"
    assert made == f"{start} [{len(text) - HEAD - TAIL:,} characters left out] {end}"


def test_data_is_not_cut():
    text = "x" * 1_000_000
    assert without_credentials({"text": [text]}) == {"text": [text]}


def test_the_time_does_not_depend_on_the_length_of_a_long_text():
    def make(size):
        text = "a-b_c key token: " * size
        return lambda: redacted(text)

    assert growth(make, 60_000) < 4
