// The error of a call, as text for matchers.
#pragma once

#include <fmt/format.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {

/// The message of the Error that `body` throws, "(no error)" where it throws none. An Error of
/// another category fails with both numbers.
template <typename Body>
std::string error_of(ErrorCategory category, Body body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.category() == category) return error.what();
    return fmt::format("(category {} instead of {}) {}", static_cast<int>(error.category()),
                       static_cast<int>(category), error.what());
  }
  return "(no error)";
}

template <typename Body>
std::string input_error_of(Body body) {
  return error_of(ErrorCategory::input, body);
}

}  // namespace lockstep::inline v0::model
