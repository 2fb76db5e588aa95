// How the ranks of a job compare values and act together: an error on one rank becomes the same
// error on all ranks.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"

namespace lockstep::inline v0::job {

class Session;

/// The ranks that agree. All functions are collective over them, and throw Error (communication) if
/// a rank is lost. A value handle: keeps a reference to the session or the group.
class Agreement {
 public:
  explicit Agreement(const Session& session);
  /// One member per rank.
  explicit Agreement(const allreduce::Communicator& group);

  /// Every rank's text, in rank order.
  std::vector<std::string> gather(const std::string& mine) const { return gather_(mine); }

  /// Every rank's value, in rank order. T is a type that nlohmann::json converts
  /// (NLOHMANN_DEFINE_TYPE_…); `what` names the values in messages.
  template <typename T>
  std::vector<T> gather_values(std::string_view what, const T& mine) const {
    std::vector<T> values;
    for (const std::string& text : gather(dump_json(nlohmann::json(mine))))
      values.push_back(parse_json(text, ErrorCategory::communication, what).template get<T>());
    return values;
  }

  /// The exception on a rank whose own work threw: that of all ranks, or its own.
  enum class LocalError { replaced, rethrown };
  /// Runs `work`, which must not communicate, on every rank, and returns every rank's result, in
  /// rank order. If it throws on any rank, all ranks throw Error (`category`) "[`where`]
  /// `expected`; rank R on HOST failed: reason" for the lowest such rank. With
  /// LocalError::rethrown, and always in a job of one rank, a rank rethrows its own exception.
  std::vector<std::string> all_or_none(ErrorCategory category, std::string_view where,
                                       std::string_view expected,
                                       const std::function<std::string()>& work,
                                       LocalError local = LocalError::replaced) const;

  /// Throws the same Error (input) on all ranks unless `mine` is the same on all: "[`where`]
  /// expected the same `what` on all ranks; rank 0 has …; rank 2 has …".
  void require_same(std::string_view where, std::string_view what, const std::string& mine) const;
  /// require_same() for several lines "WHAT: VALUE". The error names the first line that differs:
  /// "[`where`] expected the same WHAT on all ranks; rank 0 has …; ranks 1, 3 have …; rank 2 has
  /// …".
  void require_same_lines(std::string_view where, const std::string& mine) const;
  /// require_same() for texts that are gathered already.
  static void require_same(std::string_view where, std::string_view what,
                           const std::vector<std::string>& all);

 private:
  // Call it before an error that all ranks throw: returns when every rank has received the values.
  // If a rank exited earlier, the others would report its loss instead of the error.
  void wait_for_all() const;

  int size_;
  int rank_;
  std::function<std::vector<std::string>(const std::string&)> gather_;
};

}  // namespace lockstep::inline v0::job
