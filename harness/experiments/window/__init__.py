"""What `renewal-window` is made of.

arms.py      the ways to hold a lock that are compared, and the trials of each
subject.py   the process that is frozen
picture.py   how often a stale write arrived, as a picture
"""
