"""What tests of the dashboard's page share: recorded runs, a source made by hand, and a server in a thread."""

import http.client
import json
import re

from tests.http_server import running

from treadle import Loop, tool
from treadle.recording.recorder import Recorder
from treadle.reports.dashboard_page.server import PageServer
from treadle.reports.sources.source import RefusedError, Series, SourceError
from treadle.testing import ScriptedLLM

QUESTION = [{"role": "user", "content": "Go."}]


@tool
def fail() -> str:
    """Fail."""
    raise ConnectionError("no route to host")


def recorded(path, *runs, append=False):
    """Record runs, each an agent's name, what its model says, and options of the loop."""
    with Recorder(path, append=append) as recorder:
        for agent, script, options in runs:
            with ScriptedLLM(*script) as model:
                loop = Loop(name=agent, on_event=recorder, retry_delay=0, **options)
                loop.run_sync(QUESTION, model)
    return path


def earlier(record, seconds):
    """The text of a record of runs that were so much earlier."""
    return re.sub(r"\b1\d{9}(?=\.\d)", lambda at: str(int(at[0]) - seconds), record)


class Fixed:
    """A source whose answers are given: one value for all questions, or what it is to raise."""

    title = "by hand"
    hint = "There is nothing to be done."
    page_timeout = None

    def __init__(self, value=1.0, *, labels=None, broken=None, refused=None):
        self.value = value
        self.labels = labels or {}
        self.broken = broken
        self.refused = refused
        self.asked = []

    def refresh(self):
        if self.broken:
            raise SourceError(self.broken)

    def span(self):
        return None

    def window(self, step):
        return step

    def ask(self, question, grid):
        self.asked.append(str(question))
        if self.refused and self.refused in str(question):
            raise RefusedError("that is too much")
        return [Series(self.labels, [self.value] * grid.count)]


def serving(source, **options):
    """A server of the page, until the end of the block."""
    return running(PageServer(source, **options))


def ask(server, path, *, method="GET", headers=None, host=None):
    """Ask the server; gives the status, the headers and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in headers or [("Host", host or f"127.0.0.1:{server.server_port}")]:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def numbers_of(server, query=""):
    """The status and the numbers that the page is told."""
    status, _, body = ask(server, f"/data.json{query}")
    return status, json.loads(body)
