"""Entry of the server process: descriptor of the control socket as the only argument."""

import sys

from .loop import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]))
