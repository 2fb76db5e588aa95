"""Finds CUDA, its libraries and the libraries that Lockstep is built from: in the system, in Python
wheels, in scripts/gpu_pack."""

import glob
import os
import pathlib
import platform
import re
import shutil
import site
import subprocess
import sys

from gpu_steps import Failed, NotRun

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACK = ROOT / "build" / "gpu_pack"
FOLDER = ROOT / "build" / "gpu_check"
BUILD = FOLDER / "build"
# Test programs that need a GPU, by module: those of lockstep_gpu_test(). A build without NCCL has
# no NCCL tests.
TESTS = {
    "device": "device_on_gpu_tests",
    "allreduce": "allreduce_on_gpu_tests",
    "model": "model_on_gpu_tests",
    "strategy": "strategy_on_gpu_tests"
}
# A header of each library that CMake requires; MPI is found by its compiler.
HEADERS = [
    "eigen3/Eigen/Core", "CLI/CLI.hpp", "oneapi/dnnl/dnnl.hpp", "nlohmann/json.hpp",
    "spdlog/spdlog.h", "fmt/format.h", "zlib.h", "openssl/hmac.h", "isa-l.h", "xxhash.h",
    "utf8proc.h", "protozero/pbf_reader.hpp", "Random123/philox.h", "gtest/gtest.h",
    "gmock/gmock.h", "google/protobuf/message.h"
]
TRIPLE = f"{platform.machine()}-linux-gnu"


def wheel_folders():
    """The folders of NVIDIA's wheels in this Python: nvidia/cudnn, nvidia/nccl, nvidia/cu13."""
    places = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    return [
        pathlib.Path(folder) for place in dict.fromkeys(places) if place
        for folder in sorted(glob.glob(f"{place}/nvidia/*/"))
    ]


def find_nvcc(environment):
    named = [environment.get("CUDACXX"), shutil.which("nvcc", path=environment.get("PATH"))]
    usual = [
        "/usr/local/cuda/bin/nvcc", *sorted(glob.glob("/usr/local/cuda-*/bin/nvcc"), reverse=True),
        *[str(folder / "bin" / "nvcc") for folder in wheel_folders()]
    ]
    return next(
        (pathlib.Path(path) for path in [*named, *usual] if path and os.access(path, os.X_OK)),
        None)


def toolkit_of(nvcc):
    """The folder of the toolkit, as nvcc reports it: the program called nvcc may be a script
    elsewhere."""
    answer = subprocess.run([str(nvcc), "--dryrun", "-x", "cu", "/dev/null"], capture_output=True,
                            text=True, check=False)
    match = re.search(r"^#\$ TOP=(.+)$", answer.stderr, re.MULTILINE)
    return pathlib.Path(match.group(1).strip()).resolve() if match else nvcc.resolve().parent.parent


def library_in(folders, name):
    """lib<name>.so, or the file of its newest version if the plain name is missing, as in
    wheels."""
    for folder in folders:
        plain = folder / f"lib{name}.so"
        if plain.exists():
            return plain
        numbered = sorted(folder.glob(f"lib{name}.so.*"), key=lambda path: len(path.name))
        if numbered:
            return numbered[0]
    return None


def version_of(header, names):
    """1.2.3 from a header's #defines."""
    text = header.read_text(errors="replace")
    numbers = [re.search(rf"#define\s+{name}\s+(\d+)", text) for name in names]
    return ".".join(number.group(1) for number in numbers if number) or "unknown"


class Cuda:
    """The toolkit, and cuDNN, cuBLASLt and NCCL as CMake variables; `links` is a folder for the
    plain names that wheels lack."""

    WANTED = {
        "cudnn": ("cudnn_version.h", "CUDNN_INCLUDE", "CUDNN_LIBRARY",
                  ["CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"]),
        "nccl": ("nccl.h", "NCCL_INCLUDE", "NCCL_LIBRARY",
                 ["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"]),
        "cublasLt": ("cublasLt.h", "CUBLASLT_INCLUDE", "CUDA_cublasLt_LIBRARY", [])
    }

    def __init__(self, environment, links):
        self.nvcc, self.toolkit = find_nvcc(environment), None
        self.variables, self.versions, self.missing = {}, {}, []
        self.library_folders, self.include_folders = [], []
        if self.nvcc is None:
            self.missing = ["nvcc", *self.WANTED]
            return
        toolkit = self.toolkit = toolkit_of(self.nvcc)
        roots = [
            toolkit, self.nvcc.parent.parent,
            pathlib.Path("/usr/local"),
            pathlib.Path("/usr"), *wheel_folders()
        ]
        self.variables["CUDAToolkit_ROOT"] = toolkit
        for name, (header, include_variable, library_variable, defines) in self.WANTED.items():
            self._find(name, header, include_variable, library_variable, defines, roots, links)

    def _find(self, name, header, include_variable, library_variable, defines, roots, links):
        includes = [
            folder for root in roots for folder in [
                root / "include", root / "targets" / "x86_64-linux" / "include", root / "include" /
                TRIPLE
            ]
        ]
        libraries = [
            folder for root in roots for folder in [
                root / "lib64", root / "lib", root / "targets" / "x86_64-linux" / "lib", root /
                "lib" / TRIPLE
            ]
        ]
        include = next((folder for folder in includes if (folder / header).exists()), None)
        library = library_in(libraries, name)
        if include is None or library is None:
            self.missing.append(name)
            return
        if library.suffix != ".so":
            links.mkdir(parents=True, exist_ok=True)
            plain = links / f"lib{name}.so"
            plain.unlink(missing_ok=True)
            plain.symlink_to(library)
            self.library_folders.append(library.parent)
            library = plain
        else:
            self.library_folders.append(library.resolve().parent)
        self.variables[include_variable] = include
        self.variables[library_variable] = library
        self.include_folders.append(include)
        self.versions[name] = version_of(include / header, defines)


