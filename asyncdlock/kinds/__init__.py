"""Kinds of lock other than the plain one, each on top of the same verbs."""
