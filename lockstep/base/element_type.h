// The types of a tensor's elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::inline v0 {

/// `bytes` are strings of any length.
enum class ElementType { uint8, int32, int64, float32, bytes };

/// Bytes of one element; 0 for ElementType::bytes.
constexpr std::size_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::uint8:
      return 1;
    case ElementType::int32:
    case ElementType::float32:
      return 4;
    case ElementType::int64:
      return 8;
    case ElementType::bytes:
      return 0;
  }
  return 0;
}

/// Class number of a masked position, which is ignored by the loss, its gradient and metrics. Only
/// targets with several class numbers per sample may have it; a weight masks a whole sample.
inline constexpr std::int32_t kMasked = -1;

/// "uint8", "int32", "int64", "float32", "bytes".
std::string_view to_string(ElementType type);

/// The type called `name`. Throws Error (input) for other names; `where` is the key or option.
ElementType parse_element_type(std::string_view where, std::string_view name);

}  // namespace lockstep::inline v0
