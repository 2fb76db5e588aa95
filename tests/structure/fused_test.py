"""Sources that are compiled together in a module that calculates must not fuse multiplications with
additions: which of them the compiler fuses would depend on the sources beside them, and so would
the rounding. Such a source is listed under FUSES of its module.

    fused_test.py BUILD MODULE...

BUILD has a folder of objects for each MODULE. scripts/lint, which has none, leaves this to ctest.
"""

import pathlib
import re
import subprocess
import sys

FUSED = re.compile(r"\tvfn?m(?:add|sub)\w* ")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")


def fused_functions(built):
    """Our functions in an object that fuse a multiplication with an addition or subtraction.
    Those of other libraries print numbers."""
    listing = subprocess.run(
        ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", built],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    function, found = "", []
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            function = match.group(1)
        elif FUSED.search(line) and "lockstep::" in function and function not in found:
            found.append(function)
    return found


def main():
    if len(sys.argv) == 1:
        print("not checked: ctest gives the folder of a build")
        return 0
    built = pathlib.Path(sys.argv[1])
    modules = sys.argv[2:]
    objects = [path for module in modules for path in (built / module).rglob("Unity/*.o")]
    found = [(path, function) for path in objects for function in fused_functions(path)]
    for path, function in found:
        print(f"{path.relative_to(built)}: {function} fuses; list its source under FUSES")
    print(f"{len(objects)} objects of sources compiled together, {len(found)} functions that fuse")
    return 1 if found or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
