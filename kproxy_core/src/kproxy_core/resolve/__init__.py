"""Decides: from the objects of a cluster to what this node must do. Pure."""
