#include "allreduce/wire_type.h"

#include <array>

#include "device/error.h"

namespace lockstep::allreduce {
namespace {

struct WireName {
  WireType type;
  std::string_view name;
};

constexpr std::array<WireName, 3> kWireTypes = {
    {{WireType::float32, "float32"}, {WireType::bfloat16, "bfloat16"}, {WireType::float16, "float16"}}};

}  // namespace

WireType parse_wire_type(std::string_view name) {
  for (const WireName& known : kWireTypes)
    if (known.name == name) return known.type;
  throw Error(ErrorCategory::input, "--comm-dtype", "needed float32, bfloat16 or float16",
              fmt::format("got \"{}\"", name));
}

std::string to_string(WireType type) {
  for (const WireName& known : kWireTypes)
    if (known.type == type) return std::string(known.name);
  return "unknown";
}

}  // namespace lockstep::allreduce
