"""What a loop is made of, as data that can be stored and compared: its tools, stages, instructions and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from treadle.loop.built_loop import BuiltLoop
from treadle.loop.options import OPTIONS
from treadle.loop.subagent import Subagent
from treadle.messages import ATOMS, JSONDict, is_mapping
from treadle.model import Model
from treadle.model.info import ModelInfo, model_info
from treadle.pipeline import Stage
from treadle.redaction import is_credential, without_credentials
from treadle.shown import callable_name
from treadle.stages import BUILT_IN
from treadle.tool_search import ToolSearch
from treadle.tools import Output, Tool

_ELSEWHERE = {
    "instructions",
    "limits",
    "llm_opts",
    "llm_send_fn",
    "output",
    "pauses",
    "stages",
    "tools",
}
_OPTIONS = tuple(
    name for name, option in OPTIONS.items() if not option.is_of_run and name not in _ELSEWHERE
)
_NO_POLICIES = {"name", "description", "input_schema", "fn", "steps", "signature", "parse"}
_POLICIES = tuple(
    spec.name for spec in dataclasses.fields(Tool) if spec.init and spec.name not in _NO_POLICIES
)


def configuration_of(loop: BuiltLoop, llm_send_fn: Model | None = None) -> JSONDict:
    """What a loop is made of, as JSON data; `treadle.recording.configuration.changes_between` compares two.

    Functions and objects are in it by name. Options that are secret, such as ``deps`` and the credentials of
    requests, are not.

    Args:
        loop: the loop.
        llm_send_fn: the model of the run; None means that of the loop.

    Returns:
        ``tools``, by name, with their policies except those that are None, False or empty; ``stages``, the names
        in order; ``instructions``; ``options`` except those that are None; ``requests``, the options of each
        request; ``model`` and ``provider``, as far as they are known. The caller must not change it.
    """
    settings, output = loop.settings, loop.output
    requests = settings.llm_opts if output is None else {**settings.llm_opts, **output.options}
    model = _model_of(settings.llm_send_fn if llm_send_fn is None else llm_send_fn, requests)
    return {
        "tools": {name: _tool(tool) for name, tool in loop.tools.items()},
        "stages": list(loop.pipeline.names),
        "instructions": _plain(settings.instructions),
        "options": _options(loop),
        "requests": _without_credentials({**model.request, **requests}),
        "model": model.model,
        "provider": model.provider,
    }


def _tool(tool: Tool) -> JSONDict:
    made: JSONDict = {"description": tool.description, "parameters": tool.input_schema}
    for name in _POLICIES:
        value = getattr(tool, name)
        if value:
            made[name] = _plain(value)
    steps = tool.steps
    if isinstance(steps, Subagent):
        made["loop"] = configuration_of(steps.loop)
    return made


def _options(loop: BuiltLoop) -> JSONDict:
    settings = loop.settings
    values = {name: getattr(settings, name) for name in _OPTIONS if hasattr(settings, name)}
    values |= _fields(settings.limits)
    values["on_unknown"] = settings.pauses.on_unknown
    output = settings.output
    if isinstance(output, Output):
        values |= {f"output.{name}": value for name, value in _fields(output).items()}
        output = values.pop("output.form")
    for stage in loop.pipeline.components:
        if isinstance(stage, Stage) and stage.fn in BUILT_IN:
            own = stage.options.keys() - values.keys()
            values |= {f"{stage.name}.{name}": stage.options[name] for name in own}
    options = {name: _plain(values[name]) for name in sorted(values) if values[name] is not None}
    if output is not None:
        options["output"] = _output(output)
    return options


def _fields(value: Any) -> JSONDict:
    return {spec.name: getattr(value, spec.name) for spec in dataclasses.fields(value)}


def _output(given: Any) -> Any:
    if isinstance(given, tuple):
        return [_output(one) for one in given]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(given, (str, dict, type)):
        return _plain(given)
    return given.name if isinstance(given, Tool) else repr(given)  # of a type, such as a union


def _model_of(given: Model | None, requests: Mapping[str, Any]) -> ModelInfo:
    if given is None or isinstance(given, str):
        return ModelInfo(given, None, {})
    return model_info(given, requests)


def _without_credentials(value: Any) -> Any:
    if is_mapping(value):
        return {
            str(key): _without_credentials(part)
            for key, part in value.items()
            if not is_credential(str(key))
        }
    return without_credentials(value) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    """A value as JSON data; functions and objects by name, since their text may hold a secret."""
    if value.__class__ in ATOMS:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if is_mapping(value):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, ToolSearch):
        return {name: _plain(part) for name, part in _fields(value).items()}
    name: Any = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else callable_name(value)
