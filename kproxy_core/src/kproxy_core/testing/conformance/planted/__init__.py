"""Faults planted into modes, to show that the kit finds them: what it does not find, it does not test."""
