"""`treadle models`: the providers of models, and what is missing before each can be used."""

from __future__ import annotations

import argparse
import json
from typing import Any

from treadle.cli.exits import Exit
from treadle.cli.output import aligned
from treadle.cli.streams import show
from treadle.providers import Provider, aliases, providers


def models(args: argparse.Namespace) -> Exit:
    """Execute `treadle models`."""
    known = [*providers().values()]
    if args.json:
        show(json.dumps({"providers": [_facts(one) for one in known], "aliases": {**aliases()}}))
        return Exit.OK
    rows = [("PROVIDER", "MODELS", "STATUS"), *map(_row, known)]
    for line in aligned(rows):
        show(line)
    return Exit.OK


def _facts(provider: Provider) -> dict[str, Any]:
    missing = provider.missing()
    return {
        "name": provider.name,
        "title": provider.title,
        "aliases": [*provider.aliases],
        "models": [*provider.model_forms],
        "embeds": provider.open_embedder is not None,
        "variables": [*provider.key_variables],
        "is_ready": missing is None,
        "missing": missing,
    }


def _row(provider: Provider) -> tuple[str, str, str]:
    missing = provider.missing()
    return provider.title, ", ".join(provider.model_forms), "ready" if missing is None else missing
