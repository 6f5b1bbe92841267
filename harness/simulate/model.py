"""The discrete-event model: arrivals, hosts, one server with one thread, keys and who waits for them.

Time is simulated, randomness is seeded: the same settings give the same outcome on every machine. A host's
own processor is not modelled; what it costs is in the measured parameters.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from harness.load.pacer import NANOSECONDS, offsets
from harness.simulate.parameters import Discipline, Parameters

_FIRST_POLL, _LONGEST_POLL = 0.002, 0.25
"""As `asyncdlock.backends.redis.spin`: a delay is between half of and a whole step, which doubles."""

_ARRIVE, _REQUEST, _GRANT, _DONE, _RELEASE, _EXPIRE = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is simulated. Durations are seconds."""

    hosts: int = 1
    contenders: int | None = None
    """At most this many wait or hold at once, over all hosts; `None`: everybody who arrives."""
    rate: float = 500.0
    duration: float = 1.0
    keys: int = 1
    arrivals: str = "constant"
    timeout: float | None = None
    rtt: float = 0.0
    """Of the network, beyond what the parameters were measured with."""
    discipline: Discipline = "queue"
    block: int = 64
    """Local hand-offs in a row, before another host has its turn."""
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the model did."""

    offered: int
    acquired: int
    gave_up: int
    throughput: float
    """Grants a second while arrivals came."""
    waits: list[float] = field(repr=False)
    """From arrival to grant, sorted."""
    server: float
    """Share of the time for which the server's thread was busy."""
    requests: int
    queue: int
    """The most that waited at once."""

    def wait(self, percent: float) -> float:
        """A percentile of the waits of those who were granted."""
        if not self.waits:
            return 0.0
        return self.waits[min(int(len(self.waits) * percent / 100), len(self.waits) - 1)]


@dataclass(slots=True)
class _Arrival:
    due: float
    key: int
    host: int
    step: float = _FIRST_POLL
    begun: bool = False
    """A contender took it."""
    over: bool = False
    """Granted, or out of patience."""


@dataclass(slots=True)
class _Place:
    """In the server's queue for a key: of one arrival, or of all of a host's."""

    key: int
    head: _Arrival
    waiting: deque[_Arrival] = field(default_factory=deque)
    passed: int = 0


@dataclass(slots=True)
class _Lock:
    held: bool = False
    queue: deque[_Place] = field(default_factory=deque)


def simulate(settings: Settings, parameters: Parameters) -> Simulated:
    """Run the model until every arrival has been served or has given up."""
    model = _Model(settings, parameters)
    model.run()
    end = settings.duration
    return Simulated(
        offered=model.offered,
        acquired=len(model.waits),
        gave_up=model.gave_up,
        throughput=model.in_time / end,
        waits=sorted(model.waits),
        server=min(model.requests * parameters.service / max(model.now, end), 1.0),
        requests=model.requests,
        queue=model.most,
    )


