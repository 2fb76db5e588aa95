// Times one update of Adam over many parameters and its memory bandwidth, compared on a GPU with a
// copy of the same size. Run by scripts/gpu_check.
//
// The parameters are one tensor, float32, with a gradient that changes them. Each measurement is
// several consecutive updates and a wait for the last, which hides the launch and the transfer of
// the update's constants, as in a training.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/optimizer/updater.h"
#include "lockstep/model/tensor/parameters.h"

namespace {

using namespace lockstep;

// Read: the gradient, to check that it is finite; then parameter, gradient and both moments.
// Written: parameter and both moments. The minimum is 4 bytes less: the gradient read once.
constexpr std::int64_t kBytesPerParameter = 8 * sizeof(float);
constexpr float kGradient = 0.01f;
constexpr float kRate = 1e-3f;

struct Options {
  std::string device = "cpu:0";
  std::int64_t parameters = 100'000'000;
  int updates = 10;
  int rounds = 5;
};

std::unique_ptr<device::Allocator> allocator_of(device::Device device) {
  if (device.kind == device::DeviceKind::gpu) return device::make_gpu_allocator(device.index);
  return std::make_unique<device::HostAllocator>();
}

// A model of one tensor, without layers.
class Trial {
 public:
  explicit Trial(const Options& options)
      : backend_(model::make_backend(device::parse_device(options.device))),
        allocator_(allocator_of(backend_->stream().device())),
        table_({{.name = "weights",
                 .shape = {options.parameters},
                 .decay = false,
                 .initializer = {}}}),
        parameters_(allocator_->allocate(table_.flat_size() * sizeof(float))),
        gradients_(allocator_->allocate(table_.flat_size() * sizeof(float))),
        report_(allocator_->allocate(model::SummableMetrics::kSize * sizeof(float))),
        updater_(backend_->updater(model::Adam{}, table_,
                                   {.parameters = parameters_.as<float>(),
                                    .gradients = gradients_.as<float>(),
                                    .weights = {},
                                    .statistics = {},
                                    .kept_statistics = {}})) {
    device::HostView view(gradients_.as<float>(), backend_->stream());
    std::ranges::fill(view.values(), kGradient);
    view.write_back(backend_->stream());
  }

  std::string backend() const { return backend_->name(); }

  /// Seconds of one update, as the mean of `updates`.
  double time(int updates) {
    updater_->begin({.learning_rate = kRate, .update = ++update_});
    return seconds_of(updates, [&] { updater_->update(report_.as<float>()); });
  }

  /// Seconds of a copy within the device that reads and writes `bytes` in all, as the mean of
  /// `copies`.
  double time_copy(std::int64_t bytes, int copies) {
    const auto half = static_cast<std::size_t>(bytes / 2);
    const device::Buffer from = allocator_->allocate(half);
    const device::Buffer to = allocator_->allocate(half);
    const auto copy = [&] { device::copy(to.data(), from.data(), half, backend_->stream()); };
    copy();  // warms up
    return seconds_of(copies, copy);
  }

  /// Returns the first parameter, as evidence of the updates.
  float first_parameter() {
    device::HostView view(parameters_.as<float>().first(1), backend_->stream());
    return view.values()[0];
  }

 private:
  template <typename Enqueue>
  double seconds_of(int times, const Enqueue& enqueue) {
    backend_->stream().synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) enqueue();
    backend_->stream().synchronize();
    return seconds_since(start) / times;
  }

  std::unique_ptr<model::Backend> backend_;
  std::unique_ptr<device::Allocator> allocator_;
  model::ParameterTable table_;
  device::Buffer parameters_;
  device::Buffer gradients_;
  device::Buffer report_;  // zeros: no sample, no loss that is not finite
  std::unique_ptr<model::Updater> updater_;
  std::int64_t update_ = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void run(const Options& options) {
  Trial trial(options);
  trial.time(options.updates);  // warms up
  std::vector<double> seconds;
  for (int round = 0; round < options.rounds; ++round)
    seconds.push_back(trial.time(options.updates));
  const std::int64_t bytes = options.parameters * kBytesPerParameter;
  const double bandwidth = static_cast<double>(bytes) / median(seconds);
  nlohmann::ordered_json report = {{"device", options.device},
                                   {"backend", trial.backend()},
                                   {"optimizer", "adam"},
                                   {"parameters", options.parameters},
                                   {"bytes_per_update", bytes},
                                   {"updates", (options.rounds + 1) * options.updates},
                                   {"seconds_per_update", median(seconds)},
                                   {"rounds", seconds},
                                   {"bytes_per_second", bandwidth},
                                   {"first_parameter", trial.first_parameter()}};
  if (device::parse_device(options.device).kind == device::DeviceKind::gpu) {
    const double copied = static_cast<double>(bytes) / trial.time_copy(bytes, options.updates);
    report["copy_bytes_per_second"] = copied;
    report["share_of_copy"] = bandwidth / copied;
  }
  fmt::print("{}\n", report.dump());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Times Adam's update of float32 parameters on one device; prints JSON.");
  Options options;
  program.add_option("--device", options.device, "cpu:0 or gpu:N")->capture_default_str();
  program.add_option("--parameters", options.parameters, "how many")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 36))
      ->capture_default_str();
  program.add_option("--updates", options.updates, "of one measurement")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  program.add_option("--rounds", options.rounds, "measurements; the median is reported")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  try {
    run(options);
    return EXIT_SUCCESS;
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep_bench_update: error: {}\n", error.what());
    return exit_status(error.category());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep_bench_update: error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
