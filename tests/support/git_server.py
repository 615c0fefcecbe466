"""A git server on loopback: real `git http-backend` behind HTTP, which may ask for a name and a password."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

BOUND_SECONDS = 60


@dataclass
class GitServer:
    """`url` is of the directory: `URL/far.git` is the repository in it. `asked` counts requests."""

    url: str
    asked: list[str] = field(default_factory=list)

    def with_user(self, user: str) -> str:
        return self.url.replace("://", f"://{user}@")


@contextmanager
def git_server(directory: Path, *, password: str | None = None) -> Iterator[GitServer]:
    """With a `password` only `uma` is served."""
    wanted = None if password is None else f"Basic {base64.b64encode(f'uma:{password}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                self._serve(self._read_chunks())
            else:
                self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def _read_chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _serve(self, body: bytes) -> None:
            served.asked.append(self.path)
            if wanted is not None and self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._answer(body)

        def _answer(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            ran = subprocess.run(
                ["git", "http-backend"],
                input=body,
                capture_output=True,
                check=True,
                timeout=BOUND_SECONDS,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
                    "GIT_PROJECT_ROOT": str(directory),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "REMOTE_USER": "uma",
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": parts.path,
                    "QUERY_STRING": parts.query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                },
            )
            head, _, content = ran.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = GitServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
