"""Models that embed texts: the base of those behind an SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from treadle.errors import OptionError
from treadle.messages import NotAResponseError
from treadle.providers.sdk_connection import SDKConnection


class SDKEmbedder(SDKConnection):
    """A model that embeds texts, behind the SDK of its provider; async, and safe to share.

    It is an async callable: ``await embedder(texts)`` returns a vector for each text, in order. Texts are sent in
    batches, one after another; an empty list needs no request. The SDK's retries are off.

    A subclass defines `_embed`, the limits of a batch, and `_new_client`.

    Args:
        name: the model, as the provider names it.
        base_url: another endpoint than the provider's.
        api_key: the key for this endpoint; see `SDKModel`.
        dimensions: the length of the vectors; None for the model's own.
        batch_size: the maximum number of texts in a request; None for the provider's limit.
        timeout: seconds for each request; None for the SDK's default.

    Raises:
        MissingExtraError: the SDK is not installed.
        OptionError: the name is empty, there is no key for the provider's own endpoint, or a number is invalid.

    Attributes:
        name, model: the model, as the provider names it.
        dimensions: see above.
    """

    max_texts: ClassVar[int]
    """The maximum number of texts in a request of this provider."""
    max_bytes: ClassVar[int]
    """The maximum size of the texts in a request, in bytes of UTF-8. A token has at least one byte, so a limit of
    tokens can stand here. A longer text is sent by itself."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        batch_size: int | None = None,
        timeout: float | None = None,
    ) -> None:
        _check_positive(int, dimensions=dimensions, batch_size=batch_size)
        _check_positive((int, float), timeout=timeout)
        super().__init__(name, base_url, api_key)
        self.dimensions = dimensions
        self._batch_size = min(batch_size or self.max_texts, self.max_texts)
        self._timeout = timeout

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts.

        Args:
            texts: a list of texts.

        Returns:
            A vector for each text, in the order of the texts.

        Raises:
            OptionError: it is not a list of texts.
            NotAResponseError: the server did not return one vector for each text.
            MissingKeyError, RedirectError: see `SDKModel`.
            Exception: any other error of the SDK.
        """
        _check_texts(texts)
        if not texts:
            return []
        client = await self._client()
        vectors: list[list[float]] = []
        for batch in self._batches(texts):
            with self._explaining():
                found = await self._embed(client, batch)
            if len(found) != len(batch):
                raise NotAResponseError(
                    f"{self!r}: expected {len(batch)} vectors, got {len(found)}"
                )
            vectors += found
        return vectors

    async def _embed(self, client: Any, texts: list[str]) -> list[list[float]]:
        """Send one request with the SDK; returns the vectors in the order of the texts."""
        raise NotImplementedError

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in texts:
            length = len(text.encode("utf-8", "replace"))
            if batch and (len(batch) == self._batch_size or size + length > self.max_bytes):
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += length
        yield batch


def _check_positive(kind: type | tuple[type, ...], **numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not (isinstance(number, kind) and number > 0):
            what = "an integer" if kind is int else "a number"
            raise OptionError(f"{name}: expected {what} above 0, got {number!r}")


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str) or not isinstance(texts, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"texts: expected a list of texts, got {type(texts).__name__}")
    for index, text in enumerate(texts):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"texts[{index}]: expected text, got {type(text).__name__}")
