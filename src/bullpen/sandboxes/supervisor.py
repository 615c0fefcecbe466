"""The program that runs a member's commands: one supervisor for the sandbox, one keeper for each command.

    worker ───control───> supervisor ──fork──> keeper ──fork──> bash -c COMMAND ──> …
       └─────────── a link for each command ─────┘

It is a script of its own, with the standard library only: inside bubblewrap nothing of Bullpen need be visible.
There it is process 1 of its namespace, which cannot be killed from inside and takes everything with it when it ends.

- A keeper is the subreaper of its command: whatever a descendant does (setsid, double fork, an empty environment),
  it stays below its keeper, and the keeper lives as long as any of them. So its subtree *is* the command.
- If a keeper is killed, what it kept falls to the supervisor, which has no children but keepers: the rest it kills.
- Who holds the other end of a socket is the worker. When it goes, `kill -9` included, the kernel closes the sockets:
  supervisor and keepers read the end of file and end everything. No signal, no lease, no timer is needed for that.
- Commands hold none of these sockets, and both programs are not dumpable: no ptrace, no /proc/PID/fd.

On the control socket the worker sends one byte: `c` with two descriptors (the link, the output file) for a command,
`p` to be answered with `p`. On a link, lines of JSON: the request (`input`, if it is there, is what the command reads;
`until` is when it is too late to begin, on the clock that all processes of a machine share), then
`{"stop": GRACE_SECONDS}`; back come `keeper`, `started` (or `failed`, or `late`), `exited` and `gone`.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection

# For mypy. The module itself is not imported: a supervisor for each member should be small.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

CHUNK_BYTES = 65536
TAIL_BYTES = 65536
"""What is kept of the end of an output that is longer than its limit."""

LAST_WAIT_SECONDS = 5.0
STOP_ROUNDS = 100


_LIBC = ctypes.CDLL(None)


def prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, argument, 0, 0, 0)


# Processes


def parents() -> dict[int, int]:
    """Every living process that can be seen, with its parent."""
    if sys.platform != "linux":
        listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return {int(pid): int(parent) for pid, parent in map(str.split, listing.splitlines())}
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            # It may end while we look.
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    table[int(name)] = int(parent)
    return table


def descendants(root: int, *, without: Collection[int] = ()) -> set[int]:
    """What is below `root` in one look, leaving out the subtrees of `without`."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found and pid not in without:
                found.add(pid)
                waiting.append(pid)
    return found


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def strike(root: int, *, without: Collection[int] = ()) -> None:
    """Kill what is below `root`, frozen first: who is stopped cannot fork faster than we look."""
    seen: set[int] = set()
    for _ in range(STOP_ROUNDS):
        new = descendants(root, without=without) - seen
        if not new:
            break
        for pid in new:
            send_signal(pid, signal.SIGSTOP)
        seen |= new
    for pid in seen:
        send_signal(pid, signal.SIGKILL)


def reap() -> tuple[dict[int, int], bool]:
    """The exit codes of children that ended, as a shell tells them; whether any child is left."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes, False
        if pid == 0:
            return codes, True
        code = os.waitstatus_to_exitcode(status)
        codes[pid] = 128 - code if code < 0 else code


def watch_children(selector: selectors.BaseSelector) -> int:
    """The descriptor that becomes readable when a signal came in."""
    wake, alarm = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(alarm, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    selector.register(wake, selectors.EVENT_READ)
    return wake


def empty(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, CHUNK_BYTES):
            pass


# A command and its keeper


class Sink:
    """The output file: whole up to a limit; of what comes after that, the end."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._room = limit
        self._limit = limit
        self._dropped = 0
        self._tail = bytearray()

    def write(self, data: bytes) -> None:
        data = data[self._store(data[: self._room]) :]
        if data:
            self._room = 0
            self._dropped += len(data)
            self._tail += data
            if len(self._tail) > 2 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]

    def settle(self) -> None:
        """Write the end of what there was no room for."""
        if self._tail:
            del self._tail[:-TAIL_BYTES]
            left_out = self._dropped - len(self._tail)
            if left_out:
                self._store(
                    f"\n[… {left_out:,} bytes were not kept: output is limited to {self._limit:,} …]\n".encode()
                )
            self._store(bytes(self._tail))
            self._tail.clear()
            self._dropped = 0

    def _store(self, data: bytes) -> int:
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        except OSError:
            pass  # The disk is full, or a quota: what does not fit is dropped like what is over the limit.
        self._room = max(0, self._room - done)
        return done


