/* Redlock's fence: backends/redlock/backend.py, try_acquire() and _store_fence().
 *
 * One round after the other on NODES counters; any nodes answer, any store. A round that a majority grants takes
 * the highest answer c, from node i, and stores c on a majority before it returns: the fence is 16 c + i.
 *
 * Invariant: fences_rise. FORGETS > 0 lets a node lose its counter, which is known to break it.
 */
#define NODES  3
#define QUORUM 2
#ifndef ROUNDS
#define ROUNDS 5
#endif
#ifndef FORGETS
#define FORGETS 0
#endif

byte counter[NODES], rounds, forgets, last;
bool fences_rise = true;

active proctype Rounds() {
    byte node, answers, stored, highest, at, fence;
    do
    :: rounds < ROUNDS ->
        rounds++; answers = 0; highest = 0; at = 0; node = 0;
        do                                                   /* acquire.lua on each node that can be reached */
        :: node < NODES ->
            counter[node]++; answers++;
            if
            :: counter[node] >= highest -> highest = counter[node]; at = node
            :: else -> skip
            fi;
            node++
        :: node < NODES -> node++                            /* silent, or held by another */
        :: node == NODES -> break
        od;
        if
        :: answers >= QUORUM ->
#ifndef BUG_NO_WRITE_BACK
            stored = 0; node = 0;
            do                                               /* raise_fence.lua on a majority */
            :: node < NODES ->
                if :: counter[node] < highest -> counter[node] = highest :: else -> skip fi;
                stored++; node++
            :: node < NODES -> node++
            :: node == NODES -> break
            od;
#else
            stored = QUORUM;
#endif
            if
            :: stored >= QUORUM ->
                fence = 16 * highest + at;
                fences_rise = fence > last; assert(fences_rise);
                last = fence
            :: else -> skip                                  /* QuorumError: nothing is granted */
            fi
        :: else -> skip
        fi
#if FORGETS > 0
    :: forgets < FORGETS -> forgets++; counter[0] = 0
#endif
    :: rounds == ROUNDS -> break
    od
}
