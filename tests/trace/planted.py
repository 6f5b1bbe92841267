"""Scripts of the queue with a bug."""

import hashlib
from typing import Any
from unittest import mock

from asyncdlock.backends.redis.fence_counter import fence_counter
from asyncdlock.backends.redis.queue_server import QueueScripts
from asyncdlock.backends.redis.scripts import Script, words

SCRIPTS = QueueScripts.of(fence_counter())


def planted(name: str, old: str, new: str) -> Any:
    """Clients that are made while this is patched run the script with another text."""
    script: Script = getattr(SCRIPTS, name)
    assert script.source.count(old) == 1, script.source
    source = script.source.replace(old, new)
    other = Script("release.lua", once=script.once)
    digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    other.source, other._name = source, digest
    other._by_name, other._in_full = words("EVALSHA", digest), words("EVAL", source)
    return mock.patch.object(QueueScripts, "of", return_value=SCRIPTS._replace(**{name: other}))
