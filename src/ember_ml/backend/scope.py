"""Choices that hold inside a `with` block or a decorated function, and end with it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["Scope"]

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Scope")

_CO_COROUTINE = 0x80


class Scope:
    """A value of a context variable for a block: a context manager and a decorator.

    Subclasses name the variable, and work out its value from what the user chose on entry.
    """

    variable: ContextVar[Any]

    def __init__(self, choice: Any) -> None:
        self.choice = choice
        self._tokens: list[Token[Any]] = []

    def value(self) -> Any:
        """What the variable holds inside the scope."""
        return self.choice

    def __enter__(self: S) -> S:
        self._tokens.append(self.variable.set(self.value()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.variable.reset(self._tokens.pop())

    def __call__(self, function: F) -> F:
        # Each call has a scope of its own: threads that share a decorator share no tokens.
        scope, choice = type(self), self.choice
        if _is_coroutine(function):

            @wraps(function)
            async def run_async(*args: Any, **options: Any) -> Any:
                with scope(choice):
                    return await function(*args, **options)

            return run_async  # type: ignore[return-value]  # a wrapper of the same signature

        @wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            with scope(choice):
                return function(*args, **options)

        return run  # type: ignore[return-value]  # a wrapper of the same signature


def _is_coroutine(function: Callable[..., Any]) -> bool:
    # inspect.iscoroutinefunction asks the same; importing inspect doubles the cost of our import.
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & _CO_COROUTINE)
