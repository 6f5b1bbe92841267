"""What `storm` is made of: short loads under random faults, one after the other, each judged by itself.

plan.py      what a seed means: backend, faults, and what every contender does
load.py      one process of the load
lane.py      the servers and links of one backend, kept from run to run
weather.py   carries a plan's faults out
single.py    one run, from the forks to the verdict
"""
