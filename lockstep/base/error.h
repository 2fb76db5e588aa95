// The two kinds of error: one that a user or an operator can fix (Error), and a broken invariant
// (CheckFailure).
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::inline v0 {

/// The subject of a failure; determines the exit status of the program (`exit_status`).
enum class ErrorCategory {
  input,          ///< the command line, a configuration, a model description
  data,           ///< a data set cannot be read or does not match
  communication,  ///< a collective failed, or a rank was lost
  device,         ///< a device is missing or failed
  checkpoint,     ///< a checkpoint cannot be written, read or used
  output,         ///< standard output or another output cannot be written
  diverged,       ///< training ended without a healthy step
};

/// The parts of an error. Ranks exchange them when one rank fails and all must report it.
struct ErrorMessage {
  std::string where;     ///< the option, file, call or layer
  std::string expected;  ///< "expected …", and what to do if that is not obvious
  std::string actual;    ///< "got …", or a sentence that states what happened

  std::string text() const;  ///< "[where] expected, got …", or "[where] expected; what happened"

  std::string pack() const;  ///< serialized, for unpack() on another rank
  static ErrorMessage unpack(const std::string& packed);  ///< what pack() returned
};

/// An error that a user can fix. Its text is `[where] expected …, got …`, or `[where] expected …;
/// what happened`.
class Error : public std::runtime_error {
 public:
  /// An error with parts that exist already, such as those of another rank.
  Error(ErrorCategory category, ErrorMessage message);
  /// An error with the parts of an ErrorMessage.
  Error(ErrorCategory category, std::string_view where, std::string_view expected,
        std::string_view actual);

  /// Determines the exit status.
  ErrorCategory category() const noexcept { return category_; }
  /// The parts of the text.
  const ErrorMessage& message() const noexcept { return *message_; }

 private:
  ErrorCategory category_;
  std::shared_ptr<const ErrorMessage>
      message_;  // exceptions are copied, and copying must not throw
};

/// The program's exit status for an error of `category`: 2 for input; 3 for data, checkpoint and
/// output; 4 for communication; 5 for device; 6 for diverged.
int exit_status(ErrorCategory category) noexcept;

/// A broken invariant: a bug in Lockstep, not a user error. Its text contains the expression, both
/// values, and the rank.
class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& values);
}  // namespace detail

}  // namespace lockstep::inline v0

/// Throws CheckFailure with the expression and both values unless `left op right`. Both values must
/// be formattable by fmt; sources that use it include <fmt/format.h>.
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
