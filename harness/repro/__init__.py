"""Figures that others have published, measured again: theirs, ours, and what differs.

    python -m harness repro list
    python -m harness repro jepsen-lock-set

A reproduction is one module of this folder with a function under `@reproduction`.

    registry.py   finds them
    finding.py    what one returns
    command.py    the command line, what is printed and the file that is left
"""
