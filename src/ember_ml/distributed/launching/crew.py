"""The ranks of one machine: started, listened to, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from ember_ml.distributed.launching.guard import Guard
from ember_ml.distributed.launching.output import Relay, Screen
from ember_ml.distributed.launching.ranks import RankState
from ember_ml.distributed.launching.worker import Program, command_line
from ember_ml.distributed.world import World

__all__ = ["Crew", "Process"]

# Output that comes after the end of a rank: what it left behind may keep the pipe open.
_LAST_WORDS: Final = 2.0
_MOST_HELD: Final = 1 << 20


class Process:
    """One rank: a process that leads a group of its own, its channel, and its state."""

    def __init__(self, state: RankState, channel: socket.socket, relays: Sequence[Relay]) -> None:
        self.state = state
        self.channel = channel
        self.relays = relays
        self.heard = time.monotonic()
        self.stopped_at: float | None = None
        self.is_alive = True
        self.has_group = True
        self.is_deaf = False
        self._held = b""
        channel.setblocking(False)

    @property
    def pid(self) -> int:
        return self.state.pid

    def listen(self) -> None:
        """Read what the rank says of itself."""
        with contextlib.suppress(OSError):
            while not self.is_deaf:
                came = self.channel.recv(65_536)
                self.is_deaf = not came
                *lines, self._held = (self._held + came).split(b"\n")
                for line in lines:
                    self._heard(line)
                if len(self._held) > _MOST_HELD:
                    self._held = b""

    def _heard(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message["kind"]
        except (ValueError, KeyError, TypeError):
            return  # the program wrote to a file that was not its own
        state = self.state
        self.heard = time.monotonic()
        state.step, state.epoch = message.get("step"), message.get("epoch")
        if kind == "beat" and not state.error:
            state.where, state.inside = message.get("where", ""), message.get("inside", "")
            state.waits = float(message.get("waits", 0.0))
            state.left = bool(message.get("left"))
        elif kind == "error":
            state.error, state.lines = str(message["error"]), list(message["lines"])
            state.follows = bool(message["follows"])
            state.where, state.inside = message["where"] or state.where, ""
            state.code = 1
        elif kind == "exit":
            self.on_exit(int(message["code"]))

    def on_exit(self, code: int) -> None:
        """The program has ended; the interpreter may still wait for others."""
        if not self.state.ending:
            self.state.code = code & 0xFF
            self.state.finished = self.state.code == 0

    def look(self, now: float) -> None:
        """Ask the system how the process is."""
        for status in self.statuses() if self.is_alive else ():
            if os.WIFSTOPPED(status):
                self.paused(now, os.WSTOPSIG(status))
            elif os.WIFCONTINUED(status):
                self.paused(None, 0)
            elif os.WIFSIGNALED(status):
                self.ended("signal", os.WTERMSIG(status), now)
            else:
                self.ended("exit", os.WEXITSTATUS(status), now)
        if not self.is_alive and self.has_group:
            # Where the launcher is a container's first process, orphans become its children.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-self.pid, os.WNOHANG)
            self.signal(0)  # is anything of what it started still there?

    def statuses(self) -> list[int]:
        """What has happened to the process since the last call."""
        found: list[int] = []
        while not found or os.WIFSTOPPED(found[-1]) or os.WIFCONTINUED(found[-1]):
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                break
            found.append(status)
        return found

    def paused(self, since: float | None, number: int) -> None:
        """Note a stop by a signal, or that it is over."""
        self.stopped_at, self.state.paused = since, number

    def declare_stopped(self, now: float) -> None:
        """The stop was too long: it counts as the rank's end."""
        self.state.stop_for_good()
        self.state.silent = now - self.heard

    def ended(self, how: str, code: int, now: float) -> None:
        """Note the end of the process."""
        self.listen()
        self.is_alive, self.stopped_at = False, None
        state = self.state
        if not state.ending:
            state.silent = max(now - self.heard, 0.0)
            if state.failed:
                state.ending = "exit"  # it had said so before, and may have been hurried since
            else:
                state.ending, state.code = how, code

    def signal(self, number: int) -> None:
        """Send a signal to the rank and all that it has started."""
        if not self.has_group:
            return
        try:
            os.killpg(self.pid, number)
        except PermissionError:
            return  # macOS says so of zombies
        except ProcessLookupError:
            # A group without members: its number may become another's.
            self.has_group = self.is_alive

    def ask_to_end(self, number: int) -> None:
        """Tell the rank, by its channel, that it is to end as after a signal."""
        try:
            self.channel.send(f"{int(number)}\n".encode())
        except OSError:
            self.signal(number)

    def hang_up(self, selector: selectors.BaseSelector) -> None:
        """Close the channel."""
        if self.channel.fileno() != -1:
            selector.unregister(self.channel)
            self.channel.close()


