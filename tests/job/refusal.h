// The error message of a call.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::job {

/// The message of the Error (input) that `call` throws.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

}  // namespace lockstep::inline v0::job
