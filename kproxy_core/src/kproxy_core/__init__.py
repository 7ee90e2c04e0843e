"""kproxy's core: decides which endpoints a connection may reach, and drives the modes that make it so."""
