#include "lockstep/interop/gradient_arrays.h"

// Inline, for this processor: five times as fast as the library's baseline code.
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::interop {
namespace {

constexpr std::size_t kLineBytes = 64;
/// A block of a gradient and its copy fit into the L1 cache together.
constexpr std::size_t kBlockBytes = std::size_t{1} << 14;

std::size_t whole_lines_of(std::size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

}  // namespace

std::uint64_t hash_of(std::span<const std::byte> values) {
  return XXH3_64bits(values.data(), values.size());
}

GradientArrays::GradientArrays(const allreduce::Communicator& group,
                               std::vector<ParameterLayout> parameters, GradientLayout layout,
                               std::size_t scalars, DeviceMath math)
    : parameters_(std::move(parameters)),
      layout_(std::move(layout)),
      scalars_(scalars),
      math_(std::move(math)),
      wide_begin_(whole_lines_of((layout_.size + scalars) * sizeof(float))),
      memory_(std::make_shared<const device::Buffer>(
          group.allocate(wide_begin_ + layout_.wide_size * sizeof(double)))) {}

std::span<float> GradientArrays::narrow() const { return memory_->as<float>().first(layout_.size); }

std::span<float> GradientArrays::with_scalars() const {
  return memory_->as<float>().first(layout_.size + scalars_);
}

std::span<double> GradientArrays::wide() const {
  return memory_->as<double>().subspan(wide_begin_ / sizeof(double), layout_.wide_size);
}

template <typename T>
std::span<T> GradientArrays::gradient(std::size_t parameter) const {
  constexpr bool kIsWide = std::is_same_v<T, double>;
  const ParameterLayout& one = parameters_[parameter];
  LOCKSTEP_CHECK_OP(one.is_float64, ==, kIsWide);
  if constexpr (kIsWide)
    return wide().subspan(layout_.offsets[parameter], one.elements());
  else
    return narrow().subspan(layout_.offsets[parameter], one.elements());
}

template <typename T>
GradientMath<T>& GradientArrays::math() const {
  if constexpr (std::is_same_v<T, double>)
    return *math_.float64;
  else
    return *math_.float32;
}

template <typename T>
void GradientArrays::accumulate(std::size_t parameter, std::span<const T> values, bool adds,
                                double factor, std::uint64_t* hash) const {
  const std::span<T> to = gradient<T>(parameter);
  const auto copy = [&](std::size_t begin, std::size_t count) {
    if (adds)
      math<T>().add(to.subspan(begin, count), values.subspan(begin, count), factor);
    else
      math<T>().assign(to.subspan(begin, count), values.subspan(begin, count), factor);
  };
  if (hash == nullptr) return copy(0, values.size());
  // In blocks, so that memory is read once for the hash and the copy.
  constexpr std::size_t kBlock = kBlockBytes / sizeof(T);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - begin);
    XXH3_64bits_update(&state, values.data() + begin, count * sizeof(T));
    copy(begin, count);
  }
  *hash = XXH3_64bits_digest(&state);
}

void GradientArrays::scale(std::size_t parameter, double factor) const {
  if (parameters_[parameter].is_float64)
    math<double>().scale(gradient<double>(parameter), factor);
  else
    math<float>().scale(gradient<float>(parameter), factor);
}

void GradientArrays::clear(std::size_t parameter) const {
  if (parameters_[parameter].is_float64)
    math<double>().clear(gradient<double>(parameter));
  else
    math<float>().clear(gradient<float>(parameter));
}

void GradientArrays::scale_all(double factor) const {
  math<float>().scale(narrow(), factor);
  if (layout_.wide_size > 0) math<double>().scale(wide(), factor);
}

double GradientArrays::squared_norm() const {
  double squares = math<float>().squared_norm(narrow());
  if (layout_.wide_size > 0) squares += math<double>().squared_norm(wide());
  return squares;
}

double GradientArrays::squared_norm(std::size_t parameter) const {
  return parameters_[parameter].is_float64
             ? math<double>().squared_norm(gradient<double>(parameter))
             : math<float>().squared_norm(gradient<float>(parameter));
}

void GradientArrays::write_scalars(std::span<const float> all) const {
  math<float>().write(with_scalars().last(scalars_), all);
}

void GradientArrays::read_scalars(std::span<float> all) const {
  math<float>().read(all, with_scalars().last(scalars_));
}

template std::span<float> GradientArrays::gradient<float>(std::size_t) const;
template std::span<double> GradientArrays::gradient<double>(std::size_t) const;
template void GradientArrays::accumulate<float>(std::size_t, std::span<const float>, bool, double,
                                                std::uint64_t*) const;
template void GradientArrays::accumulate<double>(std::size_t, std::span<const double>, bool, double,
                                                 std::uint64_t*) const;

}  // namespace lockstep::inline v0::interop