class Programs:
    """Where the programs are: built by scripts/gpu_check, or in `prebuilt`, a folder of
    scripts/gpu_pack --prebuilt."""

    def __init__(self, prebuilt=None):
        self.prebuilt = prebuilt

    def path(self, name):
        """NotRun if it was not built."""
        modules = {program: module for module, program in TESTS.items()}
        if self.prebuilt:
            path = self.prebuilt / "bin" / name
        elif name == "lockstep":
            path = BUILD / "apps" / "lockstep" / name
        else:
            path = BUILD / "tests" / modules.get(name, "bench") / name
        if not path.is_file():
            raise NotRun(f"not built: {name}")
        return path

    def environment(self):
        """The environment that DIR/run sets for the programs of a prebuilt folder. Failed with its
        message if they cannot run here."""
        answer = subprocess.run([str(self.prebuilt / "run"), "env", "-0"], capture_output=True,
                                text=True, check=False)
        if answer.returncode != 0:
            raise Failed(answer.stderr.strip())
        return dict(line.split("=", 1) for line in answer.stdout.split("\0") if "=" in line)


def missing_from_system(environment):
    """Libraries that CMake does not find without a pack."""
    places = ["/usr/include", "/usr/local/include", f"/usr/include/{TRIPLE}"]
    missing = [
        header for header in HEADERS
        if not any(os.path.exists(f"{place}/{header}") for place in places)
    ]
    for program in ["mpicxx", "mpirun", "pkg-config", "protoc"]:
        if not shutil.which(program, path=environment.get("PATH")):
            missing.append(program)
    return missing


def prepend(environment, name, *values):
    environment[name] = os.pathsep.join([*map(str, values), *filter(None, [environment.get(name)])])


def with_pack(environment, pack):
    """CMake variables for a pack; extends `environment` for building and running with it."""
    usr = pack / "usr"
    libraries = usr / "lib" / TRIPLE
    prepend(environment, "PATH", usr / "bin")
    prepend(environment, "LD_LIBRARY_PATH", libraries, libraries / "openmpi" / "lib",
            libraries / "pmix2" / "lib", usr / "lib" / "libpsm1")
    prepend(environment, "PKG_CONFIG_PATH", libraries / "pkgconfig", usr / "lib" / "pkgconfig",
            usr / "share" / "pkgconfig")
    prepend(environment, "CPLUS_INCLUDE_PATH",
            usr / "include")  # for nvcc, which does not get the paths of CMake's packages
    environment["OPAL_PREFIX"] = str(usr)
    environment["OPAL_LIBDIR"] = str(libraries / "openmpi" / "lib")
    environment["OPAL_INCLUDEDIR"] = str(libraries / "openmpi" / "include")
    # Ranks on one machine: without the networks that Debian's Open MPI searches for, and without
    # ssh, which may be missing.
    environment |= {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,vader,tcp",
        "OMPI_MCA_mca_base_component_show_load_errors": "0",
        "OMPI_MCA_plm_rsh_agent": "false",
        "PMIX_MCA_pcompress_base_silence_warning": "1"
    }
    environment["PMIX_INSTALL_PREFIX"] = str(libraries / "pmix2")
    return {
        "CMAKE_PREFIX_PATH": usr,
        "CMAKE_LIBRARY_ARCHITECTURE": TRIPLE,
        "MPI_CXX_COMPILER": usr / "bin" / "mpicxx.openmpi",
        "MPIEXEC_EXECUTABLE": usr / "bin" / "mpirun",
        "PKG_CONFIG_EXECUTABLE": usr / "bin" / "pkgconf"
    }


def environment_of(cuda, pack):
    """The environment of Lockstep's processes, and the variables for CMake. PyTorch gets the
    unchanged environment."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    variables = dict(cuda.variables)
    if pack is not None:
        variables |= with_pack(environment, pack)
    if cuda.nvcc is not None:
        prepend(environment, "PATH", cuda.nvcc.parent)
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            filter(None, [
                environment.get("LD_LIBRARY_PATH"), *map(str, dict.fromkeys(cuda.library_folders))
            ]))
        # Headers of the wheels are outside the toolkit's folder.
        outside = [
            folder for folder in dict.fromkeys(cuda.include_folders)
            if folder != pathlib.Path("/usr/include")
        ]
        environment["CPLUS_INCLUDE_PATH"] = os.pathsep.join(
            [*filter(None, [environment.get("CPLUS_INCLUDE_PATH")]), *map(str, outside)])
    return environment, variables
