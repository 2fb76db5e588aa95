// Whether this machine can run tests that compute in bfloat16.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0 {

/// Returns why the processor cannot compute in bfloat16, for GTEST_SKIP; nullopt if it can.
inline std::optional<std::string> why_no_bfloat16() {
  try {
    model::make_backend(device::Device{}, {.precision = model::Precision::bfloat16});
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace lockstep::inline v0
