#include "lockstep/strategy/step/normalization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::strategy {
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
    const int size = parse_number<int>(name.substr(kGroup.size())).value_or(0);
    if (size > 0) return {.kind = NormalizationScope::Kind::group, .group = size};
  }
  static constexpr std::array<std::string_view, 2> kNames = {"local", "sync"};
  throw Error(ErrorCategory::input, "bn",
              "expected local, sync or group:K with K replicas, 1 or more", got_name(name, kNames));
}

std::string to_string(const NormalizationScope& scope) {
  if (scope.kind == NormalizationScope::Kind::local) return "local";
  if (scope.kind == NormalizationScope::Kind::sync) return "sync";
  return fmt::format("{}{}", kGroup, scope.group);
}

const model::Node* find_normalization_of_one_value(const model::Network& network,
                                                   std::int64_t samples, int replicas,
                                                   int accumulate,
                                                   const NormalizationScope& scope) {
  // Samples of the smallest group of members. Replicas without samples do not count.
  const std::int64_t together =
      std::max<std::int64_t>(1, samples * scope.members(replicas) / replicas);
  if (together >= 2 * std::int64_t{accumulate}) return nullptr;  // two in each micro-batch
  for (const model::Node& node : network.nodes()) {
    if (dynamic_cast<const model::BatchNormalization*>(node.layer.get()) == nullptr ||
        network.is_frozen(node))
      continue;
    const model::Shape& input = network.shape(node.inputs.front());
    if (model::element_count(input) == input.back()) return &node;
  }
  return nullptr;
}

}  // namespace lockstep::inline v0::strategy
