"""What a journal stores of the contents of runs: encoded, large ones in separate files."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from treadle.errors import JournalError, MissingExtraError, OptionError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

MAX_INLINE = 256 * 1024
"""The default of ``max_inline``, in bytes. SQLite copies a larger row several times."""
MAX_PAYLOAD = 64 * 1024 * 1024
"""The default of ``max_payload``, in bytes."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
Stored: TypeAlias = bytes | str
"""A payload as it is in a row: its encoded bytes, or the name of the file that has them."""


class Codec(Protocol):
    """Encodes the contents of runs before a journal stores them, such as `EncryptedPayloads`.

    Its methods are called in worker threads, at the same time.
    """

    def encode(self, data: bytes, /) -> bytes:
        """Encode data."""
        ...

    def decode(self, data: bytes, /) -> bytes:
        """Decode what `encode` returned.

        Raises:
            ValueError: it is not that, or was encoded with another key.
        """
        ...


class EncryptedPayloads:
    """A codec that encrypts what a journal stores, with Fernet: AES in CBC mode, and a signature (HMAC).

    Needs ``pip install 'treadle[encryption]'``. The ids of runs and calls, the names of agents, times, statuses
    and the sizes of contents stay readable.

    Args:
        key: encrypts, and decrypts. ``cryptography.fernet.Fernet.generate_key()`` makes one.
        *older_keys: decrypt what was encrypted before the key was replaced.

    Raises:
        MissingExtraError: the extra ``encryption`` is not installed.
        OptionError: a key is none.
    """

    def __init__(self, key: str | bytes, *older_keys: str | bytes) -> None:
        try:
            from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError(
                "cryptography, which encrypts payloads,", "pip install 'treadle[encryption]'"
            ) from error
        try:
            self._fernet: MultiFernet = MultiFernet([Fernet(one) for one in (key, *older_keys)])
        except (ValueError, TypeError, AttributeError):
            raise OptionError(
                "EncryptedPayloads: expected keys of Fernet.generate_key(): 32 bytes as URL-safe base64"
            ) from None  # the text of the error might have a part of the key

    def encode(self, data: bytes, /) -> bytes:
        """Encrypt data with the first key."""
        return self._fernet.encrypt(data)

    def decode(self, data: bytes, /) -> bytes:
        """Decrypt data with the first key that fits.

        Raises:
            ValueError: none fits, or the data was changed.
        """
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - an extra

        try:
            return self._fernet.decrypt(data)
        except InvalidToken:
            raise ValueError(
                "it was encrypted with another key, was not encrypted, or was changed"
            ) from None


class Payloads:
    """Stores and restores JSON data.

    A payload that is too large for a row is a file in a folder next to the journal. Its name starts with the
    random text of its run, so that the files of a run can be deleted, and ends with the SHA-256 of its bytes.

    Args:
        path: the file of the journal.
        codec: encodes everything; None stores JSON.
        max_inline: the size up to which a payload is in a row, in bytes.
        max_payload: the size up to which a payload is stored, in bytes of JSON.
        is_synced: return when the disk has a file.
    """

    def __init__(
        self, path: str, codec: Codec | None, max_inline: int, max_payload: int, *, is_synced: bool
    ) -> None:
        for name, value in (("max_inline", max_inline), ("max_payload", max_payload)):
            if not isinstance(value, int) or value < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(f"SQLiteJournal: {name}: expected 0 or more bytes, got {value!r}")
        if codec is not None and not all(
            callable(getattr(codec, name, None)) for name in ("encode", "decode")
        ):
            raise OptionError(
                f"SQLiteJournal: codec: expected an object with encode and decode, got {codec!r}"
            )
        self.folder = f"{path}-files"
        self._codec = codec
        self._max_inline = max_inline
        self._max_payload = max_payload
        self._is_synced = is_synced

    def put(self, data: Any, files: str, what: str) -> Stored:
        """Encode data, and write it to a file if it is large.

        Args:
            data: JSON data.
            files: the random text of the run.
            what: names the data in errors.

        Raises:
            JournalError: it is too large, is no JSON data, or cannot be written.
        """
        try:
            text = _encode(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"{what} is not JSON data: {error}") from error
        content = text.encode("utf-8", "surrogatepass")
        if len(content) > self._max_payload:
            raise JournalError(
                f"{what} is too large for the journal: {len(content):,} bytes, at most "
                f"max_payload={self._max_payload:,}; have the tool return the path of a file, or allow more"
            )
        if self._codec is not None:
            try:
                content = self._codec.encode(content)
            except Exception as error:
                raise JournalError(f"{what} could not be encoded: {error}") from error
        if len(content) <= self._max_inline:
            return content
        name = f"{files}-{hashlib.sha256(content).hexdigest()}"
        try:
            self._write(name, content)
        except OSError as error:
            raise JournalError(
                f"{os.path.join(self.folder, name)}: could not store {what}: {error}"  # noqa: PTH118
            ) from error
        return name

    def _write(self, name: str, content: bytes) -> None:
        from pathlib import Path  # noqa: PLC0415 - it is slow to import

        from treadle.files import replace_file, sync_folder  # noqa: PLC0415 - as above

        folder = Path(self.folder)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            if self._is_synced:
                sync_folder(folder.parent)
        if not (folder / name).exists():
            replace_file(folder / name, content, durable=self._is_synced)

    def get(self, stored: Stored, what: str) -> Any:
        """Restore data.

        Args:
            stored: what `put` returned.
            what: names the data in errors.

        Raises:
            JournalError: it cannot be read or decoded.
        """
        content = self._read(stored, what) if isinstance(stored, str) else stored
        try:
            return json.loads(content if self._codec is None else self._codec.decode(content))
        except Exception as error:
            why = f"could not read {what}: {error}"
            if self._codec is None:
                why = f"could not read {what}: it is not JSON; was it stored with a codec?"
            raise JournalError(why) from error

    def _read(self, name: str, what: str) -> bytes:
        from pathlib import Path  # noqa: PLC0415 - it is slow to import

        path = Path(self.folder) / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise JournalError(f"{path}: could not read {what}: {error}") from error
        if hashlib.sha256(content).hexdigest() != name.rpartition("-")[2]:
            raise JournalError(f"{path}: could not read {what}: the file was changed")
        return content

    def delete(self, files: str) -> None:
        """Delete the files of a run.

        Args:
            files: its random text.

        Raises:
            OSError: one cannot be deleted.
        """
        from pathlib import Path  # noqa: PLC0415 - it is slow to import

        for path in Path(self.folder).glob(f"{files}-*"):
            path.unlink(missing_ok=True)
