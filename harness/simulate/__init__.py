"""A deterministic model of a lock under load: queue, hand-off and the server's one thread.

model.py        the discrete-event simulation
parameters.py   what its steps cost: given, or taken from a measured run
validation.py   the model beside a measured run
"""
