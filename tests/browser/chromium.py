"""A headless Chromium, driven over its own debugging protocol: load a page, look, click, take a picture."""

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_WITHIN = 60.0


def find_chromium() -> str:
    """The browser's path; without one the test is skipped, or fails where servers are required."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    reason = "no Chromium on PATH: install it with the system's package manager (Debian: chromium)"
    if os.environ.get("ASYNCDLOCK_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        """What the page's scripts raised."""
        self.requests: list[str] = []
        """Every address that the page asked for."""

    async def listen(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            elif told["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif told["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(told["params"]["exceptionDetails"]))
            elif told["method"] == "Network.requestWillBeSent":
                self.requests.append(told["params"]["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        reply = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_WITHIN):
            told = await reply
        assert "error" not in told, told["error"]
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, url: str) -> None:
        """Load, and return when everything is there."""
        for domain in ("Page", "Runtime", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(_WITHIN):
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def wheel(self, x: float, y: float, delta: float) -> None:
        await self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)

    async def screenshot(self, path: Path) -> bytes:
        """The whole page as PNG."""
        picture = base64.b64decode(
            (await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True))["data"]
        )
        path.write_bytes(picture)
        return picture


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A browser with one empty page, for the length of the block."""
    profile = folder / "profile"
    process = await asyncio.create_subprocess_exec(
        find_chromium(),
        *_FLAGS,
        f"--user-data-dir={profile}",
        "--window-size=1100,1400",
        "about:blank",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = await _port(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
                pages = [tab for tab in await reply.json() if tab["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                try:
                    yield page
                finally:
                    listening.cancel()
                    await asyncio.wait((listening,))
        await asyncio.sleep(0)
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(_WITHIN):
        while True:
            with contextlib.suppress(FileNotFoundError):
                if lines := file.read_text().splitlines():
                    return lines[0]
            assert process.returncode is None, "Chromium ended before it could be used"
            await asyncio.sleep(0.05)
