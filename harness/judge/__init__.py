"""Decides from recorded facts alone: checkers, bounds, thresholds, and whether the run can be trusted."""
