"""Includes point downwards only: no module includes one above it or at its level, and no two
components of a module include each other, nor
two of its folders.

A component is a header with its source: files of one stem in one folder. docs/architecture.md draws
the modules.
"""
import collections
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]

# The modules that each module may include.
BELOW = {
    "base": [],
    "net": ["base"],
    "device": ["base"],
    "random": ["base"],
    "model": ["base", "random", "device"],
    "data": ["base", "random"],
    "allreduce": ["base", "net", "device"],
    "job": ["base", "net", "device", "allreduce"],
    "checkpoint": ["base", "net", "device", "model", "data", "allreduce", "job"],
    "onnx": ["base", "device", "model", "data", "checkpoint"],
    "strategy": ["base", "net", "device", "model", "data", "allreduce", "job", "checkpoint"],
    "train": [
        "base", "net", "device", "model", "data", "allreduce", "job", "checkpoint", "onnx",
        "strategy",
    ],
    "interop": ["base", "net", "device", "allreduce", "job"],
    "interop/torch": [
        "base", "random", "net", "device", "model", "data", "allreduce", "job", "checkpoint",
        "interop",
    ],
}
MOST_FILES = 25  # in a folder, without those of its sub-folders
# Headers that only machines with a CUDA toolkit, cuDNN or NCCL have, and the sources that every
# machine compiles.
GPU_HEADER = re.compile(r'^\s*#\s*include <(cuda|cudnn|cublas|nccl)', re.MULTILINE)
COMMON_SOURCES = re.compile(
    r"lockstep_module\(\w+(.*?)\s+DEPENDS|OTHERWISE ([\w/.]+)", re.DOTALL)
# A layer's function that compiles it for a GPU: builds without CUDA define it in another file.
COMPILED_FOR_GPU = re.compile(r"(\w+)::compile_gpu\(")
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)


def sources():
    for path in sorted((ROOT / "lockstep").rglob("*")):
        if path.suffix in {".h", ".cpp", ".cu"}:
            yield path.relative_to(ROOT).as_posix(), INCLUDE.findall(path.read_text())


def module_of(path):
    if path.startswith("lockstep/interop/torch"):
        return "interop/torch"
    parts = path.split("/")
    return parts[1] if parts[0] == "lockstep" and len(parts) > 2 else parts[0]


def component_of(path):
    return path.rsplit(".", 1)[0]


def folder_of(path):
    parts = path.split("/")
    return parts[2] if len(parts) > 3 else "."


def circles(arrows):
    """The strongly connected components of more than one node (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            members = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(members) > 1:
                found.append(sorted(members))

    for node in list(arrows):
        if node not in index:
            visit(node)
    return found


class Includes(unittest.TestCase):
    def test_point_downwards(self):
        for path, included in sources():
            module = module_of(path)
            if module not in BELOW:  # lockstep.h, which is above all
                continue
            for other in included:
                with self.subTest(f"{path} includes {other}"):
                    self.assertIn(module_of(other), [module, *BELOW[module]])

    def test_have_no_circles(self):
        arrows = collections.defaultdict(set)
        for path, included in sources():
            for other in included:
                if component_of(other) != component_of(path):
                    arrows[component_of(path)].add(component_of(other))
        self.assertEqual(circles(arrows), [])

    def test_of_folders_have_no_circles(self):
        arrows = collections.defaultdict(lambda: collections.defaultdict(set))
        for path, included in sources():
            for other in included:
                if module_of(other) == module_of(path) and folder_of(other) != folder_of(path):
                    arrows[module_of(path)][folder_of(path)].add(folder_of(other))
        for module in sorted(arrows):
            with self.subTest(module):
                self.assertEqual(circles(arrows[module]), [])

    def test_are_in_folders_that_one_can_overlook(self):
        files = collections.Counter(
            path.parent.relative_to(ROOT).as_posix()
            for folder in ("lockstep", "apps") for path in (ROOT / folder).rglob("*")
            if path.suffix in {".h", ".cpp", ".cu"})
        self.assertEqual([], [f"{folder}: {count} files" for folder, count in files.items()
                              if count > MOST_FILES])

    def test_of_public_headers_need_no_mpi(self):
        printed = subprocess.run(["cmake", "-P", ROOT / "third_party/public_headers.cmake"],
                                 capture_output=True, text=True, check=True).stderr
        for header in printed.split():
            if header != "lockstep/mpi.h":
                with self.subTest(header):
                    self.assertNotIn("#include <mpi.h>", (ROOT / header).read_text())

    def test_need_no_gpu_headers_without_a_gpu(self):
        included_by = dict(sources())

        def chain(path):
            if GPU_HEADER.search((ROOT / path).read_text()):
                return [path]
            visited.add(path)
            for other in included_by.get(path, []):
                found = chain(other) if other not in visited else []
                if found:
                    return [path, *found]
            return []

        for module in sorted((ROOT / "lockstep").rglob("CMakeLists.txt")):
            for lists in COMMON_SOURCES.findall(module.read_text()):
                for source in " ".join(lists).split():
                    if source in ("SOURCES", "FUSES", "RARE") or source.startswith("$"):
                        continue  # what follows, or a generated source
                    path = (module.parent / source).relative_to(ROOT).as_posix()
                    visited = set()
                    with self.subTest(path):
                        self.assertEqual(chain(path), [])

    def test_build_each_layer_without_a_gpu(self):
        model = ROOT / "lockstep/model"
        without = COMPILED_FOR_GPU.findall((model / "backends/no_cuda.cpp").read_text())
        with_gpu = [layer for path in (model / "layers").rglob("cuda.cpp")
                    for layer in COMPILED_FOR_GPU.findall(path.read_text())]
        self.assertEqual(sorted(without), sorted(with_gpu))

    def test_name_files_that_exist(self):
        for path, included in sources():
            for other in included:
                with self.subTest(f"{path} includes {other}"):
                    self.assertTrue((ROOT / other).is_file())


if __name__ == "__main__":
    unittest.main()
