// What ranks tell each other while they form a group.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

/// Every rank's text in rank order. Collective over `ranks`.
std::vector<std::string> gather_texts(const Communicator& ranks, const std::string& mine);

/// Every rank's value in rank order. Collective over `ranks`.
template <typename T>
std::vector<T> gather_values(const Communicator& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values;
  for (const std::vector<std::byte>& bytes : ranks.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    LOCKSTEP_CHECK_OP(bytes.size(), ==, sizeof(T));
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof(T));
  }
  return values;
}

/// Throws, on all ranks, an Error of `category` with the problem of the lowest rank that has one.
/// Collective like gather_texts.
void raise_first(const Communicator& ranks, const std::optional<ErrorMessage>& problem,
                 ErrorCategory category = ErrorCategory::communication);

}  // namespace lockstep::inline v0::allreduce
