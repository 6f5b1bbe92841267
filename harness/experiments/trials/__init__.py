"""Many short trials: processes that are forked instead of loaded, and one verdict on all that they did.

crew.py        real processes at the cost of a fork, each with a line to talk over
nursery.py     the process that they are forked from
contender.py   a process that takes the lock once
shared_set.py  a value that shows whether an update was lost
log.py         the resource's log, read piece by piece
verdict.py     tracks, faults and log as files of a run, and what the checkers say of them
intervals.py   what a count of events in so many trials allows to say
"""
