#include <Eigen/Core>
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/lanes.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/pooling/pooling.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// A half-open range of rows or columns.
struct Interval {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Windows along the height or the width.
struct Axis {
  std::int64_t extent, outputs, kernel, stride, pad;

  std::int64_t begin(std::int64_t window) const { return window * stride - pad; }
  // The range that a window covers.
  Interval covered(std::int64_t window) const {
    return {std::max(begin(window), std::int64_t{0}), std::min(begin(window) + kernel, extent)};
  }
  // The windows that cover each row or column.
  std::vector<Interval> covering() const {
    std::vector<Interval> windows;
    for (std::int64_t input = 0; input < extent; ++input) {
      const std::int64_t reach =
          input + pad - kernel;  // the last begin that does not reach the input
      windows.push_back(
          {reach < 0 ? 0 : reach / stride + 1, std::min((input + pad) / stride + 1, outputs)});
    }
    return windows;
  }
};

// Places in a window, stored as bytes or integers.
using ByteLanes [[gnu::vector_size(kLanes)]] = std::uint8_t;
using ByteQuarters [[gnu::vector_size(4 * kLanes)]] = std::uint8_t;
using ShortLanes [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;

// Shuffles with zeros, which compilers do not generate for a vector conversion.
template <std::size_t... kIndex>
IntLanes integers_of(const ByteLanes& bytes, std::index_sequence<kIndex...> /*two of each*/) {
  const auto shorts = reinterpret_cast<ShortLanes>(__builtin_shufflevector(
      bytes, ByteLanes{}, (kIndex % 2 == 0 ? kIndex / 2 : kLanes + kIndex / 2)...));
  return reinterpret_cast<IntLanes>(__builtin_shufflevector(
      shorts, ShortLanes{}, (kIndex % 2 == 0 ? kIndex / 2 : kLanes + kIndex / 2)...));
}
template <std::size_t... kIndex>
ByteLanes lowest_bytes(const IntLanes& lanes, std::index_sequence<kIndex...> /*lanes*/) {
  const auto bytes = reinterpret_cast<ByteQuarters>(lanes);
  return __builtin_shufflevector(bytes, bytes, (4 * kIndex)...);
}

template <typename Index>
[[gnu::always_inline]] inline IntLanes load_places(const Index* from, std::int64_t count) {
  using Places [[gnu::vector_size(kLanes * sizeof(Index))]] = Index;
  Places places{};
  if (count == kLanes)
    std::memcpy(&places, from, sizeof places);
  else
    std::memcpy(&places, from, static_cast<std::size_t>(count) * sizeof(Index));
  if constexpr (sizeof(Index) == 1)
    return integers_of(places, std::make_index_sequence<2 * kLanes>());
  else
    return places;
}
template <typename Index>
[[gnu::always_inline]] inline void store_places(const IntLanes& values, Index* to,
                                                std::int64_t count) {
  const auto store = [&](const auto& places) {
    if (count == kLanes)
      std::memcpy(to, &places, sizeof places);
    else
      std::memcpy(to, &places, static_cast<std::size_t>(count) * sizeof(Index));
  };
  if constexpr (sizeof(Index) == 1)
    store(lowest_bytes(values, std::make_index_sequence<kLanes>()));
  else
    store(values);
}

// Calls each(first channel, count) for all channels; the count of whole registers is a constant.
template <typename Each>
[[gnu::always_inline]] inline void each_lanes(std::int64_t channels, const Each& each) {
  const std::int64_t whole = channels / kLanes * kLanes;
  for (std::int64_t channel = 0; channel < whole; channel += kLanes)
    each(channel, std::integral_constant<std::int64_t, kLanes>());
  if (whole < channels) each(whole, channels - whole);
}

IntLanes lanes_of_place(std::int64_t place) {
  return IntLanes{} + static_cast<std::int32_t>(place);
}

struct Geometry {
  std::int64_t channels;
  Axis rows, columns;

  float pixels(const Interval& vertical, const Interval& horizontal) const {
    return static_cast<float>(vertical.size() * horizontal.size());
  }
};

// The passes of a row of pixels of an output or an input gradient. The geometry is passed by value:
// stores of bytes, which may alias anything, would force reloads.

// `image` is the input image, `to` and `places` the row. Selects the first of equal values, and NaN
// if present. Null `places` are not written.
template <typename T, typename Index>
void max_row(const Geometry g, std::int64_t row, const T* image, T* to, Index* places) {
  const Interval rows = g.rows.covered(row);
  const std::int64_t line = g.columns.extent * g.channels;
  for (std::int64_t column = 0; column < g.columns.outputs; ++column) {
    const Interval columns = g.columns.covered(column);
    const std::int64_t first_place = (rows.begin - g.rows.begin(row)) * g.columns.kernel +
                                     columns.begin - g.columns.begin(column);
    const T* const window = image + rows.begin * line + columns.begin * g.channels;
    each_lanes(g.channels, [&](std::int64_t channel, auto count) {
      const T* from = window + channel;
      Lanes largest = load_partial(from, count);
      IntLanes where = lanes_of_place(first_place);
      for (std::int64_t y = 0; y < rows.size(); ++y, from += line) {
        const T* pixel = from;
        IntLanes here = lanes_of_place(first_place + y * g.columns.kernel);
        for (std::int64_t x = 0; x < columns.size(); ++x, pixel += g.channels, here += 1) {
          const Lanes values = load_partial(pixel, count);
          const IntLanes is_nan = values != values;  // NOLINT(misc-redundant-expression)
          const IntLanes wins = (values > largest) | is_nan;
          largest = wins ? values : largest;
          where = wins ? here : where;
        }
      }
      const std::int64_t offset = column * g.channels + channel;
      store_partial(largest, to + offset, count);
      if (places != nullptr) store_places(where, places + offset, count);
    });
  }
}

template <typename T>
void mean_row(const Geometry g, std::int64_t row, const T* image, T* to) {
  const Interval rows = g.rows.covered(row);
  const std::int64_t line = g.columns.extent * g.channels;
  for (std::int64_t column = 0; column < g.columns.outputs; ++column) {
    const Interval columns = g.columns.covered(column);
    const T* const window = image + rows.begin * line + columns.begin * g.channels;
    each_lanes(g.channels, [&](std::int64_t channel, auto count) {
      Lanes sum{};
      for (std::int64_t y = 0; y < rows.size(); ++y)
        for (std::int64_t x = 0; x < columns.size(); ++x)
          sum += load_partial(window + channel + y * line + x * g.channels, count);
      store_partial(sum / g.pixels(rows, columns), to + column * g.channels + channel, count);
    });
  }
}

// `image` and `places` are those of the output, `to` the row; `windows` cover it,
// `column_windows[i]` its pixels.
template <typename T, typename Index>
void max_gradient_row(const Geometry g, std::int64_t row, const Interval windows,
                      const Interval* column_windows, const T* image, const Index* places, T* to) {
  const std::int64_t line = g.columns.outputs * g.channels;
  for (std::int64_t column = 0; column < g.columns.extent; ++column) {
    const Interval across = column_windows[column];
    const std::int64_t first = windows.begin * line + across.begin * g.channels;
    const std::int64_t place = (row - g.rows.begin(windows.begin)) * g.columns.kernel + column -
                               g.columns.begin(across.begin);
    const bool is_single = windows.size() == 1 && across.size() == 1;
    each_lanes(g.channels, [&](std::int64_t channel, auto count) {
      // The gradient of a window where its largest value is here.
      const auto gradient_at = [&](std::int64_t offset, std::int64_t here) {
        return load_places(places + offset, count) == lanes_of_place(here)
                   ? load_partial(image + offset, count)
                   : Lanes{};
      };
      Lanes sum{};
      if (is_single) {
        sum = gradient_at(first + channel, place);
      } else {
        for (std::int64_t y = 0; y < windows.size(); ++y)
          for (std::int64_t x = 0; x < across.size(); ++x)
            sum += gradient_at(first + y * line + x * g.channels + channel,
                               place - y * g.rows.stride * g.columns.kernel - x * g.columns.stride);
      }
      store_partial(sum, to + column * g.channels + channel, count);
    });
  }
}

template <typename T>
void mean_gradient_row(const Geometry g, const Interval windows, const Interval* column_windows,
                       const T* image, T* to) {
  const std::int64_t line = g.columns.outputs * g.channels;
  for (std::int64_t column = 0; column < g.columns.extent; ++column)
    each_lanes(g.channels, [&](std::int64_t channel, auto count) {
      Lanes sum{};
      for (std::int64_t y = windows.begin; y < windows.end; ++y)
        for (std::int64_t x = column_windows[column].begin; x < column_windows[column].end; ++x)
          sum += load_partial(image + y * line + x * g.channels + channel, count) /
                 g.pixels(g.rows.covered(y), g.columns.covered(x));
      store_partial(sum, to + column * g.channels + channel, count);
    });
}

// T is the type of elements, Index that of places in a window. Every output reads its window, every
// input gathers from the windows that cover it: no element is written twice.
template <typename T, typename Index>
class Pool2DOperation final : public Operation {
 public:
  explicit Pool2DOperation(const Pool2DSpec& spec)
      : batch_(spec.batch),
        g_{spec.window.channels,
           {spec.window.height, spec.window.output_height, spec.window.kernel_height,
            spec.window.stride_height, spec.window.pad_top},
           {spec.window.width, spec.window.output_width, spec.window.kernel_width,
            spec.window.stride_width, spec.window.pad_left}},
        windows_of_row_(g_.rows.covering()),
        windows_of_column_(g_.columns.covering()),
        is_max_(spec.kind == Pool2DSpec::Kind::max),
        saves_places_(is_max_ && spec.training) {}

  Needs needs() const override {
    const std::int64_t outputs = batch_ * output_image();
    return {.inputs_in_backward = false,
            .output_in_backward = false,
            .saved_bytes = saves_places_ ? static_cast<std::size_t>(outputs) * sizeof(Index) : 0};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    const auto* const input = static_cast<const T*>(t.inputs[0].data());
    auto* const output = static_cast<T*>(t.output.data());
    auto* const places = saves_places_ ? reinterpret_cast<Index*>(t.saved.data()) : nullptr;
    each_row(g_.rows.outputs, [&](std::int64_t image, std::int64_t row) {
      const std::int64_t to = image * output_image() + row * g_.columns.outputs * g_.channels;
      const T* const from = input + image * input_image();
      if (is_max_)
        max_row(g_, row, from, output + to, places == nullptr ? nullptr : places + to);
      else
        mean_row(g_, row, from, output + to);
    });
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (t.input_gradients[0].empty()) return;
    const auto* const gradient = static_cast<const T*>(t.output_gradient.data());
    const auto* const places = reinterpret_cast<const Index*>(t.saved.data());
    auto* const result = static_cast<T*>(t.input_gradients[0].data());
    each_row(g_.rows.extent, [&](std::int64_t image, std::int64_t row) {
      T* const to = result + image * input_image() + row * g_.columns.extent * g_.channels;
      const std::int64_t from = image * output_image();
      const Interval windows = windows_of_row_[static_cast<std::size_t>(row)];
      if (is_max_)
        max_gradient_row(g_, row, windows, windows_of_column_.data(), gradient + from,
                         places + from, to);
      else
        mean_gradient_row(g_, windows, windows_of_column_.data(), gradient + from, to);
    });
  }

 private:
  std::int64_t input_image() const { return g_.rows.extent * g_.columns.extent * g_.channels; }
  std::int64_t output_image() const { return g_.rows.outputs * g_.columns.outputs * g_.channels; }

  // Calls each(image, row) in parallel.
  template <typename Each>
  void each_row(std::int64_t height, const Each& each) const {
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
    for (std::int64_t row = 0; row < batch_ * height; ++row) each(row / height, row % height);
  }

  std::int64_t batch_;
  Geometry g_;
  std::vector<Interval> windows_of_row_;
  std::vector<Interval> windows_of_column_;
  bool is_max_;
  bool saves_places_;
};

template <typename T>
std::unique_ptr<Operation> make_pool(const Pool2DSpec& spec) {
  constexpr std::int64_t kBytePlaces = std::numeric_limits<std::uint8_t>::max() + 1;
  if (spec.window.kernel_height * spec.window.kernel_width <= kBytePlaces)
    return std::make_unique<Pool2DOperation<T, std::uint8_t>>(spec);
  return std::make_unique<Pool2DOperation<T, std::int32_t>>(spec);
}

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Pool2D::compile_cpu(const CompileContext& context,
                                               cpu::Context& cpu) const {
  if (cpu.type == cpu::memory::data_type::bf16)
    return cpu::make_pool<Eigen::bfloat16>(spec(context));
  return cpu::make_pool<float>(spec(context));
}

}  // namespace lockstep::inline v0::model
