"""A real Prometheus for tests, and what it scrapes."""

import json
import shutil
import subprocess
import threading
import time
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
from prometheus_client import make_wsgi_app
from tests.http_server import free_port

SECONDS = 30
"""How long a test waits for something that takes one."""


def program(name):
    """The path of one of Prometheus' programs; tests fail where it is missing."""
    path = shutil.which(name)
    assert path, f"there is no {name} on this machine: apt-get install prometheus"
    return path


class Still:
    """A registry as it stood when it was last looked at, so that no scrape sees half a round."""

    def __init__(self, registry):
        self.registry = registry
        self.families = []

    def look(self):
        self.families = list(self.registry.collect())

    def collect(self):
        return self.families


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        """Nothing on stderr."""


class Endpoint:
    """A page of metrics on 127.0.0.1."""

    def __init__(self, registry):
        self._server = make_server("127.0.0.1", 0, make_wsgi_app(registry), handler_class=_Quiet)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus:
    """Debian's Prometheus, which scrapes one address each second.

    Args:
        folder: where it keeps everything.
        target: the address that it scrapes.
        rules: a file of rules.
    """

    def __init__(self, folder, target, rules):
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder = folder
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML

    def __enter__(self):
        self._log = (self._folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._client = httpx.Client(base_url=self.url, trust_env=False, timeout=SECONDS)
        try:
            self.wait_for(self._is_ready, "Prometheus to be ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._client.close()
        self._process.terminate()
        self._process.wait(SECONDS)
        self._log.close()

    def _is_ready(self):
        log = (self._folder / "log").read_text()
        assert self._process.poll() is None, f"Prometheus has ended: {log}"
        try:
            return self._client.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def wait_for(self, is_so, what):
        """Wait until something is so."""
        end = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < end, f"waited {SECONDS} s for {what}"
            time.sleep(0.05)

    def get(self, path, **parameters):
        """The data of an answer of its API."""
        answer = self._client.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]

    def text(self, url):
        """A page of somebody else's."""
        return self._client.get(url).text

    def query(self, expression):
        """What an expression is now: labels and value of each series."""
        found = self._instant(expression)
        if not found:
            # On a busy machine a scrape may take too long: all series are stale until the next one.
            self.wait_for(lambda: all(value for _, value in self._instant("up")), "a scrape")
            found = self._instant(expression)
        return found

    def _instant(self, expression):
        found = self.get("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def by(self, expression, *labels):
        """The values of an expression by some of its labels; one label alone is no tuple."""
        found = {}
        for metric, value in self.query(expression):
            key = tuple(metric.get(label, "") for label in labels)
            key = key if len(labels) != 1 else key[0]
            assert key not in found, f"{expression}: {key} is there more than once"
            found[key] = value
        return found

    def value(self, expression):
        """The one value of an expression."""
        [(_, value)] = self.query(expression)
        return value
