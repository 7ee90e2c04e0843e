"""The sans-I/O machine: events in, effects out; it drives a backend and never meets the kernel itself."""
