"""The launcher of one machine: starts ranks, watches them, ends them, and starts them again."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final

from ember_ml.backend.selection import ENVIRONMENT_VARIABLE
from ember_ml.distributed.launching import report
from ember_ml.distributed.launching.addresses import Endpoint, interface_of
from ember_ml.distributed.launching.crew import Crew
from ember_ml.distributed.launching.guard import Guard
from ember_ml.distributed.launching.nodes import Hub, Link, Plan, Verdict
from ember_ml.distributed.launching.output import Screen
from ember_ml.distributed.launching.ranks import signal_name
from ember_ml.distributed.launching.worker import Program
from ember_ml.distributed.world import World
from ember_ml.errors import CommunicationError, DomainError

__all__ = ["ADDRESS", "Agent", "Options"]

# The address of a rank's machine as the others see it: for engines that would take its host name.
ADDRESS: Final = "EMBER_ADDRESS"
# The same in all attempts and on all nodes of a job: a checkpoint tells whose it is.
JOB: Final = "EMBER_JOB"
# Signals that come together are one wish; seconds.
_ONE_PRESS: Final = 0.2


@dataclass(frozen=True)
class Options:
    """What is asked of a launcher; seconds are seconds."""

    program: Program
    processes: int = 1
    nnodes: int = 1
    node_rank: int = 0
    master: Endpoint | None = None
    max_restarts: int = 0
    backend: str | None = None
    heartbeat: float = 10.0
    grace: float = 3.0
    wait: float = 300.0

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise DomainError(
                f"ember launch got -n {self.processes}; a node has one process or more"
            )
        if self.nnodes < 1:
            raise DomainError(f"ember launch got --nnodes {self.nnodes}; it is 1 or more")
        if not 0 <= self.node_rank < self.nnodes:
            raise DomainError(
                f"ember launch got --node-rank {self.node_rank} of --nnodes {self.nnodes}; "
                f"it goes from 0 to {self.nnodes - 1}"
            )
        if self.max_restarts < 0:
            raise DomainError(f"ember launch got --max-restarts {self.max_restarts}; 0 or more")
        for name in ("heartbeat", "grace", "wait"):
            if not 0 < getattr(self, name) < float("inf"):
                raise DomainError(
                    f"ember launch got --{name} {getattr(self, name):g}; it is a number of seconds"
                )
        if self.nnodes > 1 and self.master is None:
            raise DomainError(
                f"ember launch --nnodes {self.nnodes} needs --master host:port, where node 0 is "
                f"found; under Slurm and in an indexed job of Kubernetes it is known"
            )


class Agent:
    """Runs a job, or the part of one that is on this machine: `run` gives the exit code."""

    def __init__(self, options: Options, screen: Screen) -> None:
        self.options = options
        self.screen = screen
        self.selector = selectors.DefaultSelector()
        self.signals = _Signals(self.selector)

    def run(self) -> int:
        """Run the job to its end."""
        control = None
        guard = Guard()
        try:
            with self.signals:
                control = self._control()
                return self._run(control, guard)
        except _Interrupted as interrupted:
            return 128 + interrupted.number
        finally:
            if control is not None:
                control.close()
            guard.close()
            self.selector.close()

    def _control(self) -> Hub | Link:
        given = self.options
        about: dict[str, Any] = {
            "wait": given.wait,
            "heartbeat": given.heartbeat,
            "selector": self.selector,
            "check": self.signals.check,
        }
        if given.node_rank == 0:
            return Hub(given.nnodes, given.master, **about)
        assert given.master is not None
        return Link(given.node_rank, given.nnodes, given.master, **about)

    def _run(self, control: Hub | Link, guard: Guard) -> int:
        attempt = restarts = 0
        job = os.urandom(8).hex()
        while True:
            plan = control.gather(self.options.processes, attempt, job)
            job = plan.job
            crew = self._crew(guard)
            began = time.monotonic()
            try:
                self._start(crew, plan)
                verdict = self._watch(crew, control)
                verdict.again = self._is_again(verdict, control, restarts)
                control.announce(verdict)
                crew.stop(control.keep, kill=self.signals.count > 1)
            finally:
                crew.close()
                plan.ports.close()
            ranks = control.conclude(crew, verdict)
            self._tell(verdict, ranks, plan, time.monotonic() - began, control)
            if not verdict.again:
                return verdict.code
            attempt, restarts = plan.attempt + 1, restarts + 1
            self.screen.tell(
                f"starting again: attempt {attempt + 1}, restart {restarts} of at most "
                f"{self.options.max_restarts}"
            )

    def _is_again(self, verdict: Verdict, control: Hub | Link, restarts: int) -> bool:
        if verdict.kind != "failed" or self.signals.count:
            return False
        if isinstance(control, Link) and control.is_connected:
            return verdict.again  # node 0 has decided
        return restarts < self.options.max_restarts

    def _crew(self, guard: Guard) -> Crew:
        given = self.options
        kind: type[Crew] = Crew
        if given.processes > 1 or given.nnodes > 1:
            from ember_ml.distributed.launching import mpi

            if mpi.is_needed(given.backend):
                mpi.require(given.nnodes)
                kind = mpi.MpiCrew
        return kind(
            given.program,
            self.screen,
            guard,
            self.selector,
            host=socket.gethostname(),
            heartbeat=given.heartbeat,
            grace=given.grace,
        )

    def _start(self, crew: Crew, plan: Plan) -> None:
        count = self.options.processes
        worlds = [
            World(
                rank=plan.first + local,
                size=plan.size,
                local_rank=local,
                local_size=count,
                host=plan.host,
                port=plan.port,
                ring=plan.ring,
                attempt=plan.attempt,
                launcher="ember",
            )
            for local in range(count)
        ]
        crew.start(worlds, self._environment(plan, os.environ))

    def _environment(self, plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
        """What all ranks of this machine are told, beside their worlds."""
        made = {**environ, ADDRESS: plan.address, JOB: plan.job, "PYTHONUNBUFFERED": "1"}
        if self.options.backend is not None:
            made[ENVIRONMENT_VARIABLE] = self.options.backend
        # gloo would take the interface of the host's name, which may be none that others reach.
        interface = interface_of(plan.address)
        if interface is not None:
            made.setdefault("GLOO_SOCKET_IFNAME", interface)
        # Processes that share a machine's cores do not each take all of them.
        if self.options.processes > 1:
            threads = max((os.cpu_count() or 1) // self.options.processes, 1)
            made.setdefault("OMP_NUM_THREADS", str(threads))
        return made

    def _watch(self, crew: Crew, control: Hub | Link) -> Verdict:
        while True:
            self.signals.rest(min(0.2, crew.interval))
            crew.poll()
            if self.signals.count > 1:
                number = self.signals.last
                return Verdict("interrupted", 128 + number, why="a second signal")
            verdict = control.step(crew, self.signals.last)
            if verdict is not None:
                return verdict

    def _tell(
        self,
        verdict: Verdict,
        ranks: list[Any],
        plan: Plan,
        seconds: float,
        control: Hub | Link,
    ) -> None:
        if verdict.kind == "interrupted":
            number = self.signals.last or signal.SIGINT
            self.screen.tell(f"ended by {signal_name(number)}")
        elif verdict.kind == "failed":
            if isinstance(control, Link) and control.is_connected:
                self.screen.tell(f"node {self.options.node_rank} ends: {verdict.why}")
            else:
                report.show(
                    self.screen,
                    verdict.cause,
                    ranks,
                    why=verdict.why,
                    attempt=plan.attempt,
                    seconds=seconds,
                )


class _Interrupted(CommunicationError):
    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal_name(number)}")
        self.number = number


class _Signals:
    """Signals to the launcher: counted, and heeded between two looks at the ranks."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.count = 0
        self.last = 0
        self._at = float("-inf")
        self._selector = selector
        self._before: dict[int, Any] = {}
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            # nohup and shells' background jobs ask that some are ignored.
            if before is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._came)
        # A child that ends or stops is seen at once.
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, self._child)
        self._fd = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ, "signal")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._fd)
        for number, before in self._before.items():
            signal.signal(number, before)
        self._selector.unregister(self._woken)
        self._wake.close()
        self._woken.close()

    def _came(self, number: int, frame: FrameType | None) -> None:
        # A program around this one may pass on the Ctrl-C that a terminal has sent to both.
        now = time.monotonic()
        if now - self._at >= _ONE_PRESS:
            self.count += 1
        self.last, self._at = number, now

    def _child(self, number: int, frame: FrameType | None) -> None:
        """Only to wake up."""

    def check(self) -> None:
        """Before the job begins, a signal ends it."""
        if self.count:
            raise _Interrupted(self.last)

    def rest(self, seconds: float) -> None:
        """Wait until something happens."""
        for key, _ in self._selector.select(seconds):
            if key.data == "signal":
                try:
                    while self._woken.recv(4096):
                        continue
                except BlockingIOError:
                    continue
