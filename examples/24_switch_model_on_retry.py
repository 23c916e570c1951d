"""Switch the model on a retry: here from an overloaded model to a smaller one.

``ask_model(on_retry=...)`` takes a function of the request, the error, and the number of the try that
failed. It returns the request for the next try, or None to send the same one again.
"""

from typing import Any

from treadle import Loop, ModelRetried, Request, default_stages
from treadle.stages import ask_model

TRIES = 2


class OverloadedError(Exception):
    """The error of an SDK for HTTP status 529; the attribute makes it retryable."""

    status_code = 529


def client(messages: list[dict[str, Any]], *, model: str, temperature: float = 1.0) -> str:
    """Replaces the method of an SDK. The large model is overloaded."""
    print(f"  {len(messages)} message to {model} at temperature {temperature}")
    if model == "large":
        raise OverloadedError("overloaded, try again later")
    return f"{model} says hello."


def fall_back(request: Request, error: Exception, attempt: int) -> Request | None:
    """Try the large model twice, then the small one; other errors are retried as they are."""
    if not isinstance(error, OverloadedError) or attempt < TRIES:
        return None
    return request.replace(options={"model": "small", "temperature": 0.0})


def show(event: Any) -> None:
    """Print each retry."""
    if isinstance(event, ModelRetried):
        print(f"  try {event.attempt} failed: {event.error}")


_, *rest = default_stages()
loop = Loop(
    stages=[ask_model(on_retry=fall_back, retry_delay=0.01), *rest],
    llm_opts={"model": "large"},
    on_event=show,
)
print(loop.run_sync("Say hello.", client).unwrap().content)
