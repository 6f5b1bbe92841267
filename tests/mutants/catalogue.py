"""All planted bugs."""

from tests.mutants import client, guards, judges, quorums, redis

MUTANTS = [*client.MUTANTS, *redis.MUTANTS, *quorums.MUTANTS, *guards.MUTANTS, *judges.MUTANTS]
