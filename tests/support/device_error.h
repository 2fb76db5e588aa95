// What a call that a GPU cannot serve says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

/// The message of the Error that `call` throws, whose exit status is that of devices.
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

}  // namespace lockstep
