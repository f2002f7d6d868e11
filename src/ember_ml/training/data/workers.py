"""Threads that make batches ahead of their use, in an order that does not depend on them.

Threads suffice: NumPy takes rows and reads files without Python's lock, and what they make needs
no way between processes. A dataset whose samples are made by slow Python code gains little.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from typing import Any

__all__ = ["Ahead"]

Take = Callable[[], Any]
Make = Callable[[int, Any], Any]


class _Shared:
    """What the threads and the consumer have in common; it does not hold the consumer."""

    def __init__(self, take: Take, make: Make, first: int, window: int) -> None:
        self.take = take
        self.make = make
        self.changed = threading.Condition()
        # Only one thread at a time takes the next batch's samples, so they come in order.
        self.taking = threading.Lock()
        self.number = first
        self.wanted = first
        self.window = window
        self.made: dict[int, tuple[Any, BaseException | None]] = {}
        self.end: int | None = None
        self.closed = False

    def work(self) -> None:
        while True:
            with self.taking:
                with self.changed:
                    while not self.closed and self.end is None and self._is_far():
                        self.changed.wait()
                    if self.closed or self.end is not None:
                        return
                number = self.number
                try:
                    raw = self.take()
                except StopIteration:
                    self._end(number)
                    return
                except BaseException as error:
                    self._put(number, None, error)
                    self._end(number + 1)
                    return
                self.number = number + 1
            try:
                self._put(number, self.make(number, raw), None)
            except BaseException as error:  # raised again where the batch is asked for
                self._put(number, None, error)
                return

    def _is_far(self) -> bool:
        return self.number >= self.wanted + self.window

    def _put(self, number: int, batch: Any, error: BaseException | None) -> None:
        with self.changed:
            self.made[number] = (batch, error)
            self.changed.notify_all()

    def _end(self, number: int) -> None:
        with self.changed:
            self.end = number
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.made.clear()
            self.changed.notify_all()


class Ahead(Iterator[Any]):
    """Batches made by threads; closing it, breaking a loop over it or losing it ends them."""

    def __init__(self, take: Take, make: Make, first: int, workers: int, prefetch: int) -> None:
        shared = self._shared = _Shared(take, make, first, workers * prefetch)
        self._threads = [
            threading.Thread(
                target=_in_context,
                args=(copy_context(), shared),
                name=f"ember_ml loader {number}",
                daemon=True,
            )
            for number in range(workers)
        ]
        # Runs when nobody holds this iterator any more; it must not wait for threads.
        self._finalizer = weakref.finalize(self, shared.close)
        for thread in self._threads:
            thread.start()

    def __next__(self) -> Any:
        shared = self._shared
        with shared.changed:
            number = shared.wanted
            while number not in shared.made:
                if shared.closed or (shared.end is not None and number >= shared.end):
                    break
                shared.changed.wait()
            else:
                batch, error = shared.made.pop(number)
                shared.wanted = number + 1
                shared.changed.notify_all()
                if error is None:
                    return batch
                self._failure = error
        self.close()
        failure = self.__dict__.pop("_failure", None)
        if failure is not None:
            raise failure
        raise StopIteration

    def close(self) -> None:
        """End the threads and wait for them."""
        self._finalizer()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


def _in_context(context: Context, shared: _Shared) -> None:
    """Work as the thread that asked: with its backend and its scopes."""
    context.run(shared.work)