class Crew:
    """The ranks of this machine in one attempt."""

    def __init__(
        self,
        program: Program,
        screen: Screen,
        guard: Guard,
        selector: selectors.BaseSelector,
        *,
        host: str,
        heartbeat: float,
        grace: float,
    ) -> None:
        self.program = program
        self.screen = screen
        self.guard = guard
        self.selector = selector
        self.host = host
        self.heartbeat = heartbeat
        self.grace = grace
        self.processes: list[Process] = []
        # Those that failed, in the order in which it was seen.
        self.failed: list[RankState] = []

    @property
    def interval(self) -> float:
        """Seconds between two beats."""
        return min(0.5, self.heartbeat / 5)

    @property
    def states(self) -> list[RankState]:
        return [one.state for one in self.processes]

    @property
    def is_over(self) -> bool:
        """No rank runs any more."""
        return not any(one.is_alive for one in self.processes)

    def start(self, worlds: Sequence[World], environ: Mapping[str, str]) -> None:
        """Start a rank for each world."""
        for world in worlds:
            self._start_one(world, {**environ, **world.environment()})

    def _start_one(self, world: World, environ: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            about = {"parent": os.getpid(), "channel": theirs.fileno(), "interval": self.interval}
            started = subprocess.Popen(
                command_line(self.program, **about),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        # From here on the process is waited for by its number, with its stops.
        started.returncode = 0
        assert started.stdout is not None
        assert started.stderr is not None
        self.add(world.rank, started.pid, ours, started.stdout, started.stderr)

    def add(
        self, rank: int, pid: int, channel: socket.socket, out: IO[bytes], err: IO[bytes]
    ) -> None:
        """Take up a process that was started."""
        self.guard.add(pid)
        relays = [Relay(self.screen, "out", rank, out), Relay(self.screen, "err", rank, err)]
        self.processes.append(self.made(RankState(rank, self.host, pid), channel, relays))
        self.selector.register(channel, selectors.EVENT_READ, "rank")

    def made(self, state: RankState, channel: socket.socket, relays: list[Relay]) -> Process:
        return Process(state, channel, relays)

    def poll(self) -> None:
        """See how ranks are; those that failed are in `failed` afterwards."""
        now = time.monotonic()
        for one in self.processes:
            one.listen()
            had_group = one.has_group
            one.look(now)
            if had_group and not one.has_group:
                self.guard.remove(one.pid)
        peers_gone = any(one.doubt for one in self.failed)
        for one in self.processes:
            stopped = one.stopped_at
            # A short stop is forgiven, unless others already say that a peer is gone.
            is_long = stopped is not None and now - stopped >= self.heartbeat
            if not one.state.ending and (is_long or (stopped is not None and peers_gone)):
                one.declare_stopped(now)
            if one.state.failed and not any(one.state is other for other in self.failed):
                self.failed.append(one.state)
            if one.is_deaf or not one.is_alive:
                one.hang_up(self.selector)

    def interrupt(self, number: int) -> None:
        """Pass a wish to end on to every rank."""
        for one in self.processes:
            if one.is_alive:
                one.ask_to_end(number)

    def stop(self, meanwhile: Callable[[], None], *, kill: bool = False) -> None:
        """End all ranks: SIGTERM, after the grace SIGKILL; and what they have started."""
        for one in self.processes:
            one.state.asked = one.is_alive and not one.state.failed
            if one.is_alive and one.stopped_at is not None:
                one.signal(signal.SIGKILL)
            elif not kill:
                one.signal(signal.SIGTERM)
        end = time.monotonic() + (0.0 if kill else self.grace)
        while any(one.has_group for one in self.processes) and time.monotonic() < end:
            meanwhile()
            self.poll()
            time.sleep(0.02)
        self.kill()
        end = time.monotonic() + _LAST_WORDS
        for one in self.processes:
            for relay in one.relays:
                relay.join(max(end - time.monotonic(), 0.0))

    def kill(self) -> None:
        """End all at once."""
        end = time.monotonic() + 5.0
        while any(one.has_group for one in self.processes) and time.monotonic() < end:
            for one in self.processes:
                one.signal(signal.SIGKILL)
            self.poll()
            time.sleep(0.01)
        for one in self.processes:
            one.hang_up(self.selector)
            self.guard.remove(one.pid)

    def close(self) -> None:
        """Let go; nothing is left when `stop` has been called."""
        self.kill()

    def told(self) -> list[dict[str, Any]]:
        """The states as JSON, for another machine."""
        return [one.to_json() for one in self.states]
