"""The cost of telemetry per iteration, without and with an SDK, next to a hand-written loop with the same spans.

Run it with ``make bench-telemetry``. As in iterations.py, model and tool return at once, times are CPU time of
this process, the cases alternate, and the best round of each counts. The spans go to the SDK's batch processor
and to an exporter that drops them, so that the creation of spans is measured, and not a network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from tempfile import TemporaryFile
from typing import Any

from iterations import PAYLOAD, VALIDATOR, Model, add, by_hand, model_of, timed
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Tracer

from treadle import Loop, Telemetry
from treadle.loop import start
from treadle.recording.recorder import Recorder

ITERATIONS = 200


class Dropping(SpanExporter):
    """An exporter that counts spans and drops them."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count the spans."""
        self.count += len(spans)
        return SpanExportResult.SUCCESS


class Instrumented:
    """A hand-written loop with the spans of treadle and their attributes, and optionally its metrics."""

    def __init__(self, tracer: Tracer, meters: MeterProvider | None) -> None:
        self._tracer = tracer
        self._meters = None
        if meters is not None:
            meter = meters.get_meter("by hand")
            self._meters = [
                meter.create_histogram(name, "s")
                for name in ("model.duration", "tool.duration", "run.duration")
            ]
            self._tokens = meter.create_histogram("tokens")

    async def run(self, model: Model) -> str:
        """One run."""
        facts = {"gen_ai.operation.name": "invoke_agent", "treadle.run.id": "x" * 32}
        with self._tracer.start_as_current_span("invoke_agent", attributes=facts) as span:
            return await self._run(model, span)

    async def _run(self, model: Model, span: trace.Span) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        iteration = 0
        while True:
            iteration += 1
            message = await self._ask(model, messages, iteration)
            messages.append(message)
            for call in message.get("tool_calls") or ():
                content = await self._call(call, iteration)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            span.add_event("iteration.end", {"treadle.iteration": iteration})
            if not message.get("tool_calls"):
                span.set_attribute("treadle.total_iterations", iteration)
                span.add_event("complete", {"treadle.total_iterations": iteration})
                return str(message["content"])

    async def _ask(
        self, model: Model, messages: list[dict[str, Any]], iteration: int
    ) -> dict[str, Any]:
        facts = {"gen_ai.operation.name": "chat", "treadle.iteration": iteration}
        start = self._tracer.start_as_current_span
        with start("chat", kind=SpanKind.CLIENT, attributes=facts) as span:
            answer = await model(messages, tools=PAYLOAD)
            span.set_attribute("gen_ai.response.model", answer["model"])
            span.set_attribute("gen_ai.usage.input_tokens", answer["usage"]["prompt_tokens"])
            span.set_attribute("gen_ai.usage.output_tokens", answer["usage"]["completion_tokens"])
            if self._meters is not None:
                labels = {"gen_ai.operation.name": "chat", "gen_ai.response.model": answer["model"]}
                self._meters[0].record(0.001, labels)
                self._tokens.record(10, {**labels, "gen_ai.token.type": "input"})
                self._tokens.record(5, {**labels, "gen_ai.token.type": "output"})
            message: dict[str, Any] = answer["choices"][0]["message"]
            return message

    async def _call(self, call: dict[str, Any], iteration: int) -> str:
        function = call["function"]
        facts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": function["name"],
            "gen_ai.tool.call.id": call["id"],
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": "Add two integers.",
            "treadle.iteration": iteration,
        }
        name = f"execute_tool {function['name']}"
        with self._tracer.start_as_current_span(name, attributes=facts):
            arguments = json.loads(function["arguments"])
            errors = list(VALIDATOR.iter_errors(arguments))
            if errors:
                return "; ".join(error.message for error in errors)
            result = str(await add.fn(**arguments))  # type: ignore[misc]
            if self._meters is not None:
                labels = {"gen_ai.tool.name": function["name"], "gen_ai.tool.type": "function"}
                self._meters[1].record(0.001, labels)
            return result


def completions(iterations: int) -> Model:
    """The model of iterations.py, which reports its name and its tokens as a server does."""
    bare = model_of(iterations, 1)

    async def send(messages: list[dict[str, Any]], **opts: Any) -> dict[str, Any]:
        message = await bare(messages, **opts)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {"model": "m", "choices": [{"message": message}], "usage": usage}

    return send


