#include "lockstep/model/layers/conv_2d/direct_gradient.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// A tap is an image value at one place of each window; that of the bias is 1. Registers hold the
// sums of up to kMaxTaps taps and the filters of one or two vectors, besides the gradients of a
// window and an image value.
constexpr std::int64_t kMaxTaps = kLanes < 16 ? 6 : 12;
constexpr std::int64_t kVectors = 2;
constexpr std::int64_t kMaxBatchParts = 32;
// Number of gradients that stay in the L1 cache while the taps are read.
constexpr std::int64_t kGradients = 4096;

// Strides between windows of one or more rows, in image values.
struct Windows {
  std::int64_t rows, columns;
  std::int64_t row_step, column_step;
};

// Adds to sums[tap][filter] the products of the values at taps[tap], which are those of the first
// window, and the gradients of the windows.
template <std::size_t kTaps, std::size_t kCount>
void add_rows(const float* const* taps, const Windows& windows, const float* gradient,
              std::int64_t filters, float* sums) {
  std::array<const float*, kTaps> from;
  std::copy_n(taps, kTaps, from.begin());
  const auto sum_at = [&](std::size_t tap, std::size_t vector) {
    return sums + static_cast<std::int64_t>(tap) * filters +
           static_cast<std::int64_t>(vector) * kLanes;
  };
  Lanes sum[kTaps][kCount];
  for (std::size_t t = 0; t < kTaps; ++t)
    for (std::size_t v = 0; v < kCount; ++v) sum[t][v] = load_lanes(sum_at(t, v));
  for (std::int64_t row = 0; row < windows.rows; ++row) {
    std::int64_t at = row * windows.row_step;
    for (std::int64_t column = windows.columns; column > 0; --column) {
      Lanes pixel_gradient[kCount];
      for (std::size_t v = 0; v < kCount; ++v)
        pixel_gradient[v] = load_lanes(gradient + static_cast<std::int64_t>(v) * kLanes);
#pragma GCC unroll 16
      for (std::size_t t = 0; t < kTaps; ++t)
        for (std::size_t v = 0; v < kCount; ++v) sum[t][v] += from[t][at] * pixel_gradient[v];
      at += windows.column_step;
      gradient += filters;
    }
  }
  for (std::size_t t = 0; t < kTaps; ++t)
    for (std::size_t v = 0; v < kCount; ++v) store_lanes(sum[t][v], sum_at(t, v));
}

using AddRows = decltype(&add_rows<1, 1>);

// Element i is for i + 1 taps.
template <std::size_t kCount, std::size_t... kIndex>
constexpr std::array<AddRows, sizeof...(kIndex)> rows_of(std::index_sequence<kIndex...> /*taps*/) {
  return {&add_rows<kIndex + 1, kCount>...};
}
constexpr auto kRows = rows_of<kVectors>(std::make_index_sequence<kMaxTaps>());
constexpr auto kNarrowRows = rows_of<1>(std::make_index_sequence<kMaxTaps>());

// Rounds a number of floats up to whole cache lines.
std::int64_t in_lines(std::int64_t count) {
  constexpr std::int64_t kLine = 16;
  return (count + kLine - 1) / kLine * kLine;
}

}  // namespace

// With AVX2, 1.0 to 7 times as fast as oneDNN 2.6 for up to 4 channels (Zen 3), more so the fewer.
// It is not measured with other vectors.
bool DirectKernelGradient::is_profitable(const Conv2DSpec& spec, memory::data_type type) {
  constexpr std::int64_t kMeasuredLanes = 8;
  constexpr std::int64_t kMaxChannels = 4;
  constexpr std::int64_t kMinBatch = 8;         // samples, which threads share
  constexpr std::int64_t kMaxKernel = 1 << 14;  // elements, of the sums of each part
  const WindowGeometry& w = spec.window;
  return type == memory::data_type::f32 && spec.batch >= kMinBatch && spec.groups == 1 &&
         !w.is_dilated() && w.channels <= kMaxChannels && spec.filters % kLanes == 0 &&
         w.kernel_height * w.kernel_width <= kMaxKernel / w.channels / spec.filters &&
         kLanes == kMeasuredLanes && kLanes == lanes_of_onednn();
}

