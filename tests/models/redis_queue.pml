/* redis-queue:// with local hand-off, for one key.
 *
 * The server's steps are the scripts in asyncdlock/backends/redis/scripts, each atomic as Redis runs it:
 * queue_acquire.lua, queue_watch.lua, queue_release.lua, renew.lua, with grant() and grant_next() of
 * queue_common.lua. A Session is one process: _local_queue.py, backends/redis/queue.py, wait_list.py, grants.py.
 *
 * Time is not counted. What clocks allow is said instead by three bits a session:
 *   valid   its holder may rely on the lease, by its own clock. Counted from before the request was sent, hence
 *   fresh   the last lease that the server gave it, and that it has not heard of, lasts longer than that, and
 *           the server ends a lease only when both are over: validity < TTL.
 * A process that is frozen is one that takes no step while `lapse` happens to it.
 *
 * Invariants: one_holder; fences_rise, strictly, in the order in which holders began; unbroken: whoever is told that
 * its lease was extended has had no successor; resource_forward; with -DLIVE also <> everyone_served.
 * Each BUG_… puts a defect back.
 */
#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef TASKS
#define TASKS 2    /* of each session, one section each */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2 /* owners that a session may use up: claims that reach the server */
#endif
#define BLOCK 2    /* fences of a grant: the holder's own, and one to hand on */
#ifndef LAPSES
#define LAPSES 1   /* leases in use that run out: holders that are frozen, and grants long on their way */
#endif
#ifndef CUTS
#define CUTS 1     /* connections lost, with what is on them */
#endif
#ifndef DEATHS
#define DEATHS 0   /* processes killed */
#endif
#ifndef RENEWALS
#define RENEWALS 1 /* of each session */
#endif
#ifndef FORGETS
#define FORGETS 0  /* restarts of the server without its data */
#endif

#define OWNER(s, a) ((s) * 8 + (a))
#define SESSION(o)  ((o) / 8)
#define NOBODY      255

mtype = { ACQUIRE, WATCH, RELEASE, GIVE_BACK, RENEW, RAISE };     /* requests */
mtype = { GRANTED, JOINED, WAITS, GONE, YES, NO };                /* replies */
mtype = { IDLE, ASKING, WAITING, HOLDING, LEAVING, DEAD };        /* a session */

/* The server */
byte lock = NOBODY;
byte counter;
chan queue = [SESSIONS * 2] of { byte };
bool listening[SESSIONS];
bool spoke[SESSIONS];

/* The wires. `late`: a request on a connection that the client has given up, still to be carried out. */
chan request[SESSIONS] = [1] of { mtype, byte, byte };
chan reply[SESSIONS] = [1] of { mtype, byte, byte, byte };        /* what, fence, owner and fence handed to our session */
chan message[SESSIONS] = [2] of { byte, byte };
chan late = [1] of { mtype, byte, byte };

/* Clocks */
bool valid[SESSIONS];
bool fresh[SESSIONS];
bool young[SESSIONS];                                             /* granted a moment ago: it may be handed on */
byte last_grant[SESSIONS];
byte lapses, cuts, deaths, forgets;

/* The resource, and what the invariants look at */
byte mark;
byte highest_begun;
byte served;
bool one_holder = true, fences_rise = true, unbroken = true, resource_forward = true;
mtype phase[SESSIONS] = IDLE;
byte todo[SESSIONS] = TASKS;
byte owner[SESSIONS] = NOBODY;                                    /* its claim that the server knows */

byte o_, handed_o, handed_f, in_queue; bool granted_;   /* the scripts' own variables */

/* grant() of queue_common.lua: the counter first, then the lock */
inline grant(o) {
#ifdef BUG_ONE_FENCE
    counter++;
#else
    counter = counter + BLOCK;
#endif
    assert(counter < 100);
    lock = o;
    last_grant[SESSION(o)] = counter;
    fresh[SESSION(o)] = true
}