class Keeper:
    """Runs one command, and ends when nothing of it is left."""

    def __init__(self, link: socket.socket, output: int) -> None:
        self._link = link
        self._unread = b""
        request = self._hear()
        self._sink = Sink(output, request["output_limit"])
        self._selector = selectors.DefaultSelector()
        self._wake = watch_children(self._selector)
        self._strike_at: float | None = None
        self._pause = 0.002
        self._pipe = self._begin(request)

    def _begin(self, request: dict[str, Any]) -> int:
        pipe, writer = os.pipe()
        # Before anything runs, which may kill us at once. The kernel adds our number as the worker sees it.
        self._say(keeper=os.getpid())
        if time.monotonic() > request["until"]:
            self._say(late=True)
            os._exit(0)
        try:
            self._process = subprocess.Popen(
                request["argv"],
                cwd=request["directory"],
                env=request["environment"],
                stdin=input_of(request),
                stdout=writer,
                stderr=writer,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            name = errno.errorcode.get(error.errno or 0, "") if isinstance(error, OSError) else ""
            self._say(failed=f"{name} {error}")
            os._exit(1)
        self._main = self._process.pid
        os.close(writer)
        os.set_blocking(pipe, False)
        self._selector.register(pipe, selectors.EVENT_READ)
        self._selector.register(self._link, selectors.EVENT_READ)
        self._say(started=True)
        return pipe

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._patience()):
                if key.fd == self._wake:
                    empty(self._wake)
                elif key.fd == self._pipe:
                    self._pump()
                else:
                    self._obey()
            if self._strike_at is not None and time.monotonic() >= self._strike_at:
                strike(os.getpid())
                self._pause = min(self._pause * 2, 0.5)
                self._strike_at = time.monotonic() + self._pause
            codes, any_left = reap()
            if self._main in codes:
                self._drain()
                self._say(exited=codes[self._main])
            if not any_left:
                self._drain()
                self._say(gone=True)
                return

    def _patience(self) -> float | None:
        return None if self._strike_at is None else max(0.0, self._strike_at - time.monotonic())

    def _pump(self) -> bool:
        try:
            data = os.read(self._pipe, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._sink.write(data)
        elif self._pipe in self._selector.get_map():
            self._selector.unregister(self._pipe)
        return bool(data)

    def _drain(self) -> None:
        """What was in the pipe when the command ended; others may go on writing to it."""
        for _ in range(16):
            if not self._pump():
                break
        self._sink.settle()

    def _obey(self) -> None:
        try:
            order = self._hear()
        except EOFError:
            # The worker is gone, or dropped the command.
            self._selector.unregister(self._link)
            order = {"stop": 0.0}
        grace_seconds = float(order["stop"])
        if grace_seconds > 0:
            for pid in descendants(os.getpid()):
                send_signal(pid, signal.SIGTERM)
                send_signal(pid, signal.SIGCONT)
        self._strike_at = time.monotonic() + grace_seconds

    def _hear(self) -> dict[str, Any]:
        while b"\n" not in self._unread:
            data = self._link.recv(CHUNK_BYTES)
            if not data:
                raise EOFError
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        order: dict[str, Any] = json.loads(line)
        return order

    def _say(self, **fact: Any) -> None:
        with contextlib.suppress(OSError):
            self._link.sendall(json.dumps(fact).encode() + b"\n")


def input_of(request: dict[str, Any]) -> int:
    """What the command reads: nothing, or a file without a name, so that who does not read it keeps nobody waiting."""
    if "input" not in request:
        return subprocess.DEVNULL
    import tempfile  # Only here: a supervisor for each member should be small.

    with tempfile.TemporaryFile() as file:
        file.write(request["input"].encode(errors="replace"))
        file.seek(0)
        return os.dup(file.fileno())


def give_way() -> None:
    """When memory runs out, a command goes before its supervisor or the worker. It inherits this from its keeper."""
    prctl(PR_SET_DUMPABLE, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    prctl(PR_SET_DUMPABLE, 0)


def keep(link: socket.socket, output: int) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    give_way()
    with contextlib.suppress(EOFError):
        Keeper(link, output).run()


# The supervisor


class Supervisor:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._keepers: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._wake = watch_children(self._selector)
        self._selector.register(control, selectors.EVENT_READ)
        self._is_over = False

    def run(self) -> None:
        if os.getpid() == 1:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # Not handled: the kernel then keeps process 1 from it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        else:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.signal(signal.SIGTERM, self._end)
            # Not ignored, which commands would inherit.
            signal.signal(signal.SIGINT, lambda *_: None)
        self._control.sendall(b"r")
        while not self._is_over:
            ready = {key.fd for key, _ in self._selector.select()}
            if self._wake in ready:
                empty(self._wake)
                self._clear_up()
            if self._control.fileno() in ready:
                self._obey()
        # Process 1 need only leave; elsewhere the keepers have read the same end of file.
        if os.getpid() != 1:
            self._wait_for_keepers()

    def _end(self, *_: object) -> None:
        self._is_over = True

    def _obey(self) -> None:
        descriptors = array.array("i")
        try:
            data, ancillary, _, _ = self._control.recvmsg(1, socket.CMSG_SPACE(2 * descriptors.itemsize))
        except ConnectionResetError:
            data, ancillary = b"", []
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        if data == b"":
            self._is_over = True
        elif data == b"p":
            self._clear_up()
            self._end_strays()
            self._control.sendall(b"p")
        else:
            link, output = descriptors
            self._fork_keeper(link, output)
            os.close(link)
            os.close(output)

    def _fork_keeper(self, link: int, output: int) -> None:
        for descriptor in (link, output):
            os.set_inheritable(descriptor, False)
        pid = os.fork()
        if pid:
            self._keepers.add(pid)
            return
        try:
            self._selector.close()
            self._control.close()
            os.setpgid(0, 0)
            keep(socket.socket(fileno=link), output)
        except BaseException as error:
            os.write(2, f"keeper: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)

    def _clear_up(self) -> None:
        codes, _ = reap()
        ended = self._keepers & set(codes)
        self._keepers -= ended
        if any(codes[pid] for pid in ended):
            strike(os.getpid(), without=self._keepers)

    def _end_strays(self) -> None:
        """What fell to us from a keeper that was killed is dead after this, not only struck."""
        until = time.monotonic() + LAST_WAIT_SECONDS
        while descendants(os.getpid(), without=self._keepers) and time.monotonic() < until:
            strike(os.getpid(), without=self._keepers)
            time.sleep(0.002)
            self._clear_up()

    def _wait_for_keepers(self) -> None:
        until = time.monotonic() + LAST_WAIT_SECONDS
        self._selector.unregister(self._control)
        while reap()[1]:
            if time.monotonic() > until:
                strike(os.getpid())
                return
            self._selector.select(0.05)
            empty(self._wake)


def main() -> None:
    # Every keeper is a copy: what the collector does not touch stays shared with it.
    gc.disable()
    gc.freeze()
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    Supervisor(control).run()


if __name__ == "__main__":
    main()
