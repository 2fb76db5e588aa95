#!/usr/bin/env python3
"""Runs the blocks of a Markdown document that say that they run, as they are printed and in their
order.

    run_blocks.py --work DIR --prefix PREFIX DOCUMENT

A comment of HTML before a block says what it is:

    <!-- file: train.cpp -->   its text is written to that file
    <!-- run -->               its lines are run by bash, which ends at the first that fails
    <!-- run with PACKAGE… --> likewise, and its python3 has these packages of Python
    <!-- prints: REGEX -->     after a `run`: what its output must contain, as a regular expression
    <!-- first: COMMAND -->    makes what the reader has; $SOURCE is the source folder

All blocks of a document work in one new folder, which has the `apps` of the source folder. PREFIX
is where Lockstep was installed: its programs are in PATH, and CMake, pkg-config and the loader find
it. Leaves with 77 where the system lacks the data set that a block names, or, after all other
blocks, where no Python has the packages of one.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

MARK = re.compile(
    r"^<!-- (run(?: with (?P<packages>.+))?|file: (?P<file>\S+)|prints: (?P<prints>.+)|first: "
    r"(?P<first>.+)) -->$"
)
SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
from python_with import HOW, python_with  # noqa: E402

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


class Block:
    def __init__(self, line, file, packages=None):
        self.line, self.file, self.packages, self.prints, self.text = line, file, (
            packages or "").split(), None, ""


def blocks_of(text):
    """The marked blocks in their order. A mark that no block follows is an error: it would run
    nothing."""
    blocks, waiting, inside = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        mark = MARK.match(line.strip())
        if inside is not None:
            if line.startswith("```"):
                inside, waiting = None, None
            else:
                inside.text += line + "\n"
        elif mark and mark["prints"]:
            if not blocks or blocks[-1].file:
                raise SystemExit(f"line {number}: no block runs before this")
            blocks[-1].prints = mark["prints"]
        elif mark and mark["first"]:
            blocks.append(Block(number, None))
            blocks[-1].text = mark["first"] + "\n"
        elif mark:
            if waiting:
                raise SystemExit(f"line {waiting.line}: no block follows")
            waiting = Block(number, mark["file"], mark["packages"])
        elif waiting and line.startswith("```"):
            inside = waiting
            blocks.append(inside)
        elif waiting and line.strip():
            raise SystemExit(f"line {waiting.line}: no block follows")
    if waiting:
        raise SystemExit(f"line {waiting.line}: no block follows, or none that ends")
    return blocks


def environment(prefix, python=None):
    """The environment in which a block finds Lockstep, and `python` as python3 if that is set."""
    values = dict(os.environ, SOURCE=str(SOURCE))

    def prepend(name, *folders):
        values[name] = os.pathsep.join([*map(str, folders), *filter(None, [values.get(name)])])

    libraries = sorted({file.parent for file in prefix.glob("**/liblockstep.so")})
    prepend("PATH", prefix / "bin", *([pathlib.Path(python).parent] if python else []))
    prepend("CMAKE_PREFIX_PATH", prefix)
    prepend("PKG_CONFIG_PATH", *[folder / "pkgconfig" for folder in libraries])
    prepend("LD_LIBRARY_PATH", *libraries)
    return values


def run(block, work, values):
    # Not by standard input, of which mpirun would read the lines after its own.
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", block.text],
                          stdin=subprocess.DEVNULL, text=True, cwd=work, env=values,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"== line {block.line}\n{block.text}-- status {done.returncode}\n{done.stdout}",
          flush=True)
    if done.returncode != 0:
        raise SystemExit(f"the block of line {block.line} failed")
    if block.prints and not re.search(block.prints, done.stdout):
        raise SystemExit(f"the block of line {block.line} was to print {block.prints!r}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("document", type=pathlib.Path)
    arguments = parser.parse_args()

    blocks = blocks_of(arguments.document.read_text())
    if not any(block.file is None for block in blocks):
        raise SystemExit("no block of the document runs")
    if any("fashion-mnist" in block.text for block in blocks) and not FASHION_MNIST.exists():
        print(f"skipped: needs {FASHION_MNIST}, of Debian's dataset-fashion-mnist")
        return 77
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    (arguments.work / "apps").symlink_to(SOURCE / "apps")
    values = environment(arguments.prefix.resolve())
    left_out = []
    for block in blocks:
        if block.file:
            file = arguments.work / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.packages:
            python = python_with(block.packages)
            if python:
                run(block, arguments.work, environment(arguments.prefix.resolve(), python))
            else:
                left_out.append(f"line {block.line} needs {' and '.join(block.packages)}")
        else:
            run(block, arguments.work, values)
    if left_out:
        print(f"skipped: {', '.join(left_out)}, of a Python; the other blocks ran. {HOW}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
