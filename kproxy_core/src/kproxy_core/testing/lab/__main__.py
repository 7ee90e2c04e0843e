"""``python -m kproxy_core.testing.lab PROGRAM ARGUMENT...``: run a program as root of a user namespace, fit to build a lab."""

import sys

from kproxy_core.testing.lab.faults import LabError
from kproxy_core.testing.lab.userns import exec_in_user_namespace

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"{__doc__}")
    try:
        exec_in_user_namespace(sys.argv[1:])
    except (LabError, OSError) as error:
        sys.exit(f"{error}")
