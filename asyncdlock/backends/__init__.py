"""One module per lock server."""
