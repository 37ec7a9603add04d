"""Checks of one installation: machine, home, jobs."""
