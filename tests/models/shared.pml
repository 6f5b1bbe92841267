/* redis-queue://, a lock that readers hold beside each other and writers alone, for one key.
 *
 * The server's steps are the scripts, each atomic as Redis runs it: queue_acquire.lua, queue_acquire_shared.lua,
 * queue_watch.lua, queue_release.lua, renew.lua, renew_shared.lua and queue_force_release.lua, with queue_common.lua,
 * queue_shared.lua (let_in, let_in_all, begin, serve) and shared.lua (the leases). Each client is a process of its own
 * with one claim at a time: client c is a writer if c < WRITERS. A reply comes with its request or is lost; a message
 * is on its way for a while. How requests get lost and overtake each other is in redis_queue.pml.
 *
 * Time is not counted: a lease runs out on the server (`alive`) only when its holder relies on it no longer (`valid`).
 *
 * Invariants: writer_alone; readers_together: no reader that is next is kept waiting by readers; fences_ordered: a
 * writer's fence is above every fence that began before it, a reader's above those of the writers before it; unbroken:
 * no writer came between the begin of a hold and a renewal that was confirmed; resource_forward. With -DLIVE also
 * <> writer_served, beside readers that come again for ever. -DTWO_READERS shows that two readers do hold it at once (readers_apart fails).
 * A client that an administrator threw out (force_release, DEL of the lock) is not told: only its fence keeps it out.
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef READERS
#define READERS 2
#endif
#define CLIENTS (WRITERS + READERS)
#ifndef ROUNDS
#define ROUNDS 2   /* sections of each client */
#endif
#ifndef LAPSES
#define LAPSES 1   /* leases that run out while they are relied on or on their way, and silences */
#endif
#ifndef CUTS
#define CUTS 1     /* replies or messages lost */
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef FORCED
#define FORCED 0   /* force_release */
#endif
#ifndef DELETED
#define DELETED 0  /* DEL of the lock by an administrator: what the holders left stays */
#endif

#define NOBODY 255
#define SHARED 254
#define writes(c) ((c) < WRITERS)

mtype = { ACQUIRE, WATCH, RELEASE };
mtype = { IDLE, ASKING, WAITING, HOLDING, DEAD };

/* The server */
byte lock = NOBODY;
byte counter;
bool member[CLIENTS];              /* in the set of holders, lapsed or not */
bool alive[CLIENTS];               /* its lease runs */
bool spoke[CLIENTS];
chan queue = [CLIENTS] of { byte };
chan message[CLIENTS] = [1] of { byte };

/* The clients, their clocks, and what the invariants look at */
mtype phase[CLIENTS] = IDLE;
bool valid[CLIENTS], thrown_out[CLIENTS], begun[CLIENTS];
byte last_grant[CLIENTS], fence[CLIENTS], todo[CLIENTS] = ROUNDS;
byte lapses, cuts, deaths, forced, deleted;
byte mark, highest, highest_writer;
bool writer_served, readers_apart = true;
bool writer_alone = true, readers_together = true, fences_ordered = true, unbroken = true, resource_forward = true;

byte n_, q_, leases_, waits_; bool to_me_, granted_, told_, serves_, all_;   /* the scripts' own variables; waits_: its place, 0 for none */

inline clear_holders() { n_ = 0; do :: n_ < CLIENTS -> member[n_] = false; n_++ :: else -> break od; n_ = 0 }

/* leases.count(): those that have ended are forgotten */
inline count() {
    n_ = 0; leases_ = 0;
    do
    :: n_ < CLIENTS -> member[n_] = member[n_] && alive[n_]; leases_ = leases_ + member[n_]; n_++
    :: else -> break
    od;
    n_ = 0
}

inline grant(c) {
#ifndef LIVE
#ifdef BUG_READERS_WITHOUT_FENCE
    if :: writes(c) -> counter++ :: else -> skip fi;
#else
    counter++;
#endif
#endif
    last_grant[c] = counter; alive[c] = true; thrown_out[c] = false;
    if
    :: writes(c) -> lock = c
    :: !writes(c) ->
#ifndef BUG_OLD_HOLDERS
        if :: lock != SHARED -> clear_holders() :: else -> skip fi;
#endif
        lock = SHARED; member[c] = true
    fi
}

/* leases.drop() */
inline drop(c) {
    member[c] = false; alive[c] = false;
    count();
#ifdef BUG_LAST_AND_FIRST
    lock = NOBODY
#else
    if :: leases_ == 0 -> lock = NOBODY :: else -> skip fi
#endif
}

/* Grant to a waiter that has left the queue, for a request of client r: granted_, or it is not alive */
inline let_in(w, me) {
    told_ = false;
    if
    :: w == me -> grant(w); to_me_ = true; granted_ = true; told_ = true
    :: w != me && spoke[w] ->
        grant(w);
        if
        :: phase[w] != DEAD && len(message[w]) == 0 -> message[w] ! last_grant[w]; granted_ = true; told_ = true
        :: else -> if :: writes(w) -> lock = NOBODY; alive[w] = false :: else -> drop(w) fi   /* PUBLISH reached nobody */
        fi
    :: else -> skip
    fi
}

