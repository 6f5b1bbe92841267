"""Planted bugs: small changes of the source, each with the test that must notice it."""
