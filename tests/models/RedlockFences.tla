---------------------------- MODULE RedlockFences ----------------------------
(* Redlock's fence: each node counts for itself; a round that a majority has  *)
(* granted takes the highest answer, and writes it back to a majority before  *)
(* it returns. Any nodes answer, any take the write. Two majorities share a   *)
(* node, and so the next round finds what this one wrote.                     *)
EXTENDS Naturals, FiniteSets

CONSTANTS Nodes, Rounds, Bug

VARIABLES counter, rounds, last, rose

vars == <<counter, rounds, last, rose>>

Majorities == {some \in SUBSET Nodes : 2 * Cardinality(some) > Cardinality(Nodes)}

Init ==
    /\ counter = [n \in Nodes |-> 0]
    /\ rounds = Rounds
    /\ last = 0
    /\ rose = TRUE

Highest(some) == CHOOSE f \in {counter[n] + 1 : n \in some} : \A n \in some : counter[n] + 1 <= f

(* acquire.lua on the nodes that answer, raise_fence.lua on those that take   *)
(* the write. With two nodes of one answer the node's number decides, which   *)
(* is left out here: the fence is the highest answer.                         *)
Round(answer, take) ==
    LET fence == Highest(answer)
        asked == [n \in Nodes |-> IF n \in answer THEN counter[n] + 1 ELSE counter[n]]
    IN  /\ rounds > 0
        /\ rounds' = rounds - 1
        /\ counter' = IF Bug = "NoWriteBack" THEN asked
                      ELSE [n \in Nodes |-> IF n \in take /\ asked[n] < fence THEN fence ELSE asked[n]]
        /\ rose' = (rose /\ fence > last)
        /\ last' = fence

(* A minority answers: nothing is granted, and the counters have moved.       *)
Failed(answer) ==
    /\ rounds > 0
    /\ rounds' = rounds - 1
    /\ counter' = [n \in Nodes |-> IF n \in answer THEN counter[n] + 1 ELSE counter[n]]
    /\ UNCHANGED <<last, rose>>

Next ==
    \/ \E answer \in Majorities, take \in Majorities : Round(answer, take)
    \/ \E answer \in SUBSET Nodes : answer \notin Majorities /\ Failed(answer)

Spec == Init /\ [][Next]_vars

(* Fences rise strictly from grant to grant.                                  *)
FencesRise == rose
=============================================================================
