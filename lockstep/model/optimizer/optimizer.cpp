#include "lockstep/model/optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

// A range of the flat arrays that is updated with one formula and one set of constants. The arrays
// do not overlap; `first` and `second` are slots.
struct Arrays {
  std::size_t size;
  float* parameters;
  const float* gradients;
  float* first;   // momentum, m, or null
  float* second;  // v, or null
};

// One call of a CustomOptimizer for each block of a range: the scaled gradient of a block stays in
// the first cache.
void descend(const CustomOptimizer& optimizer, const UpdateRange& range,
             std::span<float> parameters, std::span<const float> gradients,
             std::span<std::vector<float>> slots, const UpdateContext& context) {
  constexpr std::size_t kBlock = 2048;
  std::array<float, kBlock> scaled;
  const float decay = range.group.weight_decay.value_or(optimizer.weight_decay());
  const UpdateNumbers numbers{.learning_rate = context.learning_rate,
                              .step = context.step,
                              .weight_decay = range.group.decay ? decay : 0};
  UpdateElements elements;
  elements.slots.resize(slots.size());
  for (std::size_t begin = range.begin; begin < range.end; begin += kBlock) {
    const std::size_t size = std::min(kBlock, range.end - begin);
    for (std::size_t i = 0; i < size; ++i)
      scaled[i] = gradients[begin + i] * context.gradient_scale;
    elements.values = parameters.subspan(begin, size);
    elements.gradients = std::span(scaled).first(size);
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
      elements.slots[slot] = std::span(slots[slot]).subspan(begin, size);
    optimizer.update(elements, numbers);
  }
}

// A slot that the current formula requires.
float* kept(float* slot) {
  LOCKSTEP_CHECK(slot != nullptr);
  return slot;
}

// The square root of the sum of value(i)^2. Uses one sum per lane, so that the compiler can
// vectorize and the order is still fixed by the source.
template <typename Value>
double norm_of(std::size_t size, const Value& value) {
  constexpr std::size_t kLanes = 32;
  std::array<double, kLanes> lanes{};
  const std::size_t whole = size / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto x = static_cast<double>(value(i + lane));
      lanes[lane] += x * x;
    }
  for (std::size_t i = whole; i < size; ++i) {
    const auto x = static_cast<double>(value(i));
    lanes[i - whole] += x * x;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return std::sqrt(sum);
}

// Copies the constants of the update, so that the compiler knows that the loops do not change them.
template <typename Update>
void descend(const Arrays& arrays, Update c) {
  float* __restrict w = arrays.parameters;
  const float* __restrict g = arrays.gradients;
  float* __restrict first = Update::kSlots.size() > 0 ? kept(arrays.first) : nullptr;
  float* __restrict second = Update::kSlots.size() > 1 ? kept(arrays.second) : nullptr;
  if constexpr (LayerWise<Update>) {
    for (std::size_t i = 0; i < arrays.size; ++i)
      at_element<Update>(i, w, first, second, g, [&](auto&... element) { c.follow(element...); });
    if (c.adapts) {
      const double parameters = norm_of(arrays.size, [&](std::size_t i) { return w[i]; });
      const double others = norm_of(arrays.size, [&](std::size_t i) {
        return at_element<Update>(i, w, first, second, g,
                                  [&](auto&... element) { return c.along(element...); });
      });
      c.rate = c.layer_rate(parameters, others);
    }
  }
  for (std::size_t i = 0; i < arrays.size; ++i)
    at_element<Update>(i, w, first, second, g, [&](auto&... element) { c.descend(element...); });
}

}  // namespace

std::vector<UpdateRange> update_ranges(const OptimizerOptions& options,
                                       const ParameterTable& table) {
  const bool is_custom = std::holds_alternative<CustomOptimizerPointer>(options);
  const bool join = !is_layer_wise(options) && !is_custom;
  std::vector<UpdateRange> ranges;
  for (const ParameterInfo& entry : table.entries()) {
    // The padding after a parameter belongs to its range, so adjacent ranges touch and can be
    // merged.
    if (ranges.empty() || !join || ranges.back().group != entry.group()) {
      if (!ranges.empty()) ranges.back().end = entry.offset;
      ranges.push_back({.begin = entry.offset, .end = 0, .group = entry.group()});
    }
    ranges.back().end = table.flat_size();
  }
  for (std::size_t i = 0; is_custom && i < ranges.size(); ++i)
    ranges[i].end = ranges[i].begin + table.entries()[i].count;
  return ranges;
}

Optimizer::Optimizer(OptimizerOptions options, const ParameterTable& table)
    : options_(std::move(options)), size_(table.flat_size()) {
  check_options(options_);
  ranges_ = update_ranges(options_, table);
  // Allocated in place: copying would double the memory.
  slots_.resize(slot_names().size());
  for (std::vector<float>& slot : slots_) slot.resize(table.flat_size());
}

void Optimizer::apply(std::span<float> parameters, std::span<const float> gradients,
                      float learning_rate, std::int64_t step, float gradient_scale) {
  LOCKSTEP_CHECK_OP(parameters.size(), ==, size_);
  LOCKSTEP_CHECK_OP(gradients.size(), ==, size_);
  LOCKSTEP_CHECK_OP(step, >, 0);
  const auto* const custom = std::get_if<CustomOptimizerPointer>(&options_);
  for (const UpdateRange& range : ranges_) {
    const UpdateContext context{learning_rate * range.group.rate_factor, step, gradient_scale,
                                range.group.decay, range.group.weight_decay};
    if (custom != nullptr) {
      descend(**custom, range, parameters, gradients, slots_, context);
      continue;
    }
    const auto slot_at = [&](std::size_t index) {
      return index < slots_.size() ? slots_[index].data() + range.begin : nullptr;
    };
    const Arrays arrays{range.end - range.begin, parameters.data() + range.begin,
                        gradients.data() + range.begin, slot_at(0), slot_at(1)};
    std::visit([&](const auto& update) { descend(arrays, update); }, update_of(options_, context));
  }
}

std::span<float> Optimizer::slot(std::string_view name) {
  const std::vector<std::string> names = slot_names();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return slots_[i];
  throw Error(ErrorCategory::checkpoint, to_string(options_),
              fmt::format("expected one of the slots {}", fmt::join(names, ", ")),
              fmt::format("got \"{}\"", name));
}

double global_norm(std::span<const float> gradients) {
  return norm_of(gradients.size(), [&](std::size_t i) { return gradients[i]; });
}

// 0 times a finite number is 0 of either sign; 0 times any other value is NaN, which a sum keeps.
// One sum per lane, as in norm_of. Runs from the end, which backward wrote last, to the beginning,
// where the update continues: both ends are then in the caches.
bool all_finite(std::span<const float> values) {
  constexpr std::size_t kLanes = 64;
  std::array<float, kLanes> lanes{};
  const std::size_t whole = values.size() / kLanes * kLanes;
  for (std::size_t end = whole; end > 0; end -= kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += values[end - kLanes + lane] * 0;
  for (std::size_t i = whole; i < values.size(); ++i) lanes[i - whole] += values[i] * 0;
  return std::ranges::all_of(lanes, [](float lane) { return lane == 0; });
}

float clip_scale(double norm, double limit) {
  return limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1;
}

}  // namespace lockstep::inline v0::model
