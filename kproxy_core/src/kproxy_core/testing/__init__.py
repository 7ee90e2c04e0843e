"""What proves a mode: the lab, the oracle, the conformance kit and generators, shipped for whoever writes one."""
