"""All planted bugs."""

from tests.mutants import client, guards, judges, kinds, quorums, redis

MUTANTS = [
    *client.MUTANTS,
    *kinds.MUTANTS,
    *redis.MUTANTS,
    *quorums.MUTANTS,
    *guards.MUTANTS,
    *judges.MUTANTS,
]
