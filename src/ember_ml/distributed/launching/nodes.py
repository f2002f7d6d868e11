"""One job on several machines: node 0 decides when it begins, has failed, or is done."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ember_ml.distributed.launching.addresses import Endpoint, Ports, plain_address
from ember_ml.distributed.launching.control import PROTOCOL, Listener, Peer, connect
from ember_ml.distributed.launching.crew import Crew
from ember_ml.distributed.launching.ranks import RankState, cause_of
from ember_ml.distributed.launching.report import sentence
from ember_ml.errors import CommunicationError

__all__ = ["Hub", "Link", "Plan", "Verdict"]

_LOOPBACK: Final = "127.0.0.1"
# After a failure, others may be heard of that came before it: at once where it is a rank's own
# fault, for some time where it blames others.
_SETTLED: Final = 0.3
_DOUBTED: Final = 2.0
# The name of a pod is known some time after the pod itself is there.
_NAMED: Final = 60.0


@dataclass(frozen=True)
class Plan:
    """What a node needs to start its ranks."""

    attempt: int
    size: int
    first: int
    host: str
    port: int
    ring: tuple[str, ...]
    # That of this node, as the others see it.
    address: str
    # The same in all attempts and on all nodes.
    job: str
    # Ports that ranks of this node will use, held until then.
    ports: Ports


@dataclass
class Verdict:
    """How an attempt ended: "done", "failed" or "interrupted"."""

    kind: str
    code: int = 0
    cause: RankState | None = None
    why: str = ""
    # The job is to be started again.
    again: bool = False


@dataclass
class _Node:
    number: int
    peer: Peer
    host: str
    address: str
    count: int
    ports: list[int]
    attempt: int
    job: str
    first: int = 0
    states: list[RankState] = field(default_factory=list)
    is_ready: bool = True
    is_done: bool = False
    is_stopped: bool = False


class Hub:
    """Node 0, which may be the only one."""

    def __init__(
        self,
        nnodes: int,
        master: Endpoint | None,
        *,
        wait: float,
        heartbeat: float,
        selector: selectors.BaseSelector,
        check: Callable[[], None],
    ) -> None:
        self.nnodes = nnodes
        self.wait = wait
        self.heartbeat = heartbeat
        self.interval = min(1.0, heartbeat / 5)
        self._selector = selector
        self._check = check
        self._nodes: dict[int, _Node] = {}
        self._failed: list[RankState] = []
        self._failed_at = 0.0
        self._passed_on = 0
        self.master = master
        self._listener: Listener | None = None
        if nnodes > 1:
            assert master is not None
            self._listener = Listener(master, min(wait, _NAMED), check)
            selector.register(self._listener, selectors.EVENT_READ, "listener")

    # --- Before ---------------------------------------------------------------------------------

    def gather(self, count: int, attempt: int, job: str) -> Plan:
        """Wait for all nodes, and tell each to start."""
        self._failed, self._failed_at, self._passed_on = [], 0.0, 0
        end = time.monotonic() + self.wait
        while not self._all_ready():
            self._check()
            self._meet()
            if time.monotonic() > end:
                raise self._missing()
            self._selector.select(0.1)
        for node in self._in_order():
            # This launcher may have been started anew: then the others know the job.
            if node.attempt > attempt:
                attempt, job = node.attempt, node.job
        address = _LOOPBACK
        if self._nodes:
            met = next(iter(self._nodes.values())).peer.connection
            address = plain_address(met.getsockname()[0])
        ports = Ports(1 + count)
        port, *own = ports.numbers
        ring = [str(Endpoint(address, one)) for one in own]
        for node in self._in_order():
            node.first = len(ring)
            ring += [str(Endpoint(node.address, one)) for one in node.ports]
        host = _LOOPBACK if self.master is None or self.nnodes == 1 else self.master.host
        for node in self._in_order():
            node.is_ready = node.is_done = node.is_stopped = False
            ranks = range(node.first, node.first + node.count)
            node.states = [RankState(rank, node.host) for rank in ranks]
            node.peer.heard = time.monotonic()
            node.peer.send(
                "start",
                attempt=attempt,
                size=len(ring),
                first=node.first,
                host=host,
                port=port,
                ring=ring,
                job=job,
            )
        return Plan(attempt, len(ring), 0, host, port, tuple(ring), address, job, ports)

    def _all_ready(self) -> bool:
        ready = [one for one in self._nodes.values() if one.is_ready]
        return len(ready) == self.nnodes - 1

    def _in_order(self) -> list[_Node]:
        return [self._nodes[number] for number in sorted(self._nodes)]

    def _meet(self) -> None:
        """Hear of nodes that come, and of those that go before the start."""
        for number, node in list(self._nodes.items()):
            for message in node.peer.receive():
                if message["kind"] == "hello":
                    self._nodes[number] = _read_hello(message, node.peer)
            if node.peer.closed or node.peer.silence() > self.heartbeat:
                self._forget(number)
            else:
                node.peer.beat(self.interval, dict)
        assert self._listener is not None or self.nnodes == 1
        for peer, hello in self._listener.arrivals() if self._listener is not None else ():
            self._admit(peer, hello)

    def _admit(self, peer: Peer, hello: dict[str, Any]) -> None:
        refusal = ""
        try:
            node = _read_hello(hello, peer)
        except (KeyError, TypeError, ValueError):
            peer.close(0.0)
            return
        if hello.get("protocol") != PROTOCOL:
            refusal = "another version of ember_ml runs on node 0"
        elif hello.get("nnodes") != self.nnodes:
            refusal = f"node 0 was started with --nnodes {self.nnodes}, not {hello.get('nnodes')}"
        elif not 0 < node.number < self.nnodes:
            refusal = f"--node-rank {node.number} is not below --nnodes {self.nnodes}"
        elif node.number in self._nodes:
            there = self._nodes[node.number].host
            refusal = f"a node of --node-rank {node.number} is already there: {there}"
        if refusal:
            peer.send("refused", why=refusal)
            peer.close()
            return
        self._nodes[node.number] = node
        self._selector.register(peer.connection, selectors.EVENT_READ, "peer")

    def _forget(self, number: int) -> None:
        node = self._nodes.pop(number)
        self._selector.unregister(node.peer.connection)
        node.peer.close(0.0)

    def _missing(self) -> CommunicationError:
        there = {number for number, one in self._nodes.items() if one.is_ready}
        absent = [number for number in range(1, self.nnodes) if number not in there]
        names = ", ".join(str(one) for one in absent)
        error = CommunicationError(
            f"ember launch waited {self.wait:g} s at {self.master} and node {names} of "
            f"{self.nnodes} did not come; start it with --node-rank, the same --nnodes and "
            f"--master, and see that the port can be reached"
        )
        for node in self._nodes.values():
            node.peer.send("stop", outcome="failed", why=f"node {names} did not come", code=1)
        return error

    # --- Meanwhile ------------------------------------------------------------------------------

    def step(self, crew: Crew, interrupted: int) -> Verdict | None:
        """Hear the others; a verdict once there is one. `interrupted` is a signal, or 0."""
        if interrupted and interrupted != self._passed_on:
            self._pass_on(crew, interrupted)
        for one in crew.failed:
            self._note(one)
        for node in self._in_order():
            self._hear(node, crew)
        self.keep()
        now = time.monotonic()
        cause = cause_of(self._failed)
        if self._passed_on:
            return self._interrupted(crew, cause)
        if cause is not None:
            self._failed_at = self._failed_at or now
            if cause.doubt:
                cause = self._paused(crew) or cause
            if now - self._failed_at >= (_DOUBTED if cause.doubt else _SETTLED):
                return Verdict("failed", cause.exit_code, cause)
            return None
        if crew.is_over and all(one.is_done for one in self._nodes.values()):
            return Verdict("done")
        return self._deserted(crew)

    def _deserted(self, crew: Crew) -> Verdict | None:
        """Where a rank waits in a collective for one whose program has ended, it waits for ever.

        On JAX and over MPI, processes that are done stay until all are, and nobody sees them go.
        """
        states = [*crew.states, *self._remote()]
        gone = next((one for one in states if one.finished or one.left), None)
        if gone is None:
            return None
        for one in states:
            is_done = one.finished or one.left or one.is_over
            if one.waits >= self.heartbeat and not is_done:
                one.error = (
                    f"CommunicationError: it has waited {one.waits:.0f} s in a collective, and "
                    f"rank {gone.rank} has {'ended' if gone.finished else 'left'}"
                )
                one.follows, one.code = True, 1
                return Verdict("failed", one.exit_code, one)
        return None

    def _interrupted(self, crew: Crew, cause: RankState | None) -> Verdict | None:
        """After Ctrl-C, ranks end as they like; what fails for another reason is a failure."""
        for one in self._failed:
            if not one.doubt and not one.is_interrupted:
                return Verdict("failed", one.exit_code, one)
        if not crew.is_over or not all(one.is_over for one in self._remote()):
            return None
        if cause is None:
            return Verdict("done")
        return Verdict("interrupted", 128 + self._passed_on, cause)

    def _remote(self) -> Iterator[RankState]:
        for node in self._in_order():
            yield from node.states

    def _paused(self, crew: Crew) -> RankState | None:
        """A rank that is stopped while others say that a peer is gone."""
        for one in [*crew.states, *self._remote()]:
            if one.paused and not one.ending:
                one.stop_for_good()
                return one
        return None

    def _pass_on(self, crew: Crew, number: int) -> None:
        self._passed_on = number
        crew.interrupt(number)
        for node in self._nodes.values():
            node.peer.send("interrupt", signal=number)

    def _hear(self, node: _Node, crew: Crew) -> None:
        for message in node.peer.receive():
            kind = message["kind"]
            if kind in ("beat", "failed", "done", "stopped") and "ranks" in message:
                node.states = [RankState.of_json(one) for one in message["ranks"]]
            if kind == "failed":
                for one in node.states:
                    if one.failed:
                        self._note(one)
            elif kind == "done":
                node.is_done = True
            elif kind == "stopped":
                node.is_stopped = True
            elif kind == "interrupt" and not self._passed_on:
                self._pass_on(crew, int(message["signal"]))
        silent = node.peer.silence() > self.heartbeat
        if (node.peer.closed or silent) and not node.is_stopped:
            self._lost(node, silent=silent)

    def _note(self, state: RankState) -> None:
        for number, one in enumerate(self._failed):
            if one.rank == state.rank:
                if one.ending != "lost":
                    self._failed[number] = state
                return
        self._failed.append(state)

    def _lost(self, node: _Node, *, silent: bool) -> None:
        how = f"has not answered for {self.heartbeat:g} s" if silent else f"({node.peer.closed})"
        why = f"node {node.number} (host {node.host}, {node.address}) is lost: it {how}"
        if not silent:
            why = f"node {node.number} (host {node.host}, {node.address}) is lost {how}"
        for state in node.states:
            if not state.failed:
                state.ending, state.code = "lost", 0
        first = min(node.states, key=lambda one: one.rank)
        if first.ending == "lost":
            first.error = why
        for state in node.states:
            self._note(state)
        node.is_stopped = True

    # --- After ----------------------------------------------------------------------------------

    def keep(self) -> None:
        """Let the others know that this node is there."""
        for node in self._nodes.values():
            if not node.is_stopped:
                node.peer.beat(self.interval, dict)

    def announce(self, verdict: Verdict) -> None:
        """Tell all how it ended, and whether they are to come again."""
        for node in self._nodes.values():
            node.peer.send(
                "stop",
                outcome=verdict.kind,
                why=sentence(verdict.cause, verdict.why),
                code=verdict.code,
                again=verdict.again,
            )

    def conclude(self, crew: Crew, verdict: Verdict) -> list[RankState]:
        """Wait for the last states of all ranks; nodes that are lost are forgotten."""
        cause = verdict.cause
        end = time.monotonic() + crew.grace + self.heartbeat / 2
        while time.monotonic() < end and not all(one.is_stopped for one in self._nodes.values()):
            for node in self._in_order():
                self._hear(node, crew)
            self.keep()
            self._selector.select(0.05)
        states = [*crew.states, *self._remote()]
        for number, node in list(self._nodes.items()):
            if node.peer.closed or node.peer.silence() > self.heartbeat:
                self._forget(number)
        # The cause is shown as it was when it was found.
        return [cause if cause is not None and one.rank == cause.rank else one for one in states]

    def close(self) -> None:
        for number in list(self._nodes):
            node = self._nodes.pop(number)
            self._selector.unregister(node.peer.connection)
            node.peer.close()
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()


class Link:
    """A node other than 0: it tells, and does what it is told."""

    def __init__(
        self,
        node: int,
        nnodes: int,
        master: Endpoint,
        *,
        wait: float,
        heartbeat: float,
        selector: selectors.BaseSelector,
        check: Callable[[], None],
    ) -> None:
        self.node = node
        self.nnodes = nnodes
        self.master = master
        self.wait = wait
        self.heartbeat = heartbeat
        self.interval = min(1.0, heartbeat / 5)
        self._selector = selector
        self._check = check
        self._peer: Peer | None = None
        self._told: set[int] = set()
        self._is_done = False
        self._passed_on = 0

    def gather(self, count: int, attempt: int, job: str) -> Plan:
        """Say hello to node 0, and wait for its start."""
        self._told, self._is_done, self._passed_on = set(), False, 0
        end = time.monotonic() + self.wait
        if self._peer is None:
            self._peer = connect(self.master, self.wait, self._check)
            self._selector.register(self._peer.connection, selectors.EVENT_READ, "peer")
        ports = Ports(count)
        try:
            return self._started(self._peer, ports, attempt, job, end)
        except BaseException:
            ports.close()
            raise

    def _started(self, peer: Peer, ports: Ports, attempt: int, job: str, end: float) -> Plan:
        address = plain_address(peer.connection.getsockname()[0])
        peer.send(
            "hello",
            protocol=PROTOCOL,
            node=self.node,
            nnodes=self.nnodes,
            count=len(ports.numbers),
            host=socket.gethostname(),
            address=address,
            ports=ports.numbers,
            attempt=attempt,
            job=job,
        )
        while True:
            self._check()
            for message in peer.receive():
                kind = message["kind"]
                if kind == "start":
                    return Plan(
                        **{key: int(message[key]) for key in ("attempt", "size", "first", "port")},
                        host=str(message["host"]),
                        ring=tuple(message["ring"]),
                        address=address,
                        job=str(message["job"]),
                        ports=ports,
                    )
                if kind in ("refused", "stop"):
                    raise CommunicationError(f"ember launch: {message.get('why', 'refused')}")
            peer.beat(self.interval, dict)
            # Node 0 waits as long as this one, and may have begun to later.
            if peer.closed or peer.silence() > max(self.heartbeat, 5.0):
                raise CommunicationError(
                    f"ember launch: node 0 at {self.master} is gone before the start "
                    f"({peer.closed or 'it does not answer'})"
                )
            if time.monotonic() > end + self.wait:
                raise CommunicationError(
                    f"ember launch: node 0 at {self.master} did not start the job within "
                    f"{2 * self.wait:g} s"
                )
            self._selector.select(0.1)

    def step(self, crew: Crew, interrupted: int) -> Verdict | None:
        """Tell node 0 of what has changed; its verdict once there is one."""
        peer = self._peer
        assert peer is not None
        if interrupted and interrupted != self._passed_on:
            self._passed_on = interrupted
            crew.interrupt(interrupted)
            peer.send("interrupt", signal=interrupted)
        new = {one.rank for one in crew.failed} - self._told
        if new:
            self._told |= new
            peer.send("failed", ranks=crew.told())
        if crew.is_over and not self._is_done and not crew.failed:
            self._is_done = True
            peer.send("done", ranks=crew.told())
        peer.beat(self.interval, lambda: {"ranks": crew.told()})
        for message in peer.receive():
            if message["kind"] == "stop":
                return Verdict(
                    str(message["outcome"]),
                    int(message["code"]),
                    why=str(message["why"]),
                    again=bool(message.get("again")),
                )
            if message["kind"] == "interrupt" and not self._passed_on:
                self._passed_on = int(message["signal"])
                crew.interrupt(self._passed_on)
        if peer.closed or peer.silence() > self.heartbeat:
            how = peer.closed or f"it has not answered for {self.heartbeat:g} s"
            self._drop()
            return Verdict("failed", 1, why=f"node 0 at {self.master} is lost ({how})")
        return None

    def _drop(self) -> None:
        if self._peer is not None:
            self._selector.unregister(self._peer.connection)
            self._peer.close()
            self._peer = None

    def keep(self) -> None:
        """Let node 0 know that this node is there."""
        if self._peer is not None:
            self._peer.beat(self.interval, dict)

    def announce(self, verdict: Verdict) -> None:
        """Node 0 knows."""

    def conclude(self, crew: Crew, verdict: Verdict) -> list[RankState]:
        """Tell node 0 how the ranks have ended."""
        if self._peer is not None:
            self._peer.send("stopped", ranks=crew.told())
        return crew.states

    @property
    def is_connected(self) -> bool:
        return self._peer is not None

    def close(self) -> None:
        self._drop()


def _read_hello(message: dict[str, Any], peer: Peer) -> _Node:
    count = int(message["count"])
    ports = [int(one) for one in message["ports"]]
    if count < 1 or len(ports) != count:
        raise ValueError("a node without ranks")
    return _Node(
        number=int(message["node"]),
        peer=peer,
        host=str(message["host"]),
        address=str(message["address"]),
        count=count,
        ports=ports,
        attempt=int(message["attempt"]),
        job=str(message["job"]),
    )
