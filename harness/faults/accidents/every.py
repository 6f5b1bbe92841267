"""Accidents with tools of our own."""

import asyncdlock
from harness.faults.accidents.accident import Accident, Site


async def _force_release(site: Site) -> None:
    async with asyncdlock.connect(site.url) as client:
        await client.force_release(site.key)


ALL = (Accident("forced release", _force_release, frees="one"),)
