"""The order in which a context does its work, and what waits for it.

A timeline is a queue with one place at its head. A synchronous call does its work in the thread
that calls, when nothing is queued before it: it costs a lock. An asynchronous call is queued for
one thread of the context, so that no event loop is blocked, and a synchronous call that comes
while something is queued stands in line behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import InvalidStateError as AlreadyDone
from typing import Any, Generic, TypeVar

__all__ = ["Lost", "MLContextLostInfo", "Pending", "Timeline"]

T = TypeVar("T")


class Timeline:
    """Work of one context, one piece after another."""

    def __init__(self) -> None:
        # Held by whoever works; how many pieces of work are queued is only certain while it is.
        self.head = threading.Lock()
        self.queued = 0
        self._counting = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Do something now, behind all that is queued, and give what it gives."""
        with self.head:
            if not self.queued:
                return work()
        return self.submit(work).result()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue something; it is done in the order in which it came."""
        with self._counting:
            self.queued += 1
            if self._worker is None:
                # One thread, made by the first asynchronous call; it ends with the timeline.
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="webnn-timeline")
            return self._worker.submit(self._take, work)

    def _take(self, work: Callable[[], T]) -> T:
        with self.head:
            try:
                return work()
            finally:
                with self._counting:
                    self.queued -= 1


class Pending(Coroutine[Any, Any, T], Generic[T]):
    """What an asynchronous call gives: `await` it, once.

    The call is on its way as soon as it was made, whether it is awaited or not, and keeps its
    place before what is called after it. Only where no event loop runs does it begin when it is
    awaited: `asyncio.run(context.read_tensor_async(tensor))` works.
    """

    __slots__ = ("_begin", "_future", "_loop", "_steps", "when_settled")

    def __init__(self, begin: Callable[[Pending[T]], None]) -> None:
        self._begin = begin
        # Called in the event loop when who awaits has the result or the error.
        self.when_settled: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._future: asyncio.Future[T] | None = None
        self._steps: Generator[Any, None, T] | None = None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._start(loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        self._loop = loop
        self._future = loop.create_future()
        try:
            self._begin(self)
        except Exception as error:  # as a promise is rejected: the error goes to who awaits
            self._future.set_exception(error)
        return self._future

    def follow(self, work: Future[T]) -> None:
        """Be settled by what was queued."""
        work.add_done_callback(self._follow)

    def _follow(self, work: Future[T]) -> None:
        error = work.exception()
        if error is not None:
            self.settle(error=error)
        else:
            self.settle(work.result())

    def settle(self, value: T | None = None, error: BaseException | None = None) -> None:
        """Give a result or an error to who awaits; the first one counts. From any thread."""
        loop = self._loop
        if loop is None:
            return
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self._settle(value, error)
        elif not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._settle, value, error)
            except RuntimeError:
                return  # the loop was closed in between: nobody waits

    def _settle(self, value: Any, error: BaseException | None) -> None:
        future = self._future
        if future is not None and not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)
        if self.when_settled is not None:
            self.when_settled()

    # --- As a coroutine, so that asyncio.run, create_task and gather take it ---------------------

    def __await__(self) -> Generator[Any, None, T]:
        future = self._future
        if future is None:
            future = self._start(asyncio.get_running_loop())
        return (yield from future)

    def send(self, value: Any) -> Any:
        """The next step of awaiting it."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *given: Any) -> Any:
        """Raise something where it is awaited."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.throw(*given)

    def close(self) -> None:
        """Await it no longer."""
        if self._steps is not None:
            self._steps.close()


class MLContextLostInfo:
    """Why a context is lost."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"MLContextLostInfo(message={self.message!r})"


class Lost:
    """Tells when a context is lost: `await context.lost`, or `context.lost.result()`."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: Future[MLContextLostInfo] = Future()
        # A future that runs cannot be cancelled by one of the many who may wait for it.
        self._future.set_running_or_notify_cancel()

    def done(self) -> bool:
        """Whether the context is lost."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> MLContextLostInfo:
        """Wait until it is, and tell why."""
        return self._future.result(timeout)

    def add_done_callback(self, call: Callable[[MLContextLostInfo], object]) -> None:
        """Call something with the reason when it is."""
        self._future.add_done_callback(lambda future: call(future.result()))

    def __await__(self) -> Generator[Any, None, MLContextLostInfo]:
        return asyncio.wrap_future(self._future).__await__()

    def _lose(self, message: str) -> None:
        with contextlib.suppress(AlreadyDone):  # another thread was quicker
            self._future.set_result(MLContextLostInfo(message))