/* grant_next() of queue_common.lua; from the first reader on, or if it is all_ already, let_in_all() */
inline serve_queue(me) {
    do
    :: len(queue) > 0 ->
        queue ? <q_>;
        if
        :: !all_ || !writes(q_) -> queue ? q_; let_in(q_, me); all_ = all_ || (told_ && !writes(q_))
        :: else ->
            if
            :: q_ == me || spoke[q_] -> break
            :: else -> queue ? q_                             /* one that is not alive keeps nobody out */
            fi
        fi;
        if :: granted_ && !all_ -> break :: else -> skip fi
    :: len(queue) == 0 -> break
    od;
    q_ = 0; all_ = false
}

/* What nobody in the queue may be left in by a script: next, a reader, alive, and kept out by readers. */
inline end_script() {
    if
    :: len(queue) > 0 && lock == SHARED ->
        queue ? <q_>;
        readers_together = writes(q_) || !spoke[q_]; assert(readers_together)
    :: else -> skip
    fi;
    q_ = 0; told_ = false; granted_ = false; to_me_ = false; serves_ = false; leases_ = 0
}

inline join(c) {
    waits_ = queue ?? [eval(c)];
    if :: !waits_ -> queue ! c :: waits_ fi;
    waits_ = 0; spoke[c] = true
}

/* A holder begins; thrown out or not, the fences tell the order. */
inline begins(c) {
    phase[c] = HOLDING; valid[c] = true; begun[c] = false; fence[c] = last_grant[c];
    if :: writes(c) -> writer_served = true :: else -> skip fi;
#ifndef LIVE
    fences_ordered = thrown_out[c] || fence[c] > (writes(c) -> highest : highest_writer); assert(fences_ordered);
    if :: writes(c) -> highest_writer = fence[c] :: else -> skip fi;
    if :: fence[c] > highest -> highest = fence[c] :: else -> skip fi;
#endif
    n_ = 0;
    do
    :: n_ < CLIENTS ->
        writer_alone = n_ == c || !valid[n_] || thrown_out[n_] || thrown_out[c] || (!writes(n_) && !writes(c)); assert(writer_alone);
#ifdef TWO_READERS
        readers_apart = n_ == c || !valid[n_] || thrown_out[n_] || thrown_out[c]; assert(readers_apart);
#endif
        n_++
    :: else -> break
    od;
    n_ = 0
}

#define owns(c) ((lock == c || (lock == SHARED && member[c])) && alive[c])

active proctype World() {
    byte c;
end:
    do
    :: c = 0
    :: c = CLIENTS - 1
    :: c + 1 < CLIENTS -> c++
    :: d_step { valid[c] && lapses < LAPSES -> lapses++; valid[c] = false }
    :: d_step { alive[c] && !valid[c] && lapses < LAPSES -> lapses++; alive[c] = false }
    :: d_step { alive[c] && !valid[c] && (phase[c] == DEAD || phase[c] == IDLE || phase[c] == HOLDING) -> alive[c] = false }
    :: d_step { spoke[c] && phase[c] != DEAD && lapses < LAPSES -> lapses++; spoke[c] = false }
    :: d_step { phase[c] == DEAD && spoke[c] -> spoke[c] = false }
    :: d_step { phase[c] != DEAD && deaths < DEATHS -> deaths++; phase[c] = DEAD; valid[c] = false;
                if :: len(message[c]) > 0 -> message[c] ? n_; n_ = 0 :: len(message[c]) == 0 fi }
       /* the lock's key ends with the last lease, and the set with it */
    :: d_step { lock != NOBODY && lock != SHARED && !alive[lock] -> lock = NOBODY }
    :: d_step { lock == SHARED -> count(); if :: leases_ == 0 -> lock = NOBODY :: else -> skip fi; leases_ = 0 }
    :: d_step { nempty(message[c]) && cuts < CUTS -> cuts++; message[c] ? n_; n_ = 0 }
       /* An administrator */
    :: atomic { lock != NOBODY && forced < FORCED -> forced++;
        n_ = 0; do :: n_ < CLIENTS -> thrown_out[n_] = thrown_out[n_] || lock == n_ || (lock == SHARED && member[n_]); n_++ :: else -> break od;
        counter++; lock = NOBODY; clear_holders(); serve_queue(NOBODY); end_script() }
    :: d_step { lock != NOBODY && deleted < DELETED -> deleted++;
        n_ = 0; do :: n_ < CLIENTS -> thrown_out[n_] = thrown_out[n_] || lock == n_ || (lock == SHARED && member[n_]); n_++ :: else -> break od; n_ = 0;
        lock = NOBODY }
    od
}

