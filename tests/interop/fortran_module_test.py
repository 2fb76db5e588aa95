"""The Fortran module (lockstep.f90) declares what the header of C (c_api.h) declares: each of its
functions has the same parameters there, and each type the same fields, in the same order.

    fortran_module_test.py SOURCE_DIR
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "lockstep/interop/c_api.h").read_text(), flags=re.DOTALL)
MODULE = (ROOT / "lockstep/interop/lockstep.f90").read_text()
MODULE = re.sub(r"&\s*", "", re.sub(r"!.*", "", MODULE))


def names_of_c(parameters):
    """The names in `const void* values, size_t count, int (*update)(void* state)`."""
    parameters = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", parameters)
    return [re.findall(r"\w+", one)[-1] for one in parameters.split(",") if one.strip() != "void"]


def functions_of_c():
    prototype = r"^[\w* ]+\b(lockstep_\w+)\(((?:[^();]|\([^)]*\))*)\);"
    found = re.findall(prototype, HEADER, re.MULTILINE)
    return {name: names_of_c(parameters) for name, parameters in found}


def functions_of_fortran():
    found = re.findall(r"(?:function|subroutine) (\w+)\(([^)]*)\) bind\(C(?:, name=\"(\w+)\")?\)",
                       MODULE)
    return {label or name: re.findall(r"\w+", parameters) for name, parameters, label in found}


class FortranModule(unittest.TestCase):
    def test_declares_functions_of_the_header(self):
        of_c, of_fortran = functions_of_c(), functions_of_fortran()
        self.assertGreater(len(of_fortran), 20)
        for name, parameters in of_fortran.items():
            with self.subTest(name):
                self.assertEqual(parameters, of_c.get(name))

    def test_declares_types_with_the_fields_of_the_header(self):
        types = re.findall(r"type, bind\(C\) :: (\w+)\n(.*?)end type", MODULE, re.DOTALL)
        self.assertEqual(len(types), 3)
        for name, body in types:
            fields = re.search(rf"typedef struct {name} \{{(.*?)\}}", HEADER, re.DOTALL).group(1)
            with self.subTest(name):
                self.assertEqual(re.findall(r":: (\w+)", body),
                                 re.findall(r"(\w+);", fields))

    def test_numbers_the_constants_of_the_header(self):
        enums = re.findall(r"enum \w+ \{(.*?)\}", HEADER, re.DOTALL)
        of_fortran = re.findall(r"enumerator :: ([^\n]*(?:\n[^\n]*)??)\n\s*end enum", MODULE)
        self.assertEqual(len(enums), len(of_fortran))
        for c, fortran in zip(enums, of_fortran):
            names = re.findall(r"LOCKSTEP_\w+", c)
            self.assertEqual(re.findall(r"LOCKSTEP_\w+", fortran), names)
            self.assertEqual([int(number) for number in re.findall(r"= (\d+)", c)],
                             list(range(len(names))))


if __name__ == "__main__":
    unittest.main()
