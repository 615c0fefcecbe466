"""A database as `deploy/` sets it up: its own server, roles with least rights, tables made by their owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.postgres import PrivateServer

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "deploy" / "postgresql" / "roles.sql"
DATABASE = "bullpen"


@dataclass(frozen=True)
class Deployed:
    server: PrivateServer

    def url(self, role: str, database: str = DATABASE) -> str:
        return urlsplit(self.server.url)._replace(netloc=f"{role}@", path=f"/{database}").geturl()

    @property
    def owner(self) -> str:
        return self.url("bullpen_owner")

    @property
    def worker(self) -> str:
        return self.url("bullpen_worker")

    @property
    def reader(self) -> str:
        return self.url("bullpen_reader")

    def ask(self, query: str, role: str = "postgres", database: str = DATABASE) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(role, database), autocommit=True) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def deployed() -> Iterator[Deployed]:
    with PrivateServer() as server:
        made = Deployed(server)
        made.ask(f"CREATE DATABASE {DATABASE}", database="postgres")
        made.ask(ROLES.read_text())
        yield made
