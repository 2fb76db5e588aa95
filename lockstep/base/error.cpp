#include "lockstep/base/error.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/printable.h"

namespace lockstep::inline v0 {
namespace {

/// Removes "LENGTH:" from the beginning of `text`; nullopt if it begins with something else.
std::optional<std::size_t> read_length(std::string_view& text) {
  std::size_t length = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, length);
  if (error != std::errc{} || after == end || *after != ':') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(after + 1 - text.data()));
  return length;
}

}  // namespace

std::string ErrorMessage::text() const {
  return printable(
      fmt::format("[{}] {}{} {}", where, expected, actual.starts_with("got ") ? ',' : ';', actual));
}

// Length prefixes, so that parts may contain any bytes. They come first, and `actual` has none, so
// that a text that a transport has truncated loses only its end.
std::string ErrorMessage::pack() const {
  return fmt::format("{}:{}:{}{}{}", where.size(), expected.size(), where, expected, actual);
}

ErrorMessage ErrorMessage::unpack(const std::string& packed) {
  std::string_view rest = packed;
  const auto where = read_length(rest);
  const auto expected = where ? read_length(rest) : std::nullopt;
  if (!expected) return {{}, packed, {}};
  const auto cut = [&rest](std::size_t length) {
    const std::string_view part = rest.substr(0, length);
    rest.remove_prefix(part.size());
    return std::string(part);
  };
  // The elements of a braced list are evaluated in their order.
  return {cut(*where), cut(*expected), std::string(rest)};
}

Error::Error(ErrorCategory category, ErrorMessage message)
    : std::runtime_error(message.text()),
      category_(category),
      message_(std::make_shared<const ErrorMessage>(std::move(message))) {}

Error::Error(ErrorCategory category, std::string_view where, std::string_view expected,
             std::string_view actual)
    : Error(category,
            ErrorMessage{std::string(where), std::string(expected), std::string(actual)}) {}

int exit_status(ErrorCategory category) noexcept {
  switch (category) {
    case ErrorCategory::input:
      return 2;
    case ErrorCategory::data:
    case ErrorCategory::checkpoint:
    case ErrorCategory::output:
      return 3;
    case ErrorCategory::communication:
      return 4;
    case ErrorCategory::device:
      return 5;
    case ErrorCategory::diverged:
      return 6;
  }
  return 1;
}

namespace detail {

void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  // From the launcher's environment variable, so that checks deep in the library need no handle to
  // the session.
  const char* rank = nullptr;
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK"})  // Open MPI, MPICH, Slurm, others
    if (rank == nullptr) rank = std::getenv(name);
  throw CheckFailure(fmt::format("[{}:{}] check failed on rank {}: {}; {}", file, line,
                                 rank ? rank : "0", expression, values));
}

}  // namespace detail
}  // namespace lockstep::inline v0
