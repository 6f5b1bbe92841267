"""Torture: load and every fault at once, round after round; then heal, drain and examine everything.

plan.py       what a seed means: the faults of a round, and what contenders do with the lock
load.py       one process of the load, through the participants of `harness/lab`
round.py      one round, from the forks to the verdict
result.py     what came of it
leftovers.py  what is left of a round when all clients have closed
sometimes.py  rare paths, and whether a round really went there
"""
