#include "lockstep/base/float16.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Converts between Float16 and float.
template <typename From, typename To, typename EigenFrom, typename EigenTo>
void convert(std::span<const From> from, std::span<To> to) {
  static_assert(sizeof(From) == sizeof(EigenFrom) && sizeof(To) == sizeof(EigenTo));
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  const auto size = static_cast<Eigen::Index>(from.size());
  const Eigen::Map<const Eigen::Array<EigenFrom, Eigen::Dynamic, 1>> source(
      reinterpret_cast<const EigenFrom*>(from.data()), size);
  Eigen::Map<Eigen::Array<EigenTo, Eigen::Dynamic, 1>>(reinterpret_cast<EigenTo*>(to.data()),
                                                       size) = source.template cast<EigenTo>();
}

}  // namespace

void widen(std::span<const Float16> from, std::span<float> to) {
  convert<Float16, float, Eigen::half, float>(from, to);
}
void widen(std::span<const BFloat16> from, std::span<float> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  widen(reinterpret_cast<const BFloat16Bits*>(from.data()), std::ssize(from), to.data());
}
void narrow(std::span<const float> from, std::span<Float16> to) {
  convert<float, Float16, float, Eigen::half>(from, to);
}
void narrow(std::span<const float> from, std::span<BFloat16> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  narrow(from.data(), std::ssize(from), reinterpret_cast<BFloat16Bits*>(to.data()));
}

}  // namespace lockstep
