/* The lease of one holder and the dead man's switch of hold(): _holding.py, _watchdog.py, _hold.py, renew.lua.
 *
 * Time is counted in ticks. The server ends a lease TTL ticks after it was granted or last renewed; the holder
 * trusts it for VALID ticks, counted from before the request was sent (types.validity). Requests and replies take
 * any time, or are lost; the holder's process may be frozen at any time and for as long as the clock goes.
 *
 * Invariants: covered: a lease that the holder trusts is alive on the server; ended_in_time: no body runs past its
 * deadline unless its process is frozen.
 */
#ifndef HORIZON
#define HORIZON 16
#endif
#define TTL   4
#define VALID 3

mtype = { NONE, SENT, CONFIRMED, REFUSED, SILENT };

byte now, lease_end = TTL, deadline = VALID, sent;
bool held = true, body = true, frozen;
mtype renewal = NONE;
bool covered = true, ended_in_time = true;

#ifdef BUG_NO_SWITCH
#define timers_served true
#else
#define timers_served (!held || now < deadline)   /* a loop that is not frozen serves its timers */
#endif

active proctype Clock() {
end:
    do
    :: d_step { now < HORIZON && (frozen || timers_served) -> now++;
        covered = !(held && now < deadline) || now < lease_end; assert(covered);
        ended_in_time = frozen || !body || now <= deadline; assert(ended_in_time) }
    :: d_step { !frozen -> frozen = true }
    :: d_step { frozen -> frozen = false }
    od
}

active proctype Server() {
end:
    do
    :: d_step { renewal == SENT && now < lease_end -> lease_end = now + TTL; renewal = CONFIRMED }
    :: d_step { renewal == SENT && now >= lease_end -> renewal = REFUSED }
    :: d_step { renewal == SENT -> renewal = SILENT }        /* the request is lost */
    :: d_step { renewal == CONFIRMED -> renewal = SILENT }   /* its reply is */
    od
}

active proctype Holder() {
end:
    do
    :: d_step { !frozen && held && renewal == NONE && now < deadline -> sent = now; renewal = SENT }
    :: d_step { !frozen && renewal == CONFIRMED -> renewal = NONE;
        if
        :: held && now < deadline ->
#ifdef BUG_FROM_REPLY
            deadline = now + VALID
#else
            deadline = sent + VALID
#endif
        :: else -> held = false; body = false               /* it ran out before the answer came */
        fi; sent = 0;
        covered = !(held && now < deadline) || now < lease_end; assert(covered) }
    :: d_step { !frozen && renewal == REFUSED -> renewal = NONE; sent = 0; held = false; body = false }
    :: d_step { !frozen && renewal == SILENT -> renewal = NONE;
#ifdef BUG_SILENCE_RENEWS
        if :: held && now < deadline -> deadline = sent + VALID :: else -> skip fi;
#endif
        sent = 0;
        covered = !(held && now < deadline) || now < lease_end; assert(covered) }
#ifndef BUG_NO_SWITCH
    :: d_step { !frozen && held && now >= deadline -> held = false; body = false }   /* the switch */
#endif
    od
}
