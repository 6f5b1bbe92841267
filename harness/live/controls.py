"""The controls of the live page: orders to a run under way, from whoever was given the token.

A page of another site cannot give orders: they need a header, which a browser sends to another origin only if
that allows it, and in it the token. It stands behind the # of the address that the harness prints, which no
browser sends anywhere.
"""

import hmac
import html
import secrets
from pathlib import Path
from typing import Any

from aiohttp import web

from harness.config import RunConfig
from harness.load.steering import NotNow, Steering, what_can_break

HEADER = "X-Harness-Token"
_SCRIPT = Path(__file__).with_name("controls.js")


class Controls:
    """Takes the orders of visitors to `steering`."""

    def __init__(self, config: RunConfig, steering: Steering) -> None:
        self._config = config
        self._steering = steering
        self.token = secrets.token_urlsafe(16)

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/steer", self._steer)

    async def _steer(self, request: web.Request) -> web.Response:
        if not hmac.compare_digest(request.headers.get(HEADER, "").encode(), self.token.encode()):
            return _refused(403, "open the page by the address that the harness has printed")
        try:
            self._follow(await request.json())
        except NotNow as refused:
            return _refused(409, str(refused))
        except (ValueError, TypeError, KeyError):
            return _refused(400, "this is not an order")
        return web.json_response({})

    def _follow(self, order: dict[str, Any]) -> None:
        """:raises NotNow, ValueError, TypeError, KeyError: it cannot be followed, or is none."""
        match order["order"]:
            case "rate":
                self._steering.change_rate(float(order["rate"]))
            case "fault":
                seconds = order.get("seconds")
                self._steering.strike(str(order["fault"]), None if seconds is None else float(seconds))
            case "end":
                self._steering.end()
            case other:
                raise ValueError(other)

    def document(self) -> str:
        """What they look like."""
        faults = "".join(
            f'<option value="{fault}">{fault.replace(":", " the ", 1)}</option>'
            for fault in map(html.escape, what_can_break(self._config))
        )
        return _CONTROLS.format(
            rate=f"{self._config.steps[0][0]:.10g}", faults=faults, script=_SCRIPT.read_text()
        )


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)


_CONTROLS = """<form id="controls" class="controls" data-rate="{rate}" hidden>
<fieldset><legend>Arrivals</legend>
<label>a second <input id="rate" type="number" min="0" max="1000000" step="any" value="{rate}"></label>
<button type="submit" id="change">Change</button>
<button type="button" id="stop">Stop</button>
<button type="button" id="start" hidden>Start</button></fieldset>
<fieldset><legend>Break</legend>
<select id="fault" aria-label="what to break">{faults}</select>
<label>for <input id="seconds" type="number" min="0.1" step="any" value="2"> s</label>
<button type="button" id="break">Break</button></fieldset>
<fieldset><legend>Run</legend><button type="button" id="end">End it</button></fieldset>
</form><p id="refusal" class="bad" role="alert"></p><ol id="orders" class="dim"></ol>
<script>
{script}</script>"""