/* grant_next() of queue_common.lua, for a request of session r: sets granted_, and handed_o/f for a waiter of r */
inline grant_next(r) {
    granted_ = false; handed_o = 0; handed_f = 0;
    do
    :: !granted_ && len(queue) > 0 ->
        queue ? o_;
        if
        :: SESSION(o_) == r -> grant(o_); granted_ = true; handed_o = o_; handed_f = counter
        :: SESSION(o_) != r && spoke[SESSION(o_)] ->
            grant(o_);
            if
            :: listening[SESSION(o_)] && len(message[SESSION(o_)]) < 2 -> message[SESSION(o_)] ! o_, counter; granted_ = true
            :: else -> lock = NOBODY; fresh[SESSION(o_)] = false   /* PUBLISH reached nobody */
            fi
        :: else -> skip                                             /* silent for longer than its patience: dropped */
        fi
    :: granted_ || len(queue) == 0 -> break
    od;
    o_ = 0
}

inline leave_queue(o) {
    in_queue = queue ?? [eval(o)];
    if
    :: in_queue -> queue ?? eval(o)
    :: !in_queue
    fi;
    in_queue = 0
}

/* One script. `to`: whether the reply reaches the session (a late request's connection is gone). */
inline carry_out(verb, o, f, to) {
    handed_o = 0; handed_f = 0;
    if
    :: verb == ACQUIRE ->                                           /* queue_acquire.lua */
        granted_ = false;
        if
        :: lock == NOBODY ->
            grant_next(SESSION(o));
            if
            :: !granted_ -> grant(o); handed_o = o; handed_f = counter
            :: else -> skip
            fi
        :: lock == o -> grant(o); handed_o = o; handed_f = counter  /* ours already: another fence, a whole lease */
        :: else -> skip
        fi;
        if
        :: handed_o == o -> if :: to -> reply[SESSION(o)] ! GRANTED, handed_f, 0, 0 :: else -> skip fi
        :: else ->
            in_queue = queue ?? [eval(o)];
            if
            :: !in_queue -> queue ! o
            :: in_queue                                             /* ZADD NX: it keeps its place */
            fi;
            in_queue = 0;
            spoke[SESSION(o)] = true;
            if :: to -> reply[SESSION(o)] ! JOINED, 0, handed_o, handed_f :: else -> skip fi
        fi
    :: verb == WATCH ->                                             /* queue_watch.lua */
        if
        :: lock == NOBODY -> grant_next(SESSION(o))
        :: else -> skip
        fi;
        spoke[SESSION(o)] = true;
        in_queue = queue ?? [eval(o)];
        if
        :: !to
        :: to && (in_queue || handed_o == o) -> reply[SESSION(o)] ! WAITS, 0, handed_o, handed_f
        :: to && !in_queue && handed_o != o -> reply[SESSION(o)] ! GONE, 0, handed_o, handed_f
        fi;
        in_queue = 0
    :: verb == RELEASE || verb == GIVE_BACK ->                      /* queue_release.lua, with ARGV[7] for GIVE_BACK */
        if
#ifdef BUG_RELEASE_ANY
        :: lock != NOBODY && (verb == RELEASE || counter == f) ->
#elif defined(BUG_GIVE_BACK_ANY)
        :: lock == o ->
#else
        :: lock == o && (verb == RELEASE || counter == f) ->
#endif
            grant_next(SESSION(o));
            if
            :: !granted_ -> lock = NOBODY
            :: else -> skip
            fi;
            if :: to -> reply[SESSION(o)] ! YES, 0, handed_o, handed_f :: else -> skip fi
        :: else ->
            leave_queue(o);
            if :: to -> reply[SESSION(o)] ! NO, 0, 0, 0 :: else -> skip fi
        fi
    :: verb == RENEW ->                                             /* renew.lua */
        if
        :: lock == o -> fresh[SESSION(o)] = true;
            if :: to -> reply[SESSION(o)] ! YES, 0, 0, 0 :: else -> skip fi
        :: else -> if :: to -> reply[SESSION(o)] ! NO, 0, 0, 0 :: else -> skip fi
        fi
    :: verb == RAISE ->                                             /* raise_fence.lua */
        if :: counter < f -> counter = f :: else -> skip fi;
        if :: to -> reply[SESSION(o)] ! YES, 0, 0, 0 :: else -> skip fi
    fi;
    handed_o = 0; handed_f = 0; granted_ = false
}

