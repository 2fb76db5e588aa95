// Loads cuBLASLt when a GPU is first used.
#include <cublasLt.h>
#include <fmt/format.h>

#include "lockstep/base/forwarded_function.h"
#include "lockstep/base/system/loaded_library.h"

namespace {

const lockstep::LoadedLibrary& cublaslt() {
  static const lockstep::LoadedLibrary loaded = [] {
    lockstep::LoadedLibrary library(
        {.name = "cuBLASLt",
         .file = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
         .folder = LOCKSTEP_CUBLASLT_FOLDER,
         .use = "layers on GPUs",
         .advice = fmt::format("install cuBLAS for CUDA {}", CUBLAS_VER_MAJOR)});
    const auto version = library.function<decltype(cublasLtGetVersion)>("cublasLtGetVersion")();
    library.check_major_version(static_cast<int>(version / 10000), CUBLAS_VER_MAJOR);
    return library;
  }();
  return loaded;
}

}  // namespace

LOCKSTEP_FORWARD(cublaslt, cublasLtCreate)
LOCKSTEP_FORWARD(cublaslt, cublasLtDestroy)
LOCKSTEP_FORWARD(cublaslt, cublasLtGetStatusString)
LOCKSTEP_FORWARD(cublaslt, cublasLtGetVersion)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmul)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulAlgoGetHeuristic)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulDescCreate)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulDescDestroy)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulDescSetAttribute)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulPreferenceCreate)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulPreferenceDestroy)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatmulPreferenceSetAttribute)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatrixLayoutCreate)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatrixLayoutDestroy)
LOCKSTEP_FORWARD(cublaslt, cublasLtMatrixLayoutSetAttribute)
