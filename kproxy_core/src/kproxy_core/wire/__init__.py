"""Pure encodings of the kernel's binary interfaces: bytes in, bytes out; no sockets, no state, importable everywhere."""
