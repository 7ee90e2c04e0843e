"""The values that everything else is computed from and into: frozen, slotted, free of I/O."""
