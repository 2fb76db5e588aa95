#!/usr/bin/env python3
"""Plants all mutants of mutants.toml in copies of the sources: each is chosen at run time.

plant.py TABLE SOURCE OUTPUT    copies SOURCE to OUTPUT, with the mutants of this file in it

A mutant replaces one text, which the file contains once, by another that asks MUTANT(K), where K is
its number: its position in the table, from 1.
"""
import pathlib
import sys

import tomllib

HEADER = """#include "tests/simulator/mutant.h"
#define MUTANT(K) (::lockstep::simulator::mutant == (K))
"""


def planted(table, name, text):
    for number, mutant in enumerate(table["mutant"], 1):
        if mutant["file"] != name:
            continue
        if text.count(mutant["old"]) != 1:
            raise SystemExit(f"mutant {number}: {name} contains {mutant['old']!r} "
                             f"{text.count(mutant['old'])} times, not once")
        text = text.replace(mutant["old"], mutant["new"].replace("MUTANT", f"MUTANT({number})"))
    return HEADER + text


def main():
    table, source, output = map(pathlib.Path, sys.argv[1:])
    name = "/".join(source.parts[len(source.parts) - source.parts[::-1].index("lockstep"):])
    text = planted(tomllib.loads(table.read_text()), name, source.read_text())
    if not output.is_file() or output.read_text() != text:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)


if __name__ == "__main__":
    main()
