"""The client on virtual time, in every order of its callbacks."""