DirectKernelGradient::DirectKernelGradient(const Conv2DSpec& spec)
    : spec_(spec),
      taps_(spec.window.kernel_height * spec.window.kernel_width * spec.window.channels),
      parts_(std::min(spec.batch, kMaxBatchParts)),
      threads_(thread_budget()) {
  const WindowGeometry& w = spec.window;
  line_ = (w.width + w.pad_left + w.pad_right) * w.channels;
  copy_ = in_lines((w.height + w.pad_top + w.pad_bottom) * line_);
  columns_ = std::clamp<std::int64_t>(kGradients / spec.filters, 1, w.output_width);
  rows_ = std::clamp<std::int64_t>(kGradients / (columns_ * spec.filters), 1, w.output_height);
  ones_ = in_lines((rows_ - 1) * w.stride_height * line_ +
                   (columns_ - 1) * w.stride_width * w.channels + 1);
  sums_ = in_lines((taps_ + 1) * spec.filters);
}

std::size_t DirectKernelGradient::scratch_bytes() const {
  return static_cast<std::size_t>(ones_ + parts_ * sums_ + threads_ * copy_) * sizeof(float);
}

void DirectKernelGradient::copy_image(const float* image, float* to) const {
  const WindowGeometry& w = spec_.window;
  const std::int64_t row = w.width * w.channels;
  for (std::int64_t y = 0; y < w.height; ++y)
    std::copy_n(image + y * row, row, to + (w.pad_top + y) * line_ + w.pad_left * w.channels);
}

void DirectKernelGradient::add_image(const float* copy, const float* ones, const float* gradient,
                                     float* sums) const {
  const WindowGeometry& w = spec_.window;
  const std::int64_t filters = spec_.filters;
  const std::int64_t taps = spec_.bias ? taps_ + 1 : taps_;
  const std::int64_t blocks = (taps + kMaxTaps - 1) / kMaxTaps;
  const std::int64_t kernel_row = w.kernel_width * w.channels;
  for (std::int64_t y = 0; y < w.output_height; y += rows_) {
    for (std::int64_t x = 0; x < w.output_width; x += columns_) {
      const Windows windows = {.rows = std::min(rows_, w.output_height - y),
                               .columns = std::min(columns_, w.output_width - x),
                               .row_step = w.stride_height * line_,
                               .column_step = w.stride_width * w.channels};
      const float* const first_window = copy + y * windows.row_step + x * windows.column_step;
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * taps / blocks;
        const std::int64_t count = (block + 1) * taps / blocks - first;
        std::array<const float*, kMaxTaps> from{};
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t tap = first + i;
          from[static_cast<std::size_t>(i)] =
              tap < taps_ ? first_window + tap / kernel_row * line_ + tap % kernel_row : ones;
        }
        for (std::int64_t filter = 0; filter < filters;) {
          const bool is_last = filters - filter == kLanes;
          const AddRows add = (is_last ? kNarrowRows : kRows)[static_cast<std::size_t>(count - 1)];
          add(from.data(), windows, gradient + (y * w.output_width + x) * filters + filter, filters,
              sums + first * filters + filter);
          filter += is_last ? kLanes : kVectors * kLanes;
        }
      }
    }
  }
}

void DirectKernelGradient::run(const float* images, const float* output_gradient,
                               float* kernel_gradient, float* bias_gradient,
                               std::span<std::byte> scratch) const {
  const WindowGeometry& w = spec_.window;
  const std::int64_t filters = spec_.filters;
  const std::int64_t image = w.height * w.width * w.channels;
  const std::int64_t gradient = w.output_height * w.output_width * filters;
  auto* const ones = reinterpret_cast<float*>(scratch.data());
  float* const sums = ones + ones_;
  float* const copies = sums + parts_ * sums_;
  std::fill_n(ones, ones_, 1.0F);
#pragma omp parallel for num_threads(std::min(threads_, thread_budget())) schedule(static)
  for (std::int64_t part = 0; part < parts_; ++part) {
    float* const copy = copies + omp_get_thread_num() * copy_;
    std::fill_n(copy, copy_, 0.0F);
    std::fill_n(sums + part * sums_, sums_, 0.0F);
    const std::int64_t end = (part + 1) * spec_.batch / parts_;
    for (std::int64_t i = part * spec_.batch / parts_; i < end; ++i) {
      copy_image(images + i * image, copy);
      add_image(copy, ones, output_gradient + i * gradient, sums + part * sums_);
    }
  }
  for (std::int64_t part = 1; part < parts_; ++part)
    for (std::int64_t i = 0; i < sums_; ++i) sums[i] += sums[part * sums_ + i];
  for (std::int64_t filter = 0; filter < filters; ++filter)
    for (std::int64_t tap = 0; tap < taps_; ++tap)
      kernel_gradient[filter * taps_ + tap] = sums[tap * filters + filter];
  if (bias_gradient != nullptr) std::copy_n(sums + taps_ * filters, filters, bias_gradient);
}

}  // namespace lockstep::inline v0::model::cpu
