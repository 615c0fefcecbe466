"""The terminal of the console: what scrolls above, the lines that always show how things stand, the line one types in.

Knows nothing of teams: an `Audience` says what is drawn and hears what is typed. Everything that is printed while it
is shown passes `write`, which puts it above, so that nothing can tear the line that is being typed. The terminal is
never taken out of raw mode for that: a key pressed just then must not be echoed into the output.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from bullpen.cli import text
from bullpen.cli.page import Page
from bullpen.cli.terminal import terminal_of

MAX_INPUT_ROWS = 5
# How long one who pressed Esc is waited for, whether it is the beginning of Alt and a letter.
ESCAPE_SECONDS = 0.2
REDRAW_SECONDS = 0.05


class Audience(Protocol):
    @property
    def keys(self) -> Sequence[str]:
        """Those that may be answers by themselves."""
        ...

    def draw(self, page: Page, rows: int) -> None:
        """How things stand, in at most so many lines."""
        ...

    def draw_hint(self, page: Page) -> None:
        """One line below what is typed."""
        ...

    def complete(self, typed: str) -> Iterable[tuple[str, str]]:
        """What the last word may become, each with what it is."""
        ...

    def takes_key(self, key: str) -> bool: ...

    def on_key(self, key: str) -> None: ...

    def on_line(self, line: str) -> None: ...

    def on_escape(self) -> None: ...


class Desk:
    def __init__(self, audience: Audience, *, history: Path | None = None) -> None:
        self._audience = audience
        self._terminal = terminal_of()
        self._offers = _Offers(audience)
        self._buffer = Buffer(
            completer=self._offers,
            complete_while_typing=True,
            history=_history(history),
            multiline=True,
            accept_handler=self._accept,
        )
        self._picture: list[str] = []
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the human has left."""
        self.last_key_at = 0.0
        self._app = _Application(
            self,
            layout=self._layout(),
            key_bindings=self._bindings(),
            output=_output(),
            color_depth=None if self._terminal.has_colours else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            refresh_interval=1.0,
            min_redraw_interval=REDRAW_SECONDS,
            before_render=self._before_render,
        )
        self._app.timeoutlen = ESCAPE_SECONDS
        self._app.ttimeoutlen = ESCAPE_SECONDS / 4
        self._app.key_processor.after_key_press += self._note_key

    # -- being shown -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        ready = asyncio.Event()
        showing = asyncio.create_task(self._show(ready))
        loop = asyncio.get_running_loop()
        printed = _Printed(lambda line: loop.call_soon_threadsafe(self.write, [line]))
        await asyncio.wait({showing, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                yield
                # What was printed a moment ago is on its way.
                await asyncio.sleep(0)
        finally:
            if self._app.is_running:
                self._app.exit()
            await asyncio.wait({showing})
        showing.result()

    async def _show(self, ready: asyncio.Event) -> None:
        try:
            await self._app.run_async(pre_run=ready.set, handle_sigint=False, set_exception_handler=False)
        except EOFError:
            self.leave()
        finally:
            ready.set()

    def leave(self) -> None:
        if not self.left.done():
            self.left.set_result(None)

    @property
    def typed(self) -> str:
        return self._buffer.text

    @property
    def completions(self) -> tuple[list[str], str | None]:
        """What is offered just now, and which of it is chosen."""
        state = self._buffer.complete_state
        if state is None:
            return [], None
        chosen = None if state.current_completion is None else state.current_completion.text
        return [completion.text for completion in state.completions], chosen

    def begin_line(self, words: str) -> None:
        self._buffer.text = words
        self._buffer.cursor_position = len(words)

    def page(self) -> Page:
        """As wide as the terminal is now."""
        columns = self._app.output.get_size().columns
        return Page(replace(terminal_of(sys.__stdout__), width=columns))

    def write(self, lines: Sequence[str]) -> None:
        """Above the picture, for good."""
        if not lines:
            return
        if not self._app.is_running:
            print("\n".join(lines), file=sys.__stdout__, flush=True)
            return
        self._app.renderer.erase()
        self._app.output.write_raw("\r\n".join(lines) + "\r\n")
        self._app.invalidate()

    def refresh(self) -> None:
        if self._app.is_running:
            self._app.invalidate()

    # -- what is drawn ------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        style = "bold" if self._terminal.has_colours else ""
        line = Window(
            BufferControl(self._buffer, input_processors=[BeforeInput("> ", style=style)]),
            height=Dimension(min=1, max=MAX_INPUT_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
        )
        picture = Window(FormattedTextControl(lambda: ANSI("\n".join(self._picture))), dont_extend_height=True)
        hint = Window(FormattedTextControl(self._hint), height=1)
        return Layout(HSplit([picture, line, hint]), focused_element=line)

    def _before_render(self, app: Application[None]) -> None:
        size = app.output.get_size()
        page = self.page()
        # The news above must stay in sight.
        self._audience.draw(page, max(size.rows * 2 // 3 - 2, 4))
        self._picture = page.lines
        wanted = app.layout.container.preferred_height(size.columns, size.rows).preferred
        shown = app.renderer.last_rendered_screen
        if shown is not None and wanted < shown.height:
            # It never shrinks by itself: blank lines would stay between.
            app.renderer.erase()

    def find_beginning(self) -> None:
        """The terminal has another width. A narrower one shows what was drawn in more rows: up to the first of them."""
        columns = self._app.output.get_size().columns
        self._app.output.cursor_up(text.rows_of(self._picture, columns) - len(self._picture))

    def _hint(self) -> ANSI:
        page = self.page()
        self._audience.draw_hint(page)
        return ANSI(page.lines[0] if page.lines else "")

    # -- what is typed ------------------------------------------------------------------------------------------

    def _note_key(self, processor: Any) -> None:
        self.last_key_at = asyncio.get_running_loop().time()

    def _accept(self, buffer: Buffer) -> bool:
        line = buffer.text.strip()
        if line:
            self._audience.on_line(line)
        return False

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter")
        def _(event: KeyPressEvent) -> None:
            self._buffer.validate_and_handle()

        @bindings.add("tab")
        def _(event: KeyPressEvent) -> None:
            self._complete()

        @bindings.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @bindings.add("escape")
        def _(event: KeyPressEvent) -> None:
            if self._buffer.complete_state is not None:
                self._buffer.cancel_completion()
                return
            self._audience.on_escape()

        @bindings.add("c-c")
        def _(event: KeyPressEvent) -> None:
            # In raw mode the terminal does not make a signal of it.
            signal.raise_signal(signal.SIGINT)

        @bindings.add("c-d", filter=Condition(lambda: not self._buffer.text))
        def _(event: KeyPressEvent) -> None:
            self.leave()

        @bindings.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        for key in self._audience.keys:
            self._bind_answer(bindings, key)
        return bindings

    def _bind_answer(self, bindings: KeyBindings, key: str) -> None:
        may_answer = Condition(lambda: not self._buffer.text and self._audience.takes_key(key))

        @bindings.add(key, filter=may_answer)
        def _(event: KeyPressEvent) -> None:
            self._audience.on_key(key)

    def _complete(self) -> None:
        """What all offers have in common, at once; then one after the other."""
        document = self._buffer.document
        offers = list(self._offers.get_completions(document, CompleteEvent(completion_requested=True)))
        if common := get_common_complete_suffix(document, offers):
            self._buffer.insert_text(common)
        elif self._buffer.complete_state is not None:
            self._buffer.complete_next()
        else:
            self._buffer.start_completion(select_first=True)

    def take_line(self) -> str:
        """What is typed so far, as if it had been sent."""
        line = self._buffer.text.strip()
        self._buffer.reset(append_to_history=bool(line))
        return line


class _Application(Application[None]):
    def __init__(self, desk: Desk, **settings: Any) -> None:
        super().__init__(**settings)
        self._desk = desk

    def _on_resize(self) -> None:
        self._desk.find_beginning()
        super()._on_resize()


class _Offers(Completer):
    def __init__(self, audience: Audience) -> None:
        self._audience = audience

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        last = typed.rpartition(" ")[2]
        for offer, meaning in self._audience.complete(typed):
            yield Completion(offer, start_position=-len(last), display_meta=meaning)


class _Printed(io.TextIOBase):
    """Stands where stdout and stderr were: a library that prints must not tear the screen."""

    encoding = "utf-8"

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._begun = ""

    def write(self, some: str) -> int:
        *lines, self._begun = (self._begun + some).split("\n")
        for line in lines:
            self._write(text.one_line(line))
        return len(some)


def _output() -> Vt100_Output:
    output = Vt100_Output.from_pty(sys.stdout)
    # The terminal need not say where its cursor is: it would answer into what is typed next, or never.
    output.enable_cpr = False
    return output


def _history(path: Path | None) -> History:
    """Kept beside the store, if that can be written to."""
    if path is None:
        return InMemoryHistory()
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
