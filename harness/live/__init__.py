"""The page that shows a run while it happens: `--live`."""
