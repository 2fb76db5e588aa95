// The two kinds of error: what a user or an operator can fix (Error), and a broken invariant of ours (CheckFailure).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

/// What a failure is about; decides the exit status of the program (`exit_status`).
enum class ErrorCategory {
  input,          ///< the command line, a configuration, a model description
  data,           ///< a data set that cannot be read or does not fit
  communication,  ///< a collective failed, or a rank was lost
  device,         ///< a device is missing or failed
  checkpoint,     ///< a checkpoint cannot be written, read or used
  output,         ///< standard output or another output was lost
  diverged,       ///< a training ended without a healthy step
};

/// Something a user can fix. The message is `[where] what was needed; what was given`.
class Error : public std::runtime_error {
 public:
  /// Its text becomes `[where] needed; given`.
  Error(ErrorCategory category, std::string_view where, std::string_view needed, std::string_view given)
      : std::runtime_error(fmt::format("[{}] {}; {}", where, needed, given)), category_(category) {}

  /// What kind of thing failed, which decides the exit status.
  ErrorCategory category() const noexcept { return category_; }

 private:
  ErrorCategory category_;
};

/// The program's exit status for an error of `category`: 2 input; 3 data, checkpoint and output; 4 communication; 5
/// device; 6 diverged.
int exit_status(ErrorCategory category) noexcept;

/// A broken invariant: a bug of ours, not of the user. Carries the expression, both values, and the rank.
class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& values);
}  // namespace detail

}  // namespace lockstep

/// Throws CheckFailure with the expression and both values unless `left op right`. Both values must be formattable by
/// fmt.
#define LOCKSTEP_CHECK_OP(left, op, right)                                                         \
  do {                                                                                             \
    const auto& lockstep_left = (left);                                                            \
    const auto& lockstep_right = (right);                                                          \
    if (!(lockstep_left op lockstep_right))                                                        \
      ::lockstep::detail::check_failed(__FILE__, __LINE__, #left " " #op " " #right,               \
                                       ::fmt::format("{} and {}", lockstep_left, lockstep_right)); \
  } while (false)

/// Throws CheckFailure unless `condition`.
#define LOCKSTEP_CHECK(condition)                                                                \
  do {                                                                                           \
    if (!(condition)) ::lockstep::detail::check_failed(__FILE__, __LINE__, #condition, "false"); \
  } while (false)