/* A process for each connection, so that fairness means: no connection waits for ever. */
proctype Connection(byte s) {
    mtype verb; byte o, f;
end:
    do
    :: atomic { request[s] ? verb, o, f -> carry_out(verb, o, f, true); verb = 0; o = 0; f = 0 }
    od
}

active proctype Server() {
    mtype verb; byte o, f;
end:
    do
    :: atomic { late ? verb, o, f -> carry_out(verb, o, f, false); verb = 0; o = 0; f = 0 }
    :: atomic { lock != NOBODY && !valid[SESSION(lock)] && !fresh[SESSION(lock)] -> lock = NOBODY }  /* PX */
    od
}

/* Clocks, and what else happens to a session without its doing */
#define CLOCKS(s) \
    :: d_step { valid[s] && lapses < LAPSES -> lapses++; valid[s] = false; young[s] = false } \
    :: d_step { fresh[s] && !valid[s] && lapses < LAPSES -> lapses++; fresh[s] = false } \
       /* a grant to a claim that was given up, or to a process that is dead, may run out at any time */ \
    :: d_step { fresh[s] && !valid[s] && lock != owner[s] -> fresh[s] = false } \
       /* silent for longer than its patience */ \
    :: d_step { spoke[s] && lapses < LAPSES && phase[s] != DEAD -> lapses++; spoke[s] = false } \
    :: d_step { phase[s] == DEAD && (valid[s] || spoke[s]) -> valid[s] = false; spoke[s] = false }

active proctype World() {
end:
    do
    CLOCKS(0)
    CLOCKS(1)
#if SESSIONS > 2
    CLOCKS(2)
#endif
#if FORGETS > 0
    :: d_step { forgets < FORGETS -> forgets++; lock = NOBODY; counter = 0; spoke[0] = false; spoke[1] = false;
                do :: nempty(queue) -> queue ? o_ :: empty(queue) -> break od; o_ = 0 }
#endif
    od
}

inline ask(verb, o, f) { w_verb = verb; w_o = o; w_f = f; request[s] ! verb, o, f; outstanding = true }

/* A holder begins. Where the server's data may be lost two may hold, and only the resource is judged. */
inline begin(f) {
#if FORGETS == 0
    fences_rise = f > highest_begun; assert(fences_rise);
    highest_begun = f;
    one_holder = !(valid[0] && valid[1] && phase[0] == HOLDING && phase[1] == HOLDING); assert(one_holder);
#else
    fences_rise = f > highest; assert(fences_rise);
    highest = f;
#endif
    stage = 0
}

inline grant_arrived(f) {
    if
#ifdef BUG_LATE_GRANT
    :: true ->
#else
    :: f == last_grant[s] && fresh[s] ->
#endif
#if FORGETS > 0 && !defined(BUG_NO_FENCE_MEMORY)
        if
        :: f - BLOCK + 1 <= highest -> fresh[s] = false; phase[s] = LEAVING; ask(RAISE, owner[s], highest)  /* _grants.py */
        :: else ->
#endif
        fresh[s] = false; valid[s] = true; young[s] = true; phase[s] = HOLDING;
        fence = f - BLOCK + 1; used = 0; held = owner[s];
        begin(fence)
#if FORGETS > 0 && !defined(BUG_NO_FENCE_MEMORY)
        fi
#endif
    :: else -> phase[s] = ASKING; ask(ACQUIRE, owner[s], 0)              /* long on its way: ask again */
    fi;
    early = 0
}

