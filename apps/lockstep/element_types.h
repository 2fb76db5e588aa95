// The types that reductions are timed on, by name: the one place that lists them.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lockstep/base/float16.h"

namespace lockstep::apps {

/// A type of elements: its name, its bits of precision, and what MPI calls it (null where it does not know it).
template <typename T>
struct ElementType;

template <>
struct ElementType<float> {
  using Value = float;
  static constexpr std::string_view kName = "float32";
  static constexpr int kPrecision = std::numeric_limits<float>::digits;
  static MPI_Datatype mpi() { return MPI_FLOAT; }
};
template <>
struct ElementType<double> {
  using Value = double;
  static constexpr std::string_view kName = "float64";
  static constexpr int kPrecision = std::numeric_limits<double>::digits;
  static MPI_Datatype mpi() { return MPI_DOUBLE; }
};
template <>
struct ElementType<Float16> {
  using Value = Float16;
  static constexpr std::string_view kName = "float16";
  static constexpr int kPrecision = 11;
  static MPI_Datatype mpi() { return MPI_DATATYPE_NULL; }
};
template <>
struct ElementType<BFloat16> {
  using Value = BFloat16;
  static constexpr std::string_view kName = "bfloat16";
  static constexpr int kPrecision = 8;
  static MPI_Datatype mpi() { return MPI_DATATYPE_NULL; }
};
template <>
struct ElementType<std::int32_t> {
  using Value = std::int32_t;
  static constexpr std::string_view kName = "int32";
  static constexpr int kPrecision = std::numeric_limits<std::int32_t>::digits;
  static MPI_Datatype mpi() { return MPI_INT32_T; }
};
template <>
struct ElementType<std::int64_t> {
  using Value = std::int64_t;
  static constexpr std::string_view kName = "int64";
  static constexpr int kPrecision = std::numeric_limits<std::int64_t>::digits;
  static MPI_Datatype mpi() { return MPI_INT64_T; }
};

using ElementTypes = std::tuple<ElementType<float>, ElementType<double>, ElementType<Float16>, ElementType<BFloat16>,
                                ElementType<std::int32_t>, ElementType<std::int64_t>>;

/// Calls `body(ElementType<T>{})` for the type of this name; does nothing for a name that is none.
template <typename Body>
void with_element_type(std::string_view name, const Body& body) {
  std::apply([&](auto... types) { ((types.kName == name ? body(types) : void()), ...); }, ElementTypes{});
}

inline std::vector<std::string> element_type_names() {
  return std::apply([](auto... types) { return std::vector<std::string>{std::string(types.kName)...}; },
                    ElementTypes{});
}

}  // namespace lockstep::apps
