"""Models of the protocols in Promela, checked by Spin: docs/proof.md."""
