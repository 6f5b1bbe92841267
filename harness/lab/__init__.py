"""What experiments share: servers, participants, one case under way, its verdict, and the files they leave.

lab.py            Lab: servers and resources that are started once, cases that run at the same time
scene.py          Scene: one case under way; becomes history, resource log, picture and verdict
participant.py    real processes, forked from forkserver.py; what they say is an event.py
actor.py          takes a lock step by step and says so: what participants are made of
worker.py         the role of most participants, and `python -m harness worker`
track.py          what one participant did, as events; becomes rows of a history
verdict.py        the one place that writes a history and judges it
resource_view.py  the fenced resource, seen from outside; shared_set.py keeps a set in it
guarded_store.py  a Postgres row and an S3 object behind the library's guards, and a worker that writes there
story.py          the events of a case as lines for a reader; picture.py as a timeline
"""

from harness.faults.reach import Reach, open_reach
from harness.lab.actor import Actor
from harness.lab.lab import FENCES, Lab, Plan
from harness.lab.scene import Scene
from harness.lab.track import Track

__all__ = ["FENCES", "Actor", "Lab", "Plan", "Reach", "Scene", "Track", "open_reach"]
