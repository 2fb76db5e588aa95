#include "lockstep/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lockstep {
namespace {

constexpr char kBetweenParts = '\n';

}  // namespace

std::string ErrorMessage::text() const {
  return fmt::format("[{}] {}{} {}", where, expected, actual.starts_with("got ") ? ',' : ';',
                     actual);
}

std::string ErrorMessage::pack() const {
  return where + kBetweenParts + expected + kBetweenParts + actual;
}

ErrorMessage ErrorMessage::unpack(const std::string& packed) {
  const std::size_t first = packed.find(kBetweenParts);
  if (first == std::string::npos) return {{}, packed, {}};
  const std::size_t second = std::min(packed.find(kBetweenParts, first + 1), packed.size());
  return {packed.substr(0, first), packed.substr(first + 1, second - first - 1),
          packed.substr(std::min(second + 1, packed.size()))};
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
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})  // Open MPI, MPICH, Slurm
    if (rank == nullptr) rank = std::getenv(name);
  throw CheckFailure(fmt::format("[{}:{}] check failed on rank {}: {}; {}", file, line,
                                 rank ? rank : "0", expression, values));
}

}  // namespace detail
}  // namespace lockstep
