"""What the owner of the tables does by itself, apart from any verb: make them, and bring them up to date."""

from __future__ import annotations

import psycopg

from bullpen.errors import StoreUnavailable
from bullpen.stores.postgresql.connection import connect, explained, parse_url
from bullpen.stores.postgresql.schema import migrate, stored_version
from bullpen.stores.postgresql.wire import Lost
from bullpen.stores.sql.migration import Version


async def migrate_at(url: str) -> Version:
    """Every step that the tables lack, in one transaction; the version that they have then."""
    address = parse_url(url)
    wire, _ = await connect(address)
    try:
        await migrate(wire)
        version = await stored_version(wire)
    except Lost as error:
        raise StoreUnavailable(f"the connection to PostgreSQL at {address.where} was lost: {error}") from error
    except psycopg.Error as error:
        raise explained(error, address.where) from error
    finally:
        wire.close()
    assert version is not None
    return version
