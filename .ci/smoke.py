"""`smoke.py EXTRA,EXTRA…`: what these extras are for works, in an environment that has nothing else."""

import asyncio
import importlib
import subprocess
import sys

import asyncdlock

MODULES = {
    "etcd": ("asyncdlock.backends.etcd", "asyncdlock.fencing.etcd"),
    "zookeeper": ("asyncdlock.backends.zookeeper",),
    "postgres": ("asyncdlock.backends.postgres", "asyncdlock.fencing.postgres"),
    "s3": ("asyncdlock.fencing.s3",),
    "tracing": ("asyncdlock.tracing",),
    "fleet": ("distributed",),
    "trace": ("perfetto",),
}


async def take_locks() -> None:
    """One on each server that wheels bring; memory needs none."""
    from harness.servers.catalogue import INSTALLATIONS

    for name in ("memory", "redis", "redis-queue", "redlock", "etcd", "postgres"):
        async with INSTALLATIONS[name].start() as server, asyncdlock.connect(server.url) as locks:
            async with locks.hold("smoke", timeout=30.0) as handle:
                assert handle.fence > 0, name


def main() -> None:
    """Raises whatever does not work."""
    extras = set(filter(None, sys.argv[1].split(",")))
    for extra in extras & set(MODULES):
        for module in MODULES[extra]:
            importlib.import_module(module)
    if "clock" in extras and "harness" in extras:
        from harness.faults.clock import find_library

        find_library()
    harness = [sys.executable, "-m", "harness", "--contenders", "20", "--rate", "50", "--duration", "1s"]
    done = subprocess.run(harness, capture_output=True, text=True, check=False)
    if "harness" in extras:
        # How punctual the generator is on this machine (exit code 3) is not the question here.
        assert done.returncode in (0, 3), done.stdout + done.stderr
        asyncio.run(take_locks())
    else:
        assert done.returncode == 2, done
        assert "pip install 'asyncdlock[harness]'" in done.stderr, done.stderr


if __name__ == "__main__":
    main()
