"""The command ``lockstep``: replaces this process by the program of the package."""
import os
import sys

from ._folder import FOLDER


def main():
    program = FOLDER / "bin" / "lockstep"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"lockstep: error: [{program}] expected the program of the package, got: {error}")