async def bare_by_hand(model: Model) -> str:
    """The loop of iterations.py, with completions."""

    async def message_of(messages: list[dict[str, Any]], **opts: Any) -> dict[str, Any]:
        answer = await model(messages, **opts)
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    return await by_hand(message_of)


async def by_treadle(model: Model, **options: Any) -> str:
    """The same with treadle."""
    question = [{"role": "user", "content": "go"}]
    result = await Loop.run(question, model, tools=[add], max_iterations=ITERATIONS, **options)
    return str(result.unwrap().content)


async def recorded(model: Model, *, replayable: bool = True) -> str:
    """As treadle, with a recording of every event, and of the log for a replay."""
    with (
        TemporaryFile("w+", encoding="utf-8") as file,
        Recorder(file, replayable=replayable) as recorder,
    ):
        return await by_treadle(model, on_event=recorder)


async def without_the_code(model: Model) -> str:
    """As treadle without its telemetry package."""
    original, start.active_telemetry = start.active_telemetry, lambda *_, **__: None  # type: ignore[assignment]
    try:
        return await by_treadle(model)
    finally:
        start.active_telemetry = original


def providers(exporter: SpanExporter) -> tuple[TracerProvider, MeterProvider]:
    """Providers of the SDK."""
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1_000_000))
    return tracers, MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)


async def main(rounds: int) -> None:
    """Print the table."""
    sides = {name: Dropping() for name in ("hand", "hand+", "treadle", "treadle+")}
    made = {name: providers(exporter) for name, exporter in sides.items()}

    def hand(name: str, *, meters: bool) -> Instrumented:
        tracers, metering = made[name]
        return Instrumented(tracers.get_tracer("by hand"), metering if meters else None)

    spans_only = {"telemetry": Telemetry(tracer_provider=made["treadle"][0])}
    both = {
        "telemetry": Telemetry(
            tracer_provider=made["treadle+"][0], meter_provider=made["treadle+"][1]
        )
    }
    cases: dict[str, Callable[[Model], Awaitable[str]]] = {
        "by hand": bare_by_hand,
        "by hand, spans": hand("hand", meters=False).run,
        "by hand, spans and metrics": hand("hand+", meters=True).run,
        "treadle without its telemetry": without_the_code,
        "treadle, no SDK": by_treadle,
        "treadle, on_event": lambda model: by_treadle(model, on_event=lambda _: None),
        "treadle, recorded": recorded,
        "treadle, events recorded": lambda model: recorded(model, replayable=False),
        "treadle, spans": lambda model: by_treadle(model, **spans_only),
        "treadle, spans and metrics": lambda model: by_treadle(model, **both),
    }
    best = dict.fromkeys(cases, float("inf"))

    async def through(run: Callable[[Model], Awaitable[str]]) -> str:
        """A run and the export of its spans, which a thread would do during another case."""
        answer = await run(completions(ITERATIONS))
        for tracers, _ in made.values():
            tracers.force_flush()
        return answer

    for _ in range(rounds):
        for name, run in cases.items():
            seconds = await timed(lambda run=run: through(run))  # type: ignore[misc]
            best[name] = min(best[name], seconds / ITERATIONS * 1e6)
    print(f"| case ({ITERATIONS} iterations, 1 call each) | µs/iteration | on top |")
    print("|---|---:|---:|")
    for name, cost in best.items():
        base = best["by hand" if name.startswith("by hand") else "treadle without its telemetry"]
        print(f"| {name} | {cost:.1f} | {cost - base:+.1f} |")
    for kind in ("spans", "spans and metrics"):
        ratio = best[f"treadle, {kind}"] / best[f"by hand, {kind}"]
        print(f"\nWith {kind}: {ratio:.2f} times the loop by hand with the same {kind}.")
    ratio = best["treadle, no SDK"] / best["treadle without its telemetry"]
    print(f"\nWithout an SDK: {(ratio - 1) * 100:+.1f} % on top of an iteration.")
    for tracers, meters in made.values():
        tracers.shutdown()
        meters.shutdown()
    print(f"\nSpans: {', '.join(f'{name} {made.count:,}' for name, made in sides.items())}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds")
    asyncio.run(main(parser.parse_args().rounds))
