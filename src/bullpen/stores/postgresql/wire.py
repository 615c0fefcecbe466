"""One connection, driven at the level of libpq: a batch of statements is one round trip.

psycopg's cursors cost 140 us each and its pipelines 500 us more, which is more
than the server needs for a claim; this costs 40 us a batch. psycopg still opens
the connection, decodes the rows and knows the errors.

- Statements are prepared in the batch that first uses them. Parameters are sent as
  text of unknown type, so that a statement has one plan whatever is NULL in it.
- A batch is all sent before the first answer is read. The first error is raised
  when the whole batch has been answered, so the connection is usable afterwards.
- A caller who is cancelled waits for the answer of the batch under way (at most
  `GRACE_SECONDS`), then the cancellation goes on: it falls between two statements,
  never into one. So a transaction is either rolled back or committed as a whole.
- A server that is there and says nothing (frozen, or cut off without a word) is given up after `ANSWER_SECONDS`; no
  statement of ours waits for so many locks in a row.
- `Lost` is the only error after which the connection is of no use any more.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from bullpen.errors import UsageError
from bullpen.stores.forks import let_go_in_children

GRACE_SECONDS = 5.0
ANSWER_SECONDS = 30.0

Row = tuple[Any, ...]
Notice = Callable[[str, str], None]

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_BAD = pq.ConnStatus.BAD
_FATAL_ERROR = pq.ExecStatus.FATAL_ERROR
_TUPLES_OK = pq.ExecStatus.TUPLES_OK
_PIPELINE_ABORTED = pq.ExecStatus.PIPELINE_ABORTED
_PIPELINE_SYNC = pq.ExecStatus.PIPELINE_SYNC


class Lost(Exception):
    """The connection ended before the answer came."""


class Answer(NamedTuple):
    rows: list[Row]
    tag: bytes

    @property
    def changed(self) -> bool:
        """Did the statement write rows? SELECT never does, and counts what it returns."""
        return not self.tag.startswith(b"SELECT") and not self.tag.endswith(b" 0")


class Statement(NamedTuple):
    """SQL with `:name` parameters, and their values."""

    sql: str
    parameters: Mapping[str, Any]


def statement(sql: str, **parameters: Any) -> Statement:
    return Statement(sql, parameters)


@cache
def _compiled(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement with `$1` for each name, and the names in that order."""
    names: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", sql)
    return text.encode(), tuple(names)


def _dump_text(value: str) -> bytes:
    try:
        text = value.encode()
    except UnicodeEncodeError:
        raise UsageError("a lone surrogate is no text that can be stored") from None
    if b"\0" in text:
        raise UsageError("a NUL is no text that can be stored")
    return text


# The moment of a transaction is written into many columns.
@lru_cache(maxsize=64)
def _dump_moment(value: datetime) -> bytes:
    return value.isoformat().encode()


_DUMP: Mapping[type, Callable[[Any], bytes | None]] = {
    type(None): lambda value: None,
    str: _dump_text,
    bool: lambda value: b"t" if value else b"f",
    int: lambda value: b"%d" % value,
    float: lambda value: repr(value).encode(),
    datetime: _dump_moment,
    list: lambda value: b"{%s}" % b",".join(b"%d" % number for number in value),
}


def _dump(value: Any) -> bytes | None:
    dump = _DUMP.get(type(value))
    if dump is None:
        # An enum's member is a text too.
        if isinstance(value, str):
            return _dump_text(value)
        raise TypeError(f"{type(value).__name__} is no SQL parameter")
    return dump(value)


def _dumped(each: Statement) -> tuple[bytes, list[bytes | None]]:
    sql, parameters = each
    text, names = _compiled(sql)
    return text, [_dump(parameters[name]) for name in names]


