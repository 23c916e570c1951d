"""Which model plays which role in a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from treadle.errors import OptionError, one_of
from treadle.fast_dataclass import light_dataclass
from treadle.model import LLMSendFn, Model, embedder
from treadle.model.registry import Embedder, check_model, named_model

Role: TypeAlias = Literal["chat", "summary", "memory"]
"""The roles of models that answer."""
_ROLES = ("chat", "summary", "memory")


@light_dataclass(frozen=True)
class Roles:
    """The models of a program by role: a cheaper one may summarize, or extract facts.

    A model is a callable or a name, as ``llm_send_fn`` takes it.

    Args:
        chat: answers the user.
        summary: summarizes long conversations; None means that of the chat.
        memory: extracts facts from conversations; None means that of summaries.
        embedding: embeds texts: a callable that takes texts and returns vectors, or the name of such a
            model; None if no text is embedded.

    Raises:
        OptionError: a value is neither a callable nor the name of a model.
    """

    chat: Model
    summary: Model | None = None
    memory: Model | None = None
    embedding: Embedder | str | None = None

    def __post_init__(self) -> None:
        for role in _ROLES:
            given = getattr(self, role)
            if given is not None or role == "chat":
                check_model(given)
        if isinstance(self.embedding, str):
            check_model(self.embedding)
        elif not (self.embedding is None or callable(self.embedding)):
            raise OptionError(
                "embedding: expected a callable that takes texts, or the name of a model, got "
                f"{type(self.embedding).__name__}"
            )

    def model(self, role: Role) -> LLMSendFn:
        """The model of a role. It may be passed as ``llm_send_fn``, or called with messages.

        Args:
            role: ``chat``, ``summary`` or ``memory``.

        Raises:
            OptionError: the role is unknown, or the model cannot be opened.
        """
        if role not in _ROLES:
            raise OptionError(f"role: expected {one_of(_ROLES)}, got {role!r}")
        summary = self.chat if self.summary is None else self.summary
        memory = summary if self.memory is None else self.memory
        chosen: Model = {"chat": self.chat, "summary": summary, "memory": memory}[role]
        return named_model(chosen) if isinstance(chosen, str) else chosen

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts.

        Args:
            texts: the texts; there may be none.

        Returns:
            A vector for each, in their order.

        Raises:
            OptionError: there is no model that embeds.
        """
        if self.embedding is None:
            raise OptionError("embedding: no model was given for this role")
        embed = embedder(self.embedding) if isinstance(self.embedding, str) else self.embedding
        return await embed(texts)
