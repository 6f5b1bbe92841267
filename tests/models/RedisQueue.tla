----------------------------- MODULE RedisQueue -----------------------------
(* redis-queue:// for one key, as it is meant: who may hold the lock, with    *)
(* which fence, and what the resource makes of it.                            *)
(*                                                                            *)
(* The server takes a step for each request: it grants a free lock, lets the  *)
(* others queue, and passes the lock on by a message. A lease is two clocks:  *)
(* `trusts[s]`, that of the holder s, and the server's, which runs out only   *)
(* when the holder's has: validity < TTL. Messages arrive late or never. A    *)
(* process is frozen by taking no step.                                       *)
(*                                                                            *)
(* redis_queue.pml is the same protocol with what is left out here: requests  *)
(* that overtake each other, blocks of fences, hand-off within a process.     *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Sessions, Claims, Lapses, Losses,
          Bug   \* a defect that is put back; "none" for the protocol as it is

Nobody == "nobody"

VARIABLES
    \* the server
    lock,       \* the session that holds the lock, or Nobody
    counter,    \* the last fence given out
    queue,      \* who waits, in order of arrival
    \* on their way
    message,    \* for each session the fence of a grant that it was told of; 0: none
    \* the sessions
    phase,      \* "idle", "waiting" or "holding"
    trusts,     \* whether the holder may rely on its lease, by its own clock
    fence,      \* of its present grant
    claims,     \* how many it may still make
    \* the resource
    mark,       \* the highest fence that it has seen
    \* what happened
    begun,      \* the highest fence that any holder began with
    lapses, losses,
    rose, forward

vars == <<lock, counter, queue, message, phase, trusts, fence, claims, mark, begun,
          lapses, losses, rose, forward>>

Init ==
    /\ lock = Nobody
    /\ counter = 0
    /\ queue = <<>>
    /\ message = [s \in Sessions |-> 0]
    /\ phase = [s \in Sessions |-> "idle"]
    /\ trusts = [s \in Sessions |-> FALSE]
    /\ fence = [s \in Sessions |-> 0]
    /\ claims = [s \in Sessions |-> Claims]
    /\ mark = 0
    /\ begun = 0
    /\ lapses = Lapses
    /\ losses = Losses
    /\ rose = TRUE
    /\ forward = TRUE

Waits(s) == \E i \in 1..Len(queue) : queue[i] = s

NextFence == IF Bug = "CounterStandsStill" THEN 1 ELSE counter + 1

(* A holder begins: from here on it relies on its lease.                      *)
Begin(s, f) ==
    /\ phase' = [phase EXCEPT ![s] = "holding"]
    /\ trusts' = [trusts EXCEPT ![s] = TRUE]
    /\ fence' = [fence EXCEPT ![s] = f]
    /\ rose' = (rose /\ f > begun)
    /\ begun' = IF f > begun THEN f ELSE begun

(* queue_acquire.lua. Also asked again by whoever was told nothing: then the  *)
(* lock may be its own already, and it gets another fence and a whole lease.  *)
Acquire(s) ==
    /\ \/ phase[s] = "idle" /\ claims[s] > 0
       \/ phase[s] = "waiting" /\ ~Waits(s) /\ message[s] = 0
    /\ claims' = IF phase[s] = "idle" THEN [claims EXCEPT ![s] = @ - 1] ELSE claims
    /\ IF lock = s \/ (lock = Nobody /\ queue = <<>>)
       THEN /\ lock' = s
            /\ counter' = NextFence
            /\ Begin(s, NextFence)
            /\ UNCHANGED queue
       ELSE /\ phase' = [phase EXCEPT ![s] = "waiting"]
            /\ queue' = Append(queue, s)
            /\ UNCHANGED <<lock, counter, trusts, fence, rose, begun>>
    /\ UNCHANGED <<message, mark, lapses, losses, forward>>

(* grant_next(): the first in the queue has the lock, and is told so.         *)
PassOn ==
    IF queue = <<>>
    THEN /\ lock' = Nobody
         /\ UNCHANGED <<counter, queue, message>>
    ELSE /\ lock' = Head(queue)
         /\ counter' = NextFence
         /\ queue' = Tail(queue)
         /\ message' = [message EXCEPT ![Head(queue)] = NextFence]

(* queue_watch.lua: whoever waits looks whether the lock was let go without a *)
(* word, because its lease ran out.                                           *)
Look(s) ==
    /\ phase[s] = "waiting"
    /\ lock = Nobody
    /\ queue # <<>>
    /\ PassOn
    /\ UNCHANGED <<phase, trusts, fence, claims, mark, begun, lapses, losses, rose, forward>>

(* A message. One that was so long on its way that its lease may be over is   *)
(* not believed: whoever got it asks again.                                   *)
Hear(s) ==
    /\ message[s] # 0
    /\ message' = [message EXCEPT ![s] = 0]
    /\ IF phase[s] = "waiting" /\ ((lock = s /\ message[s] = counter) \/ Bug = "LateGrant")
       THEN Begin(s, message[s])
       ELSE UNCHANGED <<phase, trusts, fence, rose, begun>>
    /\ UNCHANGED <<lock, counter, queue, claims, mark, lapses, losses, forward>>

Lose(s) ==
    /\ message[s] # 0
    /\ losses > 0
    /\ losses' = losses - 1
    /\ message' = [message EXCEPT ![s] = 0]
    /\ UNCHANGED <<lock, counter, queue, phase, trusts, fence, claims, mark, begun, lapses, rose, forward>>

(* queue_release.lua: compare, then pass on.                                  *)
Release(s) ==
    /\ phase[s] = "holding"
    /\ phase' = [phase EXCEPT ![s] = "idle"]
    /\ trusts' = [trusts EXCEPT ![s] = FALSE]
    /\ IF lock = s \/ Bug = "ReleaseAny"
       THEN PassOn
       ELSE UNCHANGED <<lock, counter, queue, message>>
    /\ UNCHANGED <<fence, claims, mark, begun, lapses, losses, rose, forward>>

(* renew.lua says yes. It moves a deadline that has not passed; what has run  *)
(* out may have been others' since.                                           *)
Renew(s) ==
    /\ phase[s] = "holding"
    /\ lock = s \/ Bug = "RenewAny"
    /\ trusts' = [trusts EXCEPT ![s] = trusts[s] \/ Bug = "RenewAny"]
    /\ UNCHANGED <<lock, counter, queue, message, phase, fence, claims, mark, begun, lapses, losses, rose, forward>>

(* The holder's clock says that the lease is over; then, later, the server's. *)
(* One that nobody relies on yet runs out too, if it is long on its way.      *)
Lapse(s) ==
    /\ trusts[s]
    /\ lapses > 0
    /\ lapses' = lapses - 1
    /\ trusts' = [trusts EXCEPT ![s] = FALSE]
    /\ UNCHANGED <<lock, counter, queue, message, phase, fence, claims, mark, begun, losses, rose, forward>>

Expire ==
    /\ lock # Nobody
    /\ ~trusts[lock]
    /\ phase[lock] = "waiting" => lapses > 0
    /\ lapses' = IF phase[lock] = "waiting" THEN lapses - 1 ELSE lapses
    /\ lock' = Nobody
    /\ UNCHANGED <<counter, queue, message, phase, trusts, fence, claims, mark, begun, losses, rose, forward>>

(* The write of a holder, whether or not its lease still lives: it may have   *)
(* been frozen between its check and its write. The resource decides.         *)
Write(s) ==
    /\ phase[s] = "holding"
    /\ IF fence[s] >= mark \/ Bug = "NoGuard"
       THEN /\ mark' = fence[s]
            /\ forward' = (forward /\ fence[s] >= mark)
       ELSE UNCHANGED <<mark, forward>>
    /\ UNCHANGED <<lock, counter, queue, message, phase, trusts, fence, claims, begun, lapses, losses, rose>>

Next ==
    \/ Expire
    \/ \E s \in Sessions :
          Acquire(s) \/ Look(s) \/ Hear(s) \/ Lose(s) \/ Release(s) \/ Renew(s) \/ Lapse(s) \/ Write(s)

Spec == Init /\ [][Next]_vars

(* No two holders that may both rely on their lease.                          *)
OneHolder == Cardinality({s \in Sessions : phase[s] = "holding" /\ trusts[s]}) <= 1

(* Fences rise strictly, in the order in which holders begin.                 *)
FencesRise == rose

(* The resource never goes backwards.                                         *)
ResourceForward == forward

(* Whoever relies on its lease has it.                                        *)
Covered == \A s \in Sessions : phase[s] = "holding" /\ trusts[s] => lock = s
=============================================================================
