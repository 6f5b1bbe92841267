"""Several processes fight over few locks on a real server while everything around them breaks.

`python -m tests.stress --backend redis-queue --minutes 10` prints what was granted, which faults were
injected and what the longest idle gap was, and ends with 1 when a promise was broken. The checker shares
nothing with the harness: it reads what the processes wrote down, on this machine's one monotonic clock.
"""
