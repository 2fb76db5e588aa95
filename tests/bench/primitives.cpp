// Times the oneDNN primitives of one training step: the lower bound with which scripts/bench
// compares a whole step.
//
// The library's verbose mode times every execution. The program trains on random images in this
// mode, collects the lines, and sums each primitive's median. Reorders of weights are counted
// separately: the trainer chooses them, the network does not require them.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/zoo/zoo.h"

namespace {

using namespace lockstep;

struct Options {
  std::string model = "cnn";
  std::int64_t batch = 64;
  int steps = 100;
};

// Redirects standard output, where oneDNN writes, to a file during its lifetime.
class CapturedOutput {
 public:
  explicit CapturedOutput(const std::filesystem::path& file) {
    std::fflush(stdout);
    saved_ = ::dup(STDOUT_FILENO);
    const int target = ::open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    LOCKSTEP_CHECK_OP(target, >=, 0);
    ::dup2(target, STDOUT_FILENO);
    ::close(target);
  }
  ~CapturedOutput() {
    std::fflush(stdout);
    ::dup2(saved_, STDOUT_FILENO);
    ::close(saved_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

 private:
  int saved_ = -1;
};

void train(const Options& options) {
  set_thread_budget(1);
  const model::Shape input = {28, 28, 1};
  constexpr std::int64_t kClasses = 10;
  device::HostAllocator allocator;
  model::CompiledModel replica(
      std::make_shared<const model::Network>(zoo::make(options.model, input, kClasses)), {},
      allocator);
  replica.initialize(1);
  std::vector<float> images(options.batch * model::element_count(input));
  for (std::size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(i * 2654435761U % 256) / 255;
  std::vector<std::int32_t> labels(options.batch);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<std::int32_t>(i % kClasses);
  for (int step = 0; step < options.steps; ++step)
    replica.train_batch(
        {.samples = options.batch, .features = images, .targets = {.labels = labels}},
        {.step = step, .global_samples = options.batch}, model::SparseCategoricalCrossentropy{});
}

// Lines are comma separated: "onednn_verbose,exec,cpu,KIND,IMPLEMENTATION,…,MILLISECONDS".
std::map<std::string, std::vector<double>> read_times(const std::filesystem::path& file) {
  std::map<std::string, std::vector<double>> times;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kPrefix = "onednn_verbose,exec,cpu,";
    if (!line.starts_with(kPrefix)) continue;
    const std::size_t comma = line.rfind(',');
    times[line.substr(kPrefix.size(), comma - kPrefix.size())].push_back(
        std::stod(line.substr(comma + 1)) / 1000);
  }
  return times;
}

nlohmann::json report(const std::map<std::string, std::vector<double>>& times, int steps) {
  nlohmann::json primitives = nlohmann::json::array();
  double mathematics = 0;
  double reorders = 0;
  for (const auto& [primitive, measured] : times) {
    std::vector<double> sorted = measured;
    std::ranges::sort(sorted);
    const double per_step = sorted[sorted.size() / 2] * static_cast<double>(sorted.size()) / steps;
    (primitive.starts_with("reorder") ? reorders : mathematics) += per_step;
    primitives.push_back({{"primitive", primitive}, {"seconds_per_step", per_step}});
  }
  return {{"primitive_seconds_per_step", mathematics},
          {"reorder_seconds_per_step", reorders},
          {"primitives", primitives}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Times the oneDNN primitives of one training step by themselves; prints JSON.");
  Options options;
  program.add_option("--model", options.model, "a ready-made network for 28x28x1 images")
      ->capture_default_str();
  program.add_option("--batch", options.batch, "samples a step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  program.add_option("--steps", options.steps, "steps to train; each primitive's median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(program, argc, argv);

  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-primitives-{}", ::getpid());
  {
    const CapturedOutput capture(file);
    dnnl::set_verbose(1);
    train(options);
    dnnl::set_verbose(0);
  }
  const auto times = read_times(file);
  std::filesystem::remove(file);
  std::cout << report(times, options.steps).dump(1) << "\n";
  return 0;
}
