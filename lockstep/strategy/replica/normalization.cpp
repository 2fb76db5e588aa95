#include "lockstep/strategy/replica/normalization.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::strategy {
namespace {

constexpr std::string_view kGroup = "group:";

}  // namespace

int NormalizationScope::members(int replicas) const {
  if (kind == Kind::local) return 1;
  if (kind == Kind::sync) return replicas;
  if (group < 1 || replicas % group != 0)
    throw Error(
        ErrorCategory::input, "bn",
        fmt::format("expected groups whose size divides the number of replicas, {}", replicas),
        fmt::format("got {}", to_string(*this)));
  return group;
}

NormalizationScope parse_normalization_scope(std::string_view name) {
  if (name == "local") return {};
  if (name == "sync") return {.kind = NormalizationScope::Kind::sync};
  if (name.starts_with(kGroup)) {
    const std::string_view size = name.substr(kGroup.size());
    NormalizationScope scope{.kind = NormalizationScope::Kind::group};
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), scope.group);
    if (error == std::errc{} && end == size.data() + size.size() && scope.group > 0) return scope;
  }
  throw Error(ErrorCategory::input, "bn",
              "expected local, sync or group:K with K replicas, 1 or more",
              fmt::format("got \"{}\"", name));
}

std::string to_string(const NormalizationScope& scope) {
  if (scope.kind == NormalizationScope::Kind::local) return "local";
  if (scope.kind == NormalizationScope::Kind::sync) return "sync";
  return fmt::format("{}{}", kGroup, scope.group);
}

}  // namespace lockstep::strategy
