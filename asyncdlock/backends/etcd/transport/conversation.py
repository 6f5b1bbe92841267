"""What both transports offer beyond a call with one answer, and how they report a failed call."""

from collections.abc import Callable
from typing import Any, Protocol

Metadata = tuple[tuple[str, str], ...]
Received = Callable[[Any], None]


class RpcFailed(Exception):
    """A call has failed: gRPC's status, and whether the request certainly had no effect."""

    def __init__(self, code: Any, details: str, *, unsent: bool = False) -> None:
        super().__init__(details)
        self.code = code
        """A `grpc.StatusCode`."""
        self.details = details
        self.unsent = unsent
        """The server cannot have acted on it: it was not sent, not all of it, or turned away unread."""

    def again(self) -> "RpcFailed":
        """The same for another caller: a shared one would collect everybody's traceback."""
        return RpcFailed(self.code, self.details, unsent=self.unsent)


class Conversation(Protocol):
    """A stream in both directions."""

    def say(self, message: Any) -> None:
        """Send `message`, after those before it; never waits."""

    async def ended(self) -> None:
        """Wait until the server or `cancel` ends it. What arrives meanwhile is told to who opened it.

        :raises RpcFailed: it broke.
        """

    def cancel(self) -> None:
        """End it."""
