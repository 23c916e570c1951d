"""Runs that survive: journals of runs, and runs as Temporal workflows."""
