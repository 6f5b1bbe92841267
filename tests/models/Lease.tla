-------------------------------- MODULE Lease --------------------------------
(* The lease of one holder, its renewals, and the dead man's switch of hold().*)
(*                                                                            *)
(* Time is counted in ticks. The server ends a lease Ttl ticks after it was   *)
(* granted or last renewed. The holder trusts it for Valid ticks, counted     *)
(* from before the request was sent. Requests and replies take any time, or   *)
(* are lost; the holder's process may be frozen at any time.                  *)
EXTENDS Naturals

CONSTANTS Ttl, Valid, Horizon, Bug

VARIABLES
    now,
    leaseEnd,   \* by the server
    deadline,   \* by the holder
    renewal,    \* "none", "sent", "confirmed", "refused" or "silent"
    sent,       \* when
    body,       \* whether the body of hold() runs
    frozen,
    thawed      \* when it was frozen last

vars == <<now, leaseEnd, deadline, renewal, sent, body, frozen, thawed>>

Init ==
    /\ now = 0
    /\ leaseEnd = Ttl
    /\ deadline = Valid
    /\ renewal = "none"
    /\ sent = 0
    /\ body = TRUE
    /\ frozen = FALSE
    /\ thawed = 0

(* A loop that is not frozen serves its timers: time does not pass a deadline *)
(* whose switch has not fired.                                                *)
Tick ==
    /\ now < Horizon
    /\ frozen \/ ~body \/ now < deadline \/ Bug = "NoSwitch"
    /\ now' = now + 1
    /\ UNCHANGED <<leaseEnd, deadline, renewal, sent, body, frozen, thawed>>

Freeze ==
    /\ frozen' = ~frozen
    /\ thawed' = IF frozen THEN now ELSE thawed
    /\ UNCHANGED <<now, leaseEnd, deadline, renewal, sent, body>>

Send ==
    /\ ~frozen /\ body /\ renewal = "none" /\ now < deadline
    /\ renewal' = "sent"
    /\ sent' = now
    /\ UNCHANGED <<now, leaseEnd, deadline, body, frozen, thawed>>

(* renew.lua: extend what is still owned; never bring back what is not.       *)
Serve ==
    /\ renewal = "sent"
    /\ IF now < leaseEnd
       THEN leaseEnd' = now + Ttl /\ renewal' = "confirmed"
       ELSE UNCHANGED leaseEnd /\ renewal' = "refused"
    /\ UNCHANGED <<now, deadline, sent, body, frozen, thawed>>

Lose ==
    /\ renewal \in {"sent", "confirmed"}
    /\ renewal' = "silent"
    /\ UNCHANGED <<now, leaseEnd, deadline, sent, body, frozen, thawed>>

(* Only a yes moves the deadline, and only to the time noted before sending   *)
(* plus what may be relied on.                                                *)
Moved ==
    IF Bug = "FromReply" THEN now + Valid ELSE sent + Valid

Hear ==
    /\ ~frozen /\ renewal \in {"confirmed", "refused", "silent"}
    /\ renewal' = "none"
    /\ IF renewal = "confirmed" \/ (renewal = "silent" /\ Bug = "SilenceRenews")
       THEN /\ deadline' = IF body /\ now < deadline THEN Moved ELSE deadline
            /\ body' = (body /\ now < deadline)
       ELSE /\ body' = (body /\ renewal = "silent")
            /\ UNCHANGED deadline
    /\ UNCHANGED <<now, leaseEnd, sent, frozen, thawed>>

Switch ==
    /\ ~frozen /\ body /\ now >= deadline /\ Bug # "NoSwitch"
    /\ body' = FALSE
    /\ UNCHANGED <<now, leaseEnd, deadline, renewal, sent, frozen, thawed>>

Next == Tick \/ Freeze \/ Send \/ Serve \/ Lose \/ Hear \/ Switch

Spec == Init /\ [][Next]_vars

(* A lease that the holder trusts is alive on the server.                     *)
Covered == body /\ now < deadline => now < leaseEnd

(* No body runs past its deadline unless its process is frozen, or was until  *)
(* a moment ago: then the switch fires before anything else can take time.    *)
EndedInTime == body /\ now > deadline => frozen \/ now = thawed
=============================================================================
