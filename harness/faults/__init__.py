"""Breaks things on purpose, for an exact time, and writes down when: one file per fault.

| fault | file | what it does |
|---|---|---|
| one coroutine stands still | `coroutine.py` | the rest of its process, renewal included, goes on |
| the event loop stands still | `event_loop.py` | nothing of the process runs: a garbage collector's pause |
| a client process stands still | `process.py` | SIGSTOP and SIGCONT: a host that is frozen or migrated |
| a server stands still | `server_freeze.py` | the same for a lock server: connections stay, nobody answers |
| a server dies | `server_crash.py` | kill -9, later started again with or without its data |
| a partition or delay | `partition.py` | per link and direction; `tcp_link.py` is the proxy in between |
| a wrong clock | `clock.py` | jumps and rates per server, by libfaketime |
| a full disk | `full_disk.py` | nothing that the server writes to a file is taken |
| a failover | `failover.py` | the leader dies, another takes its place, and the dead one comes back |
| a failover that forgets | `promotion.py` | the replica is promoted without what it has not received |

`plan.py` reads and draws what is to break in a run of the main command, `nemesis.py` carries it out;
`reach.py` gives a client links of its own to every node.

Every fault takes the `FaultJournal` of its run, which receives a `Fault` line with start and end on the
monotonic clock. Most are `async with` blocks: the fault lasts as long as the body.
"""

from harness.faults.clock import FakeClock, clock_jump, clock_rate
from harness.faults.coroutine import Freezable, frozen_coroutine
from harness.faults.event_loop import stall_event_loop
from harness.faults.failover import killed_leader, promoted_replica
from harness.faults.full_disk import full_disk
from harness.faults.journal import FaultJournal
from harness.faults.partition import delay, partition
from harness.faults.process import frozen_process, kill_process
from harness.faults.promotion import promote_behind
from harness.faults.server_crash import crashed_server
from harness.faults.server_freeze import frozen_server
from harness.faults.tcp_link import Link, Way, open_link

__all__ = [
    "FakeClock",
    "FaultJournal",
    "Freezable",
    "Link",
    "Way",
    "clock_jump",
    "clock_rate",
    "crashed_server",
    "delay",
    "frozen_coroutine",
    "frozen_process",
    "frozen_server",
    "full_disk",
    "kill_process",
    "killed_leader",
    "open_link",
    "partition",
    "promote_behind",
    "promoted_replica",
    "stall_event_loop",
]
