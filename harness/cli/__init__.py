"""The command line: parse, then call; one module a command."""
