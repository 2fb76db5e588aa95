// Loads NCCL on first use.
#include <fmt/format.h>
#include <nccl.h>

#include "lockstep/base/forwarded_function.h"
#include "lockstep/base/system/loaded_library.h"

namespace {

const lockstep::LoadedLibrary& nccl() {
  static const lockstep::LoadedLibrary loaded = [] {
    lockstep::LoadedLibrary library(
        {.name = "NCCL",
         .file = fmt::format("libnccl.so.{}", NCCL_MAJOR),
         .folder = LOCKSTEP_NCCL_FOLDER,
         .use = "the all-reduce between GPUs",
         .advice = fmt::format("install NCCL {}.{} or newer", NCCL_MAJOR, NCCL_MINOR)});
    int version = 0;
    library.function<decltype(ncclGetVersion)>("ncclGetVersion")(&version);
    library.check_major_version(version / 10000, NCCL_MAJOR);
    return library;
  }();
  return loaded;
}

}  // namespace

LOCKSTEP_FORWARD(nccl, ncclAllGather)
LOCKSTEP_FORWARD(nccl, ncclAllReduce)
LOCKSTEP_FORWARD(nccl, ncclBroadcast)
LOCKSTEP_FORWARD(nccl, ncclCommAbort)
LOCKSTEP_FORWARD(nccl, ncclCommDestroy)
LOCKSTEP_FORWARD(nccl, ncclCommFinalize)
LOCKSTEP_FORWARD(nccl, ncclCommGetAsyncError)
LOCKSTEP_FORWARD(nccl, ncclCommInitRankConfig)
LOCKSTEP_FORWARD(nccl, ncclGetErrorString)
LOCKSTEP_FORWARD(nccl, ncclGetLastError)
LOCKSTEP_FORWARD(nccl, ncclGetUniqueId)
LOCKSTEP_FORWARD(nccl, ncclGetVersion)
LOCKSTEP_FORWARD(nccl, ncclGroupEnd)
LOCKSTEP_FORWARD(nccl, ncclGroupStart)
LOCKSTEP_FORWARD(nccl, ncclReduce)
LOCKSTEP_FORWARD(nccl, ncclReduceScatter)
