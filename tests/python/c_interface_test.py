#!/usr/bin/env python3
"""c_interface_test.py PACKAGE HEADER: what the Python package says of the C interface is what its
header says."""
import ctypes
import pathlib
import re
import sys
import unittest

HEADER = pathlib.Path(sys.argv.pop(2)).read_text()
sys.path.insert(0, sys.argv.pop(1))
from lockstep import _library  # noqa: E402

CTYPES = {"int": ctypes.c_int, "size_t": ctypes.c_size_t, "double": ctypes.c_double, "void": None,
          "lockstep_session_options": _library.SessionOptions}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def ctype_of(declaration):
    """The type of a parameter, with or without its name. Objects are void*."""
    declaration = declaration.replace("* const*", "**").strip()
    base, stars = re.fullmatch(r"(?:const )?(\w+) ?(\**) ?\w*", declaration).groups()
    if not stars:
        return CTYPES.get(base)
    if stars == "**":
        return ctypes.POINTER(ctypes.c_void_p)
    if base == "char":
        return ctypes.c_char_p
    return ctypes.POINTER(CTYPES[base]) if CTYPES.get(base) else ctypes.c_void_p


def declared():
    """{function: (result, [argument, …])} of the header, without those that take functions."""
    functions = {}
    declaration = re.compile(r"^((?:const )?\w+ ?\**) ?lockstep_(\w+)\(([^;]*?)\);", re.MULTILINE)
    for result, name, arguments in declaration.findall(without_comments(HEADER)):
        if "(*" not in arguments:
            arguments = re.sub(r"\s+", " ", arguments)
            functions[name] = (ctype_of(result), [ctype_of(one) for one in arguments.split(",")
                                                  if one != "void"])
    return functions


class CInterface(unittest.TestCase):
    def test_functions_have_the_types_of_the_header(self):
        functions = declared()
        self.assertGreater(len(functions), 30)
        for name, arguments in _library.CHECKED.items():
            self.assertEqual(functions[name], (ctypes.c_int, list(arguments)), name)
        for name, (result, *arguments) in _library.PLAIN.items():
            self.assertEqual(functions[name], (result, arguments), name)

    def test_options_have_the_members_of_the_header(self):
        body = re.search(r"struct lockstep_session_options \{(.*?)\}",
                         without_comments(HEADER), re.DOTALL)[1]
        members = [(one.split()[-1].lstrip("*"), ctype_of(one))
                   for one in re.sub(r"\s+", " ", body).split(";") if one.strip()]
        self.assertEqual(_library.SessionOptions._fields_, members)

    def test_enumerations_have_the_values_of_the_header(self):
        for kind, values in (("type", _library.TYPES), ("op", _library.OPS)):
            body = re.search(rf"enum lockstep_{kind} \{{(.*?)\}}", without_comments(HEADER),
                             re.DOTALL)[1]
            found = {name.lower(): int(value)
                     for name, value in re.findall(r"LOCKSTEP_(\w+) = (\d+)", body)}
            self.assertEqual(found, values)
        statuses = dict(re.findall(r"LOCKSTEP_(\w+) = (\d+)",
                                   re.search(r"enum lockstep_status \{(.*?)\}",
                                             without_comments(HEADER), re.DOTALL)[1]))
        kinds = {"BUG": "Error", "INPUT": "InputError", "DATA": "DataError",
                 "COMMUNICATION": "CommunicationError", "DEVICE": "DeviceError"}
        self.assertEqual({int(statuses[name]): kind for name, kind in kinds.items()},
                         {status: kind.__name__ for status, kind in _library.ERRORS.items()})


if __name__ == "__main__":
    unittest.main()
