"""@locked("account:{account_id}"): a function that runs under a lock named after its arguments."""

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Iterator
from string import Formatter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

P = ParamSpec("P")
R = TypeVar("R")

HANDLE = "handle"
"""The parameter in which a function gets the handle of its lock."""


class KeyTemplate:
    """The name of a lock, with the parameters of a function in braces."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        """:raises ValueError: the template names something that is not a parameter, or cannot be read."""
        self._template = template
        signature = inspect.signature(function)
        parameters = dict(signature.parameters)
        handle = parameters.pop(HANDLE, None)
        if handle is not None and handle.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise ValueError(
                f"{function.__qualname__}: {HANDLE!r} is filled by the lock: make it keyword-only"
            )
        self.wants_handle: bool = handle is not None
        self._signature = signature.replace(parameters=list(parameters.values()))
        for name in _names_in(template):
            if name not in parameters:
                raise ValueError(
                    f"the key {template!r} names {name!r}, which is no parameter of {function.__qualname__}: "
                    f"it takes {', '.join(parameters) or 'none'}"
                )

    def key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """The key for one call.

        :raises TypeError: the call does not fit the function, or passes the handle itself.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._template.format_map(bound.arguments)


def _names_in(template: str) -> Iterator[str]:
    """The parameters that `{account_id}`, `{account.id}` or `{day:%F}` stand for.

    :raises ValueError: it cannot be read.
    """
    try:
        fields = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"the key {template!r} cannot be read: {error}") from None
    for _, field, spec, _ in fields:
        if field is not None:
            yield re.split(r"[.\[]", field)[0]
        if spec:
            yield from _names_in(spec)


def locked(
    client: "LockClient", template: str, *, ttl: float, timeout: float | None, max_hold: float | None
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """What `LockClient.locked` returns."""

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() is for functions made with `async def`, not for {function!r}")
        keys = KeyTemplate(template, function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            key = keys.key(args, kwargs)
            async with client.hold(key, ttl=ttl, timeout=timeout, max_hold=max_hold) as handle:
                if keys.wants_handle:
                    kwargs[HANDLE] = handle
                return await function(*args, **kwargs)

        return under_lock

    return decorate
