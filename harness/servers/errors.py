"""What can go wrong with a server, as one readable sentence each."""


class ServerError(Exception):
    """Root of what `harness.servers` raises on purpose."""


class ServerMissing(ServerError):
    """No binary of that server was found; the message says how to get one."""


class ServerFailed(ServerError):
    """The server ended, or was not ready in time; the message carries the end of its log."""


class PortTaken(ServerFailed):
    """Another process took the port between choosing it and starting the server."""
