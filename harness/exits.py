"""Exit codes: what the process tells its caller."""

OK = 0
VIOLATED = 1
USAGE = 2
UNTRUSTED = 3
"""The figures or the verdict cannot be relied on: a late generator, a server that died."""
THRESHOLD = 4
CRASHED = 70
"""A defect of this program, as sysexits.h counts it: it says nothing about what was to be judged."""
INTERRUPTED = 130

GRAVEST_FIRST = (INTERRUPTED, VIOLATED, UNTRUSTED, THRESHOLD, OK)
"""Of several runs the first of these that one of them had is that of all."""