class Wire:
    def __init__(self, connection: psycopg.AsyncConnection[Any], on_notice: Notice | None = None) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepared: dict[bytes, bytes] = {}
        self._on_notice = on_notice
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._is_lost = False
        self._cancellation: asyncio.CancelledError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.idle_since = 0.0
        self.on_lost: Callable[[], None] = lambda: None
        self._pgconn.enter_pipeline_mode()
        self._descriptor = self._pgconn.socket
        self._loop.add_reader(self._descriptor, self._input)
        self._is_watched = True
        let_go_in_children(self)

    @property
    def is_usable(self) -> bool:
        """Costs one read that does not block; a server that has gone is noticed here, before anything is sent."""
        if self._is_lost or self._pgconn.status == _BAD or self._loop.is_closed():
            return False
        try:
            self._pgconn.consume_input()
        except psycopg.Error:
            self._lose()
            return False
        return self._pgconn.status != _BAD

    @property
    def is_between_transactions(self) -> bool:
        return self._pgconn.transaction_status == pq.TransactionStatus.IDLE

    def close(self) -> None:
        self._unwatch()
        self._pgconn.finish()

    def let_go(self) -> None:
        """The server keeps a session, and its locks, as long as anybody has its socket. It is the parent's: nothing is
        said on it, and its number is kept, which libpq goes on believing to be the socket."""
        self._is_lost = True
        with suppress(OSError), open(os.devnull, "r+b", buffering=0) as nothing:
            os.dup2(nothing.fileno(), self._descriptor, inheritable=False)

    def _lose(self) -> None:
        self._is_lost = True
        self._unwatch()

    def _unwatch(self) -> None:
        """Once, and as soon as it is lost: libpq has closed the descriptor then, and the next connection may have got
        the same number, which must not be taken from it."""
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)

    # -- asking ------------------------------------------------------------------------------

    async def ask(self, sql: str, /, **parameters: Any) -> list[Row]:
        """One statement, its rows."""
        return (await self.run([Statement(sql, parameters)]))[0].rows

    async def run(
        self, batch: Sequence[Statement], *, keep_cancellation: bool = False, answer_seconds: float | None = None
    ) -> list[Answer]:
        """All of them in one round trip. Outside a transaction the batch is one by itself.

        `keep_cancellation`: the caller has something to do first and then calls `raise_cancellation`.
        """
        sent = [_dumped(each) for each in batch]
        try:
            # Without its loop (a coroutine that was left behind is ending) no answer would come.
            if self._is_lost or self._loop.is_closed():
                raise Lost("the connection is gone")
            kinds = self._send(sent)
            self._timer = self._loop.call_later(answer_seconds or ANSWER_SECONDS, self._give_up)
            results = await self._results()
        except (psycopg.OperationalError, Lost) as error:
            self._lose()
            self.on_lost()
            self.raise_cancellation()
            raise Lost(one_line(str(error))) from error
        finally:
            self._stop_timer()
        self._tell_notices()
        try:
            return self._read(kinds, results)
        finally:
            if not keep_cancellation:
                self.raise_cancellation()

    def raise_cancellation(self) -> None:
        cancellation, self._cancellation = self._cancellation, None
        if cancellation is not None:
            raise cancellation

    def _send(self, sent: list[tuple[bytes, list[bytes | None]]]) -> list[bytes | None]:
        """Returns what each result will be: the text of a statement to prepare, or None for an answer."""
        kinds: list[bytes | None] = []
        new: dict[bytes, bytes] = {}
        for text, values in sent:
            name = self._prepared.get(text) or new.get(text)
            if name is None:
                name = new[text] = b"b%d" % (len(self._prepared) + len(new))
                self._pgconn.send_prepare(name, text)
                kinds.append(text)
            self._pgconn.send_query_prepared(name, values)
            kinds.append(None)
        self._pgconn.pipeline_sync()
        return kinds

    def _read(self, kinds: list[bytes | None], results: list[Any]) -> list[Answer]:
        answers: list[Answer] = []
        for kind, result in zip(kinds, results, strict=False):
            if result.status == _FATAL_ERROR:
                self._raise(result)
            if result.status == _PIPELINE_ABORTED:
                break
            if kind is not None:
                self._prepared[kind] = b"b%d" % len(self._prepared)
            else:
                answers.append(self._answer(result))
        return answers

    def _answer(self, result: Any) -> Answer:
        tag = result.command_status or b""
        if result.status != _TUPLES_OK or not result.ntuples:
            return Answer([], tag)
        self._transformer.set_pgresult(result)
        return Answer(cast("list[Row]", self._transformer.load_rows(0, result.ntuples, tuple)), tag)

    def _raise(self, result: Any) -> None:
        error = error_from_result(result)
        if self._pgconn.status == _BAD or error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
            self._lose()
            raise Lost(first_line(error)) from error
        raise error

    # -- waiting -----------------------------------------------------------------------------

    async def _results(self) -> list[Any]:
        while self._pgconn.flush():
            await self._stirred(to_write=True)
        results: list[Any] = []
        while True:
            while self._pgconn.is_busy():
                await self._stirred()
            result = self._pgconn.get_result()
            if result is None:
                if self._pgconn.status == _BAD:
                    raise Lost(_last_word(results))
            elif result.status == _PIPELINE_SYNC:
                return results
            else:
                results.append(result)

    async def _stirred(self, *, to_write: bool = False) -> None:
        """Something can be read (or written) now. A cancellation meanwhile is kept for later, the first one."""
        self._waiter = self._loop.create_future()
        if to_write:
            self._loop.add_writer(self._descriptor, self._wake)
        try:
            await self._waiter
        except asyncio.CancelledError as error:
            if self._cancellation is not None:
                self._is_lost = True
                raise
            self._cancellation = error
            self._stop_timer()
            self._timer = self._loop.call_later(GRACE_SECONDS, self._give_up)
        finally:
            self._waiter = None
            if to_write and self._is_watched:
                self._loop.remove_writer(self._descriptor)
        if self._is_lost:
            raise Lost("no answer came in time")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _give_up(self) -> None:
        self._is_lost = True
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _input(self) -> None:
        """Read here and not where it is awaited, a turn of the loop later: until then this would be called again."""
        waiter = self._waiter
        try:
            self._pgconn.consume_input()
        except psycopg.Error as error:
            self._unwatch()
            if waiter is None:
                self._lose()
                self.on_lost()
            elif not waiter.done():
                waiter.set_exception(error)
            return
        if waiter is None:
            self._tell_notices()
        elif not self._pgconn.is_busy():
            self._wake()

    def _tell_notices(self) -> None:
        if self._on_notice is None:
            return
        while (notice := self._pgconn.notifies()) is not None:
            with suppress(UnicodeDecodeError):
                self._on_notice(notice.relname.decode(), notice.extra.decode())


def one_line(text: str) -> str:
    return " ".join(text.split())


def first_line(error: psycopg.Error) -> str:
    return one_line((error.diag.message_primary or str(error)).strip().split("\n")[0])


def _last_word(results: list[Any]) -> str:
    """What the server said before it hung up."""
    if results and results[-1].status == _FATAL_ERROR:
        return first_line(error_from_result(results[-1]))
    return "the server closed the connection"
