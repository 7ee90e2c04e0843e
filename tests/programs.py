"""Programs of the system that tests look at the kernel with; a test is skipped where its program is not installed."""

import os
import shutil

import pytest

SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
"""An ordinary user's search path on Debian leaves out the folders of nft and ip."""


def program(name: str) -> str:
    """Return the path of a program, or skip the test."""
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        pytest.skip(f"the program {name} is not installed (see tools/debian-packages.txt)")
    return found
