"""A receiver of traces by OTLP over HTTP, as a Collector is one."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.traces import Backend

CONTENT_TYPE = "application/x-protobuf"


class Receiver(Backend):
    """What it received.  bodies: of the requests, without their headers"""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.endpoint = ""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver on a port of this machine, until the block ends."""
    received = Receiver()

    def take(body: bytes) -> None:
        received.bodies.append(body)
        received.takes(ExportTraceServiceRequest.FromString(body))

    with _server(take) as server:
        received.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="receiver", daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def sink() -> Iterator[str]:
    """A process of its own that takes spans and keeps nothing, until the block ends.  Gives its endpoint."""
    with subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _server(take: Callable[[bytes], None]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_POST(self) -> None:
            """Take the spans; anything but a protobuf at /v1/traces is refused, as a Collector does."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            if (self.path, self.headers["Content-Type"]) != ("/v1/traces", CONTENT_TYPE):
                self.send_error(415 if self.path == "/v1/traces" else 404)
                return
            take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server
            """Nothing is logged."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


if __name__ == "__main__":
    with _server(lambda body: None) as nowhere:
        print(f"http://127.0.0.1:{nowhere.server_port}", flush=True)
        nowhere.serve_forever()
