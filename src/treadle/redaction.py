"""Removes credentials from the texts of errors: libraries put the URL or the headers of a failed request there."""

from __future__ import annotations

import re
from typing import Any

REDACTED = "[redacted]"
"""What replaces a credential."""

HEAD, TAIL, MARGIN = 12_000, 4_000, 8_000
"""The characters that are kept at the start and the end of a long text, and the longest credential that a cut may
divide: so many characters beside a cut are searched for credentials, and left out."""

_NAME = r"(?:authorization|cookie|api[-_]?key|token|secret|password)"
"""The end of the name of a credential. Its start is not searched for: that would take time at each word."""
_CREDENTIALS = (
    *("auth", "authorization", "cookie", "cookies", "credential", "credentials"),
    *("headers", "key", "password", "query", "secret", "token"),
)
"""The ends of names of options that may have credentials."""


_FORMS = (
    # The name and the password of a URL.
    (r"(?<=://)[^\s/@'\"?#]+@", f"{REDACTED}@"),
    # Parameters of a URL.
    (
        r"([?&;](?:[\w.-]{0,40}(?:key|token|secret|password|signature|credential)|sig|auth)=)[^\s&;#'\")]+",
        rf"\1{REDACTED}",
    ),
    # The credentials of a header; a word without a digit is part of a sentence.
    (r"\b(bearer|basic)\s+(?=[\w.~+/-]*[\d=])[\w.~+/=-]{6,}", rf"\1 {REDACTED}"),
    # A header or an option in a dict.
    (rf"({_NAME}['\"]\s*[:=]\s*b?)(['\"])[^'\"]+\2", rf"\1\2{REDACTED}\2"),
    # A header or an option by itself.
    (rf"({_NAME}\s*[:=]\s*)(?=[\w.~+/-]*\d)[\w.~+/=-]{{6,}}", rf"\1{REDACTED}"),
    # OpenAI's and Anthropic's keys.
    (r"\bsk-[\w-]{12,}", REDACTED),
)
"""The forms of credentials, each with what replaces it; `re` compiles them when the first error is redacted."""


def redacted(text: str) -> str:
    """A text without the credentials that can be recognized in it; of a long one, the start and the end.

    Args:
        text: such as that of an exception. Passwords and parameters of URLs, headers and keys by common names, and
            the keys of OpenAI and Anthropic are recognized; a secret of another form is not.
    """
    if len(text) <= HEAD + TAIL + 2 * MARGIN:
        return _without(text)
    head = _without(text[: HEAD + MARGIN])[:-MARGIN][:HEAD]
    tail = _without(text[-TAIL - MARGIN :])[MARGIN:][-TAIL:]
    left_out = len(text) - len(head) - len(tail)
    return f"{head} [{left_out:,} characters left out] {tail}"


def _without(text: str) -> str:
    for form, replacement in _FORMS:
        text = re.sub(form, replacement, text, flags=re.IGNORECASE)
    return text


def without_credentials(data: Any) -> Any:
    """JSON data without the credentials that are recognized in its texts, and without the keys that name some."""
    kind = data.__class__
    if issubclass(kind, list):
        return [without_credentials(part) for part in data]
    if issubclass(kind, dict):
        return {key: without_credentials(data[key]) for key in data if not is_credential(key)}
    return _without(data) if issubclass(kind, str) else data


def is_credential(name: str) -> bool:
    """Whether an option of a request may have credentials, by its name, such as ``extra_headers``."""
    return name.lower().endswith(_CREDENTIALS)
