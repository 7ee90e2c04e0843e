"""The contract between the core and a proxy mode."""
