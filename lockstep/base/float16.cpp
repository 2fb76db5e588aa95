#include "lockstep/base/float16.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

void widen(std::span<const Float16> from, std::span<float> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  const Float16* __restrict read = from.data();
  float* __restrict written = to.data();
  for (std::size_t i = 0; i < from.size(); ++i) written[i] = to_float(read[i]);
}
void widen(std::span<const BFloat16> from, std::span<float> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  widen(reinterpret_cast<const BFloat16Bits*>(from.data()), std::ssize(from), to.data());
}
void narrow(std::span<const float> from, std::span<Float16> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  const float* __restrict read = from.data();
  Float16* __restrict written = to.data();
  for (std::size_t i = 0; i < from.size(); ++i) written[i] = to_float16(read[i]);
}
void narrow(std::span<const float> from, std::span<BFloat16> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  narrow(from.data(), std::ssize(from), reinterpret_cast<BFloat16Bits*>(to.data()));
}

}  // namespace lockstep::inline v0
