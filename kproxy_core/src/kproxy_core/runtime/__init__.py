"""The daemon: performs the effects of the engine and owns threads, sockets and clocks."""
