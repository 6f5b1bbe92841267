"""What `fence-depth` is made of.

modes.py      the resource in each mode, and what was acknowledged and lost there
holder.py     one holder that reads, waits and writes, step by step or as fast as it may
schedules.py  two holders in a fixed order, and many at random
"""
