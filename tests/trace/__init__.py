"""What a server did, replayed against the model."""
