"""Models for `Loop`, by name. A provider is an entry point; it imports its SDK when it is used."""

from treadle.model import Provider, add_alias, backend, providers

__all__ = ["Provider", "add_alias", "backend", "providers"]
