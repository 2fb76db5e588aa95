// Checks errors of calls that fail on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

/// Returns the message of the Error (device) that `call` throws.
template <typename Call>
std::string device_error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(exit_status(error.category()), 5);
    return error.what();
  }
  return "no error";
}

}  // namespace lockstep::inline v0
