#include "lockstep/model/cuda/library/cudnn_version.h"

#include <cudnn.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::string cudnn_built_version() { return version_text(CUDNN_VERSION); }

std::string cudnn_loaded_version() {
  try {
    return version_text(cudnnGetVersion());
  } catch (const Error&) {  // the library is not installed
    return "absent";
  }
}

}  // namespace lockstep::inline v0::model
