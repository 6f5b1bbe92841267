"""What a server really did, replayed against what the model of its protocol allows.

monitor.py      Redis's own log of every command, also of those inside scripts
redis_queue.py  the steps of the fair queue: the same relation as tests/models/redis_queue.pml, step by step
grants.py       what clients said that they were granted, against what was granted
"""
