"""Kinds of lock beside the plain one, each on top of the same verbs."""