class _Model:
    def __init__(self, settings: Settings, parameters: Parameters) -> None:
        self._settings = settings
        self._costs = parameters
        self._rng = rng = random.Random(f"simulate {settings.seed}")
        self._hold, self._exchange = parameters.hold.stream(rng), parameters.exchange.stream(rng)
        self._handoff, self._local = parameters.handoff.stream(rng), parameters.local.stream(rng)
        self._events: list[tuple[float, int, int, _Arrival | _Place]] = []
        self._order = count()
        self._schedule = self._arrivals()
        self._locks: dict[int, _Lock] = {}
        self._places: dict[tuple[int, int], _Place] = {}
        self._backlog: deque[_Arrival] = deque()
        self._contenders = settings.contenders or math.inf
        self._busy = 0
        self._waiting = 0
        self._server_free = 0.0
        self.now = 0.0
        self.offered = self.gave_up = self.in_time = self.requests = self.most = 0
        self.waits: list[float] = []

    def _arrivals(self) -> Iterator[_Arrival]:
        settings = self._settings
        rng = random.Random(f"arrivals {settings.seed}")
        due = offsets(settings.rate, settings.duration, arrivals=settings.arrivals, seed=settings.seed)
        for offset in due:
            yield _Arrival(offset / NANOSECONDS, rng.randrange(settings.keys), rng.randrange(settings.hosts))

    def run(self) -> None:
        handlers = {
            _ARRIVE: self._arrive,
            _REQUEST: self._request,
            _GRANT: self._grant,
            _DONE: self._done,
            _RELEASE: self._release,
            _EXPIRE: self._expire,
        }
        self._next_arrival()
        while self._events:
            self.now, _, kind, subject = heapq.heappop(self._events)
            handlers[kind](subject)  # type: ignore[operator]

    def _at(self, time: float, kind: int, subject: _Arrival | _Place) -> None:
        heapq.heappush(self._events, (time, next(self._order), kind, subject))

    def _next_arrival(self) -> None:
        arrival = next(self._schedule, None)
        if arrival is not None:
            self._at(arrival.due, _ARRIVE, arrival)

    # The clients

    def _arrive(self, arrival: _Arrival) -> None:
        self._next_arrival()
        self.offered += 1
        self._waiting += 1
        self.most = max(self.most, self._waiting)
        if self._settings.timeout is not None:
            self._at(arrival.due + self._settings.timeout, _EXPIRE, arrival)
        if self._busy < self._contenders:
            self._begin(arrival)
        else:
            self._backlog.append(arrival)

    def _begin(self, arrival: _Arrival) -> None:
        self._busy += 1
        arrival.begun = True
        where = (arrival.key, arrival.host)
        if self._settings.discipline == "local":
            if where in self._places:
                self._places[where].waiting.append(arrival)
                return
            self._places[where] = place = _Place(arrival.key, arrival)
        else:
            place = _Place(arrival.key, arrival)
        self._at(self.now + self._settings.rtt / 2, _REQUEST, place)

    def _expire(self, arrival: _Arrival) -> None:
        if arrival.over:
            return
        arrival.over = True
        self.gave_up += 1
        self._waiting -= 1
        if arrival.begun:  # else it is left out of the backlog when its turn comes
            self._leave()

    def _leave(self) -> None:
        """A contender is free: the first of the backlog that has patience left takes it."""
        self._busy -= 1
        while self._backlog:
            following = self._backlog.popleft()
            if not following.over:
                self._begin(following)
                return

    def _grant(self, place: _Place) -> None:
        arrival = place.head
        if arrival.over:  # it gave up while the grant was on its way
            self._pass_on(place)
            return
        arrival.over = True
        self._waiting -= 1
        self.waits.append(self.now - arrival.due)
        self.in_time += self.now <= self._settings.duration
        self._at(self.now + self._hold(), _DONE, place)

    def _done(self, place: _Place) -> None:
        self._pass_on(place)
        self._leave()

    def _pass_on(self, place: _Place) -> None:
        while place.waiting and place.waiting[0].over:
            place.waiting.popleft()
        if place.waiting and place.passed < self._settings.block:
            place.passed += 1
            place.head = place.waiting.popleft()
            self._at(self.now + self._local(), _GRANT, place)
        else:
            self._at(self.now + self._settings.rtt / 2, _RELEASE, place)

    # The server

    def _serve(self) -> float:
        """When its thread takes this request up."""
        self.requests += 1
        begun = max(self.now, self._server_free)
        self._server_free = begun + self._costs.service
        return begun

    def _request(self, place: _Place) -> None:
        if place.head.over and not place.waiting:
            self._places.pop((place.key, place.head.host), None)
            return
        begun = self._serve()
        lock = self._locks.setdefault(place.key, _Lock())
        answered = begun + self._settings.rtt / 2 + self._exchange()
        if not lock.held:
            lock.held = True
            self._at(answered, _GRANT, place)
        elif self._settings.discipline == "poll":
            step = place.head.step
            place.head.step = min(2 * step, _LONGEST_POLL)
            again = answered + self._rng.uniform(step / 2, step)
            self._at(again + self._settings.rtt / 2, _REQUEST, place)
        else:
            lock.queue.append(place)

    def _release(self, place: _Place) -> None:
        begun = self._serve()
        lock = self._locks[place.key]
        while place.waiting and place.waiting[0].over:
            place.waiting.popleft()
        if place.waiting:  # the others of its host wait behind everybody else
            place.head, place.passed = place.waiting.popleft(), 0
            lock.queue.append(place)
        elif self._settings.discipline == "local":
            self._places.pop((place.key, place.head.host), None)
        lock.held = False
        while lock.queue:
            following = lock.queue.popleft()
            if following.head.over and not following.waiting:
                self._places.pop((following.key, following.head.host), None)
                continue
            lock.held = True
            told = begun + self._settings.rtt / 2 + self._handoff()
            self._at(told, _GRANT, following)
            return