#ifdef LIVE
#define leaves(c) (phase[c] == HOLDING && begun[c])
#else
#define leaves(c) ((phase[c] == HOLDING && (begun[c] || !valid[c])) || phase[c] == WAITING)
#endif

proctype Client(byte c) {
    mtype verb;
end:
    do
    :: phase[c] == DEAD -> break

       /* A request: what it is about, who is served besides, and what its reply means */
    :: atomic {
        if
        :: (phase[c] == IDLE && todo[c] > 0) || phase[c] == ASKING -> verb = ACQUIRE
        :: phase[c] == WAITING && len(message[c]) == 0 -> verb = WATCH
        :: leaves(c) -> verb = RELEASE; valid[c] = false
        fi;
        waits_ = queue ?? [eval(c)];
        if
        :: verb == ACQUIRE && owns(c) -> grant(c); to_me_ = true    /* ours already: another fence, a whole lease */
        :: verb == ACQUIRE && !owns(c) -> serves_ = lock == NOBODY || (lock == SHARED && !writes(c))
        :: verb == WATCH -> serves_ = lock == NOBODY || lock == SHARED
        :: verb == RELEASE && owns(c) && writes(c) -> alive[c] = false; lock = NOBODY; serves_ = true
        :: verb == RELEASE && owns(c) && !writes(c) -> drop(c); serves_ = true
        :: verb == RELEASE && !owns(c) && waits_ -> queue ?? eval(c);
#ifndef BUG_SILENT_LEAVE
            serves_ = lock == SHARED; all_ = true
#endif
        :: verb == RELEASE && !owns(c) && !waits_
        fi;
        if
        :: serves_ && lock == SHARED && !all_ -> count();           /* serve() of queue_shared.lua */
            if :: leases_ == 0 -> lock = NOBODY :: else -> all_ = true fi
        :: else -> skip
        fi;
        if :: serves_ -> serve_queue(c) :: else -> all_ = false fi;

        waits_ = queue ?? [eval(c)];
        if
        :: verb == ACQUIRE ->
            if
            :: to_me_ -> skip
            :: !to_me_ && writes(c) && lock == NOBODY -> grant(c); to_me_ = true
#ifdef BUG_BARGE
            :: !to_me_ && !writes(c) && (lock == NOBODY || lock == SHARED) -> grant(c); to_me_ = true
#else
            :: !to_me_ && !writes(c) && (lock == NOBODY || lock == SHARED) && len(queue) == 0 -> grant(c); to_me_ = true
#endif
            :: else -> spoke[c] = true; if :: !waits_ -> queue ! c :: waits_ fi
            fi;
            if
            :: to_me_ -> begins(c)
            :: !to_me_ -> phase[c] = WAITING
            :: cuts < CUTS -> cuts++; phase[c] = ASKING             /* the reply is lost: asked again */
            fi
        :: verb == WATCH ->
            spoke[c] = true;
            if
            :: to_me_ -> begins(c)
            :: !to_me_ && !waits_ -> phase[c] = ASKING              /* dropped, or told in vain */
            :: !to_me_ && waits_
            fi
        :: verb == RELEASE ->
            if :: len(message[c]) > 0 -> message[c] ? n_; n_ = 0 :: len(message[c]) == 0 fi;
            fence[c] = 0; begun[c] = false; thrown_out[c] = false; phase[c] = IDLE;
#ifndef LIVE
            todo[c]--
#else
            if :: writes(c) -> todo[c] = 0 :: else -> skip fi
#endif
        fi;
        waits_ = 0; verb = 0;
        end_script() }

       /* A message; one that was long on its way is not believed */
    :: atomic { phase[c] == WAITING && nempty(message[c]) -> message[c] ? n_;
        if
        :: n_ == last_grant[c] && alive[c] -> n_ = 0; begins(c)
        :: else -> n_ = 0; phase[c] = ASKING
        fi }

       /* Holding: a fenced read or write, and a renewal */
    :: d_step { phase[c] == HOLDING && !begun[c] -> begun[c] = true;
#ifndef LIVE
        if
#ifdef BUG_NO_GUARD
        :: true ->
#else
        :: fence[c] >= mark ->
#endif
            resource_forward = fence[c] >= mark; assert(resource_forward);
            if :: fence[c] > mark -> mark = fence[c] :: else -> skip fi
#ifndef BUG_NO_GUARD
        :: else -> skip
#endif
        fi
#endif
        }
#ifndef LIVE
    :: d_step { phase[c] == HOLDING && valid[c] ->
        if
        :: owns(c) -> unbroken = (writes(c) -> highest == fence[c] : highest_writer < fence[c]); assert(unbroken)
        :: else -> valid[c] = false
        fi }
#endif
    od
}

init { atomic { byte n; do :: n < CLIENTS -> run Client(n); n++ :: else -> break od } }

#ifdef LIVE
ltl writer_is_served { <> writer_served }
#endif
