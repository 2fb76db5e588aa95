#include "lockstep/model/compiled/device_speed.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model {
namespace {

constexpr double kLongEnough = 1e-3;   // seconds, compared with microseconds to start work on a GPU
constexpr std::int64_t kWidth = 1024;  // columns of the arrays of a ReLU

/// A single layer with arrays of [rows, columns].
class LoneLayer {
 public:
  LoneLayer(Backend& backend, const BuiltinLayer& layer, std::int64_t rows, std::int64_t columns)
      : backend_(backend),
        operation_(layer.compile({.name = "measurement",
                                  .batch = rows,
                                  .inputs = {{columns}},
                                  .output = {columns},
                                  .input_gradients = false},
                                 backend)) {
    operands_.inputs = {array(rows * columns)};
    operands_.output = array(rows * columns);
    if (const std::size_t scratch = operation_->needs().scratch_bytes; scratch > 0) {
      buffers_.push_back(backend.allocator().allocate(scratch));
      operands_.scratch = {static_cast<std::byte*>(buffers_.back().data()), scratch};
    }
  }

  /// Fills the operands with random values, because a GPU multiplies zeros faster.
  void fill(std::int64_t weights) {
    operands_.weights = {array(weights)};
    write(operands_.inputs[0], 1);
    write(operands_.weights[0], 2);
  }

  /// Seconds of one pass.
  double seconds(double measured) {
    constexpr int kPasses = 4;  // amortizes the synchronization
    return shortest_seconds(measured,
                            [this] {
                              for (int pass = 0; pass < kPasses; ++pass)
                                operation_->forward(operands_, {});
                              backend_.stream().synchronize();
                            }) /
           kPasses;
  }

 private:
  TensorView array(std::int64_t elements) {
    const auto count = static_cast<std::size_t>(elements);
    buffers_.push_back(backend_.allocator().allocate(count * element_bytes(backend_.precision())));
    return {buffers_.back().data(), count, backend_.precision()};
  }

  void write(const TensorView& target, std::uint64_t key) {
    const bool is_wide = target.type() == Precision::float32;
    device::Buffer wide;
    if (!is_wide) wide = backend_.allocator().allocate(target.size() * sizeof(float));
    const std::span<float> values = is_wide ? target.as<float>() : wide.as<float>();
    device::HostView view(values, backend_.stream());
    const Philox random(key);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % 4 == 0) words_ = random.block(0, i / 4);
      view.values()[i] = to_unit_float(words_[i % 4]) - 0.5F;
    }
    view.write_back(backend_.stream());
    if (is_wide) return;
    backend_.narrow(target, values);
    backend_.stream().synchronize();
  }

  Backend& backend_;
  std::unique_ptr<Operation> operation_;
  std::vector<device::Buffer> buffers_;
  Operands operands_;
  std::array<std::uint32_t, 4> words_ = {};
};

/// Operations per second of a matrix product, at the fastest size.
double flop_per_second(Backend& backend, double seconds_of_size, std::size_t memory) {
  constexpr std::int64_t kMaxSide = 4096;
  double best = 0;
  for (std::int64_t side = 128; side <= kMaxSide; side *= 2) {
    // Three arrays, and one in float32 for the initial values.
    if (best > 0 && 4 * static_cast<std::size_t>(side * side) * sizeof(float) > memory) break;
    LoneLayer product(backend, Dense({.units = side, .use_bias = false}), side, side);
    product.fill(side * side);
    const double seconds = product.seconds(seconds_of_size);
    best = std::max(best, 2.0 * static_cast<double>(side * side * side) / seconds);
    if (seconds >= kLongEnough) break;
  }
  return best;
}

/// Bytes per second of a ReLU, at the largest size: smaller ones stay in caches.
double bytes_per_second(Backend& backend, double seconds_of_size, std::size_t memory) {
  // On a CPU at least 16 MiB in float32, more than the private caches of a core.
  const std::int64_t min_rows = std::int64_t{1} << (backend.runs_on_host() ? 12 : 8);
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 17;
  double last = 0;
  for (std::int64_t rows = min_rows; rows <= kMaxRows; rows *= 2) {
    const auto moved =
        2 * static_cast<std::size_t>(rows * kWidth) * element_bytes(backend.precision());
    if (last > 0 && moved > memory) break;
    LoneLayer relu(backend, ReLU(), rows, kWidth);
    const double seconds = relu.seconds(seconds_of_size);
    last = static_cast<double>(moved) / seconds;
    if (seconds >= kLongEnough) break;
  }
  return last;
}

}  // namespace

DeviceSpeed measure_speed(Backend& backend) {
  constexpr double kSecondsOfSize = 0.05;
  const std::size_t memory = backend.free_bytes() / 4;
  return {.bytes_per_second = bytes_per_second(backend, kSecondsOfSize, memory),
          .flop_per_second = flop_per_second(backend, kSecondsOfSize, memory)};
}

}  // namespace lockstep::inline v0::model
