#include "data/order/shard_policy.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "device/error.h"

namespace lockstep::data {
namespace {

constexpr std::array<std::pair<ShardPolicy, std::string_view>, 4> kNames = {{{ShardPolicy::automatic, "auto"},
                                                                             {ShardPolicy::file, "file"},
                                                                             {ShardPolicy::data, "data"},
                                                                             {ShardPolicy::off, "off"}}};

}  // namespace

std::string_view to_string(ShardPolicy policy) {
  for (const auto& [each, name] : kNames)
    if (each == policy) return name;
  LOCKSTEP_CHECK(false);
}

ShardPolicy parse_shard_policy(std::string_view name) {
  for (const auto& [policy, each] : kNames)
    if (each == name) return policy;
  throw Error(ErrorCategory::input, "shard-policy", "needed auto, file, data or off", fmt::format("got \"{}\"", name));
}

}  // namespace lockstep::data
