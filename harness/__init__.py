"""Drives asyncdlock under contention, injects faults, and judges from the recorded history."""
