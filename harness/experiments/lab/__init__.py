"""What experiments are made of: servers, worker processes, scripted clients, and the files they leave.

lab.py            Lab: servers and resources that are started once, cases that run at the same time
scene.py          Scene: one case under way; becomes history, resource log, picture and verdict
track.py          Track: what one participant did, as events; becomes rows of a history
worker.py         a real worker process, its start line and its events
actor.py          a client in this process that is told each step
resource_view.py  the fenced resource, seen from outside
story.py          the events of a case as lines for a reader
picture.py        the events of a case as a timeline
"""

from harness.experiments.lab.actor import Actor
from harness.experiments.lab.lab import BACKENDS, Lab, LockServer, Plan
from harness.experiments.lab.reach import Reach, open_reach
from harness.experiments.lab.scene import Scene
from harness.experiments.lab.track import Track
from harness.experiments.lab.worker import WorkerProcess, spawn_worker

__all__ = [
    "BACKENDS",
    "Actor",
    "Lab",
    "LockServer",
    "Plan",
    "Reach",
    "Scene",
    "Track",
    "WorkerProcess",
    "open_reach",
    "spawn_worker",
]
