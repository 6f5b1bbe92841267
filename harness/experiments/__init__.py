"""Prepared experiments: each asks a question, says what it expects, breaks something real, and looks.

    python -m harness experiment list
    python -m harness experiment pause-beyond-ttl

An experiment is one module or package of this folder with a function under `@experiment`; see
`docs/adding-an-experiment.md`. A violation that was predicted and reproduced is a pass.
"""