/* by_reply() of grants.py: a grant to another claim of our session */
inline handed_over(o, f) {
    if
    :: o == 0 || (o == owner[s] && phase[s] == WAITING) -> skip
    :: else -> nobodys_o = o; nobodys_f = f
    fi
}

proctype Session(byte s) {
    byte held, fence, used, early, highest, attempts, renewals, stage, o, f, ho, hf, nobodys_o, nobodys_f;
    mtype w_verb, what; byte w_o, w_f; bool outstanding;
    listening[s] = true;
end:
    do
    /* The next task of the local queue goes to the server */
    :: d_step { phase[s] == IDLE && !outstanding && nobodys_o == 0 && todo[s] > 0 && attempts < ATTEMPTS ->
        attempts++; owner[s] = OWNER(s, attempts); phase[s] = ASKING; ask(ACQUIRE, owner[s], 0) }
       /* out of owners: those who are left give up, as a time-out would have it */
    :: d_step { phase[s] == IDLE && !outstanding && todo[s] > 0 && attempts == ATTEMPTS -> served = served + todo[s]; todo[s] = 0 }

    /* A reply */
    :: d_step { outstanding && nempty(reply[s]) -> reply[s] ? what, f, ho, hf;
        outstanding = false;
        if
        :: w_verb == ACQUIRE && what == GRANTED -> grant_arrived(f)
        :: w_verb == ACQUIRE && what == JOINED ->
            phase[s] = WAITING; handed_over(ho, hf);
            if
            :: early != 0 -> grant_arrived(early)
            :: else -> skip
            fi
        :: w_verb == WATCH ->
            handed_over(ho, hf);
            if
            :: phase[s] == WAITING && ho == owner[s] -> grant_arrived(hf)
#ifndef BUG_NO_REJOIN
            :: phase[s] == WAITING && ho != owner[s] && what == GONE -> ask(ACQUIRE, owner[s], 0)
#endif
            :: else -> skip
            fi
        :: w_verb == RELEASE -> handed_over(ho, hf); phase[s] = IDLE; owner[s] = NOBODY
        :: w_verb == GIVE_BACK -> handed_over(ho, hf)
        :: w_verb == RAISE -> ask(RELEASE, owner[s], 0)                   /* then the lock is given back and taken again */
        :: w_verb == RENEW ->
            if
            :: phase[s] == HOLDING && what == YES ->
#ifdef BUG_REVIVE
                valid[s] = valid[s] || fresh[s];
#endif
                fresh[s] = false;
#if FORGETS == 0
                unbroken = !valid[s] || fence == highest_begun; assert(unbroken)
#endif
            :: phase[s] == HOLDING && what == NO -> valid[s] = false
            :: else -> skip
            fi
        fi;
        what = 0; f = 0; ho = 0; hf = 0;
        if :: !outstanding -> w_verb = 0; w_o = 0; w_f = 0 :: outstanding fi }

    /* A message: by_message() of grants.py */
    :: d_step { nobodys_o == 0 && nempty(message[s]) -> message[s] ? o, f;
        if
        :: o == owner[s] && phase[s] == WAITING && !outstanding -> grant_arrived(f)
        :: o == owner[s] && (phase[s] == ASKING || (phase[s] == WAITING && outstanding)) -> early = f
        :: else -> nobodys_o = o; nobodys_f = f
        fi;
        o = 0; f = 0 }
    :: d_step { early != 0 && phase[s] == WAITING && !outstanding -> f = early; grant_arrived(f); f = 0 }
    :: d_step { nobodys_o != 0 && !outstanding -> ask(GIVE_BACK, nobodys_o, nobodys_f); nobodys_o = 0; nobodys_f = 0 }

    /* Waiting: a look, or a cancellation */
#ifndef BUG_NO_LOOK
    :: d_step { phase[s] == WAITING && !outstanding && early == 0 && nobodys_o == 0 && empty(message[s]) -> ask(WATCH, owner[s], 0) }
#endif
#ifndef LIVE
    :: d_step { phase[s] == WAITING && !outstanding -> phase[s] = LEAVING; early = 0; todo[s]--; served++; ask(RELEASE, owner[s], 0) }
#endif

    /* Holding: check, then write; a pause may come in between */
    :: d_step { phase[s] == HOLDING && stage == 0 && valid[s] -> stage = 1 }
    :: d_step { phase[s] == HOLDING && stage == 1 -> stage = 2;
        if
#ifdef BUG_NO_GUARD
        :: true ->
#else
        :: fence >= mark ->
#endif
            resource_forward = fence >= mark; assert(resource_forward); mark = fence
#ifndef BUG_NO_GUARD
        :: else -> skip                                               /* 409: stale */
#endif
        fi }
    :: d_step { phase[s] == HOLDING && renewals < RENEWALS && !outstanding -> renewals++; ask(RENEW, held, 0) }
    /* Local hand-off: _local_queue.py, release() */
#ifdef BUG_HAND_ON_LAPSED
    :: d_step { phase[s] == HOLDING && stage == 2 && todo[s] > 1 && used + 1 < BLOCK ->
#else
    :: d_step { phase[s] == HOLDING && stage == 2 && todo[s] > 1 && used + 1 < BLOCK && valid[s] && young[s] ->
#endif
        used++; fence++; todo[s]--; served++; begin(fence) }
    /* Release, and giving back what was lost */
    :: d_step { phase[s] == HOLDING && !outstanding && (stage == 2 || !valid[s]) ->
        valid[s] = false; young[s] = false; phase[s] = LEAVING; todo[s]--; served++; stage = 0; fence = 0; used = 0; ask(RELEASE, held, 0); held = 0 }

    /* The connection is lost. The request may have been carried out, or will be, or never. */
    :: atomic { cuts < CUTS && phase[s] != DEAD -> cuts++;
        if
        :: nempty(request[s]) && empty(late) -> request[s] ? what, o, f; late ! what, o, f
        :: nempty(request[s]) -> request[s] ? what, o, f
        :: empty(request[s])
        fi;
        what = 0; o = 0; f = 0;
        do :: nempty(message[s]) -> message[s] ? o, f :: empty(message[s]) -> break od;
        do :: nempty(reply[s]) -> reply[s] ? what, f, o, ho :: empty(reply[s]) -> break od;
        what = 0; o = 0; f = 0; ho = 0;
        if
        :: outstanding && w_verb != GIVE_BACK -> request[s] ! w_verb, w_o, w_f          /* sent again */
        :: outstanding && w_verb == GIVE_BACK -> outstanding = false
        :: outstanding && w_verb == ACQUIRE && phase[s] == ASKING ->                    /* or cancelled */
            phase[s] = LEAVING; early = 0; todo[s]--; served++; ask(RELEASE, owner[s], 0)
        :: !outstanding -> skip
        fi }
    /* kill -9 */
    :: d_step { deaths < DEATHS && phase[s] != DEAD -> deaths++; phase[s] = DEAD; listening[s] = false; owner[s] = NOBODY; served = served + todo[s]; todo[s] = 0;
        do :: nempty(message[s]) -> message[s] ? o, f :: empty(message[s]) -> break od;
        do :: nempty(reply[s]) -> reply[s] ? what, f, o, ho :: empty(reply[s]) -> break od } -> break
    od
}

init { atomic { byte n; do :: n < SESSIONS -> run Connection(n); run Session(n); n++ :: else -> break od } }

#define everyone_served (served == SESSIONS * TASKS)
#ifdef LIVE
ltl everyone_is_served { <> everyone_served }
#endif
