// Times causal attention on a GPU with cuDNN and with our kernels, and compares their results. Run
// by scripts/gpu_check.
//
// Each time is the minimum of a few runs on random values with a cold second-level cache. Prints
// one line of JSON per implementation.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/cuda/trial_timer.h"
#include "lockstep/model/layers/attention/cudnn_attention.h"
#include "lockstep/model/layers/attention/kernels.h"

namespace {

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::model::cuda;
using Json = nlohmann::ordered_json;

struct Options {
  int gpu = 0;
  std::int64_t batch = 8;
  std::int64_t positions = 1024;
  std::int64_t heads = 12;
  std::int64_t key_value_heads = 12;
  std::int64_t width = 64;
  std::string precision = "bfloat16";
};

// The arrays of an attention: queries, keys and values in one, as a dense layer writes them.
class Trial {
 public:
  Trial(Context& context, const AttentionSpec& spec)
      : context_(context),
        type_(context.options().precision),
        rows_(spec.batch * spec.queries),
        packed_(rows_ * spec.part(0).stride),
        output_(rows_ * spec.heads * spec.width),
        inputs_(random_values(context, bytes(packed_))),
        gradients_(random_values(context, bytes(packed_))),
        outputs_(random_values(context, bytes(output_))),
        output_gradients_(random_values(context, bytes(output_))),
        divisors_(context.allocator().allocate(spec.saved_bytes())),
        products_(context.allocator().allocate(spec.saved_bytes())) {}

  AttentionArrays arrays() {
    AttentionArrays all;
    all.inputs.fill(view(inputs_, packed_));
    all.gradients.fill(view(gradients_, packed_));
    all.output = view(outputs_, output_);
    all.output_gradient = view(output_gradients_, output_);
    all.divisors = divisors_.as<float>().data();
    all.products = products_.as<float>().data();
    return all;
  }
  std::vector<float> output() { return read(view(outputs_, output_)); }
  std::vector<float> gradients() { return read(view(gradients_, packed_)); }

 private:
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * element_bytes(type_);
  }
  TensorView view(device::Buffer& buffer, std::int64_t elements) const {
    return {buffer.data(), static_cast<std::size_t>(elements), type_};
  }
  std::vector<float> read(const TensorView& from) {
    const device::Buffer wide = context_.allocator().allocate(from.size() * sizeof(float));
    convert(from, wide.as<float>(), context_.native());
    device::HostView host(wide.as<float>(), context_.stream());
    return {host.values().begin(), host.values().end()};
  }

  Context& context_;
  Precision type_;
  std::int64_t rows_;
  std::int64_t packed_;
  std::int64_t output_;
  device::Buffer inputs_, gradients_, outputs_, output_gradients_, divisors_, products_;
};

// Distance over norm.
double difference(const std::vector<float>& values, const std::vector<float>& reference) {
  double distance = 0;
  double norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double expected = static_cast<double>(reference[i]);
    distance += std::pow(static_cast<double>(values[i]) - expected, 2);
    norm += expected * expected;
  }
  return std::sqrt(distance / norm);
}

void report(const std::string& name, const AttentionSpec& spec, float forward, float backward,
            Json row) {
  const double pairs = static_cast<double>(spec.queries * (spec.queries + 1) / 2);
  const double flop = 4 * static_cast<double>(spec.batch * spec.heads * spec.width) * pairs;
  row["implementation"] = name;
  row["forward_ms"] = forward;
  row["backward_ms"] = backward;
  row["forward_tflops"] = flop / static_cast<double>(forward) / 1e9;
  row["backward_tflops"] = 2.5 * flop / static_cast<double>(backward) / 1e9;
  fmt::print("{}\n", row.dump());
  std::fflush(stdout);
}

void run(const Options& options) {
  if (!device::gpu_is_available())
    throw Error(ErrorCategory::device, "gpu", "expected a GPU", device::gpu_unavailable_reason());
  const device::cuda::DeviceScope scope(options.gpu);
  Context context(options.gpu,
                  {.precision = parse_name<Precision>("precision", options.precision)});
  const AttentionSpec spec{.batch = options.batch,
                           .queries = options.positions,
                           .keys = options.positions,
                           .heads = options.heads,
                           .key_value_heads = options.key_value_heads,
                           .width = options.width,
                           .packed = true,
                           .causal = true,
                           .scale = 1 / std::sqrt(static_cast<float>(options.width)),
                           .training = true};
  constexpr float kNoLimit = std::numeric_limits<float>::max();
  Trial trial(context, spec);
  TrialTimer timer(context);
  const AttentionArrays arrays = trial.arrays();
  const float forward =
      timer.milliseconds([&] { attend(arrays, spec, context.native()); }, kNoLimit);
  const float backward =
      timer.milliseconds([&] { attention_gradients(arrays, spec, context.native()); }, kNoLimit);
  const std::vector<float> output = trial.output();
  const std::vector<float> gradients = trial.gradients();
  report("own", spec, forward, backward,
         {{"gpu", context.gpu_name()}, {"cudnn", cudnnGetVersion()}});

  const std::unique_ptr<CudnnAttention> cudnn = choose_attention(context, spec);
  if (cudnn == nullptr)
    throw Error(ErrorCategory::device, "cudnn", "expected an engine for this attention",
                *context.choices().begin());
  const device::Buffer memory = context.allocator().allocate(cudnn->scratch_bytes());
  const std::span<std::byte> scratch = memory.as<std::byte>();
  const float its_forward = timer.milliseconds([&] { cudnn->forward(arrays, scratch); }, kNoLimit);
  const float its_backward =
      timer.milliseconds([&] { cudnn->backward(arrays, scratch); }, kNoLimit);
  report("cudnn", spec, its_forward, its_backward,
         {{"output_difference", difference(trial.output(), output)},
          {"gradient_difference", difference(trial.gradients(), gradients)}});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Times causal attention on a GPU: by cuDNN and by our own kernels.");
  Options options;
  const auto count = [&](const char* name, std::int64_t& value, const char* what) {
    program.add_option(name, value, what)
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 16))
        ->capture_default_str();
  };
  program.add_option("--gpu", options.gpu, "N of gpu:N")
      ->check(CLI::Range(0, 1 << 10))
      ->capture_default_str();
  count("--batch", options.batch, "sequences");
  count("--positions", options.positions, "of a sequence");
  count("--heads", options.heads, "of the queries");
  count("--key-value-heads", options.key_value_heads, "of keys and values; divides --heads");
  count("--width", options.width, "elements of a head");
  program.add_option("--precision", options.precision, "bfloat16 or float16")
      ->check(CLI::IsMember({"bfloat16", "float16"}))
      ->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  try {
    if (options.heads % options.key_value_heads != 0)
      throw Error(ErrorCategory::input, "--key-value-heads",
                  fmt::format("expected a divisor of {}", options.heads),
                  fmt::format("got {}", options.key_value_heads));
    run(options);
    return EXIT_SUCCESS;
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep_bench_attention: error: {}\n", error.what());
    return exit_status(error.category());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep_bench_attention: error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
