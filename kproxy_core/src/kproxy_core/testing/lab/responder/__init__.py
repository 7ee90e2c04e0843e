"""The lab's server process: standard library only, so that it starts at once and stays small."""
