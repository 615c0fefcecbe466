"""The store for many machines: PostgreSQL, through psycopg. Nothing outside this folder imports psycopg."""

from bullpen.stores.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
