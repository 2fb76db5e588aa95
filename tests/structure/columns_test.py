"""Lines of Python, bash and CMake have at most 100 columns, as those of C++ have by clang-format.

    columns_test.py [SOURCE_DIR]

A line may be longer if it is one literal, or one word such as an address, which cannot be broken.
"""
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else HERE.parents[2]
FOLDERS = (".ci", "apps", "lockstep", "python", "scripts", "tests", "third_party")
SUFFIXES = {".cmake", ".py", ".sh", ".sbatch"}
ONE_LITERAL = re.compile(r"""(?:#\s*)?\w{0,2}(["']).*\1[\w\s]*[,;)\]}\\]*$|\S+$""")


def is_program(path):
    if path.suffix in SUFFIXES or path.name == "CMakeLists.txt":
        return True
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


class Columns(unittest.TestCase):
    def test_are_at_most_100(self):
        paths = [ROOT / "CMakeLists.txt"]
        for folder in FOLDERS:
            paths += sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
        found = []
        for path in filter(is_program, paths):
            lines = path.read_text(encoding="utf-8").splitlines()
            found += [
                f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"
                for number, line in enumerate(lines, 1)
                if len(line) > 100 and not ONE_LITERAL.match(line.strip())
            ]
        self.assertEqual([], found)


if __name__ == "__main__":
    unittest.main()
