#include "lockstep/base/element_type.h"

#include "lockstep/base/enum_names.h"

namespace lockstep::inline v0 {
namespace {

constexpr auto kElementTypes = enum_names<ElementType>({{ElementType::uint8, "uint8"},
                                                        {ElementType::int32, "int32"},
                                                        {ElementType::int64, "int64"},
                                                        {ElementType::float32, "float32"},
                                                        {ElementType::bytes, "bytes"}});

}  // namespace

std::string_view to_string(ElementType type) { return kElementTypes.name(type); }

ElementType parse_element_type(std::string_view where, std::string_view name) {
  return kElementTypes.parse(where, name);
}

}  // namespace lockstep::inline v0
