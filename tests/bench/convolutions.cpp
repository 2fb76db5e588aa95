// Times the convolutions of ResNet-50 on a GPU: each pass by cuDNN's legacy interface and by its
// graph API, and in float16 also fused with adjacent layers; the first one also on a folded image.
// For comparison: our normalization kernels, a copy and a matrix product. Run by scripts/gpu_check.
//
// Each time is the minimum of a few runs on random values with a cold second-level cache, with the
// fastest of at most 8 algorithms. Each result is printed at once as a line of JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/matrix_product.h"
#include "lockstep/model/cuda/trial_timer.h"
#include "lockstep/model/layers/batch_normalization/kernels.h"
#include "lockstep/model/layers/conv_2d/convolution.h"
#include "lockstep/model/layers/conv_2d/folded_convolution.h"
#include "lockstep/model/layers/conv_2d/graph_convolution.h"
#include "lockstep/model/layers/conv_2d/legacy_convolution.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/bench/fused_patterns.h"

namespace {

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::model::cuda;
using bench::Pattern;
using Json = nlohmann::ordered_json;

struct Options {
  int gpu = 0;
  std::int64_t batch = 256;
  double seconds = 110;
  std::string only;
  std::string json;
};

// A convolution, and whether its input gradient is required.
struct Shape2D {
  Conv2DSpec spec;
  double flop = 0;
  bool input_gradient = true;
  std::string name() const {
    const WindowGeometry& w = spec.window;
    return fmt::format("{}x{} {}->{} {}x{}/{}", w.height, w.width, w.channels, spec.filters,
                       w.kernel_height, w.kernel_width, w.stride_height);
  }
};

// One convolution of each kind in ResNet-50; the first layer is first.
std::vector<Shape2D> shapes_of_resnet50(std::int64_t batch) {
  const Network network = zoo::resnet50({224, 224, 3}, 1000);
  std::vector<Shape2D> shapes;
  std::set<std::string> known;
  for (const Node& node : network.nodes()) {
    const auto* convolution = dynamic_cast<const Conv2D*>(node.layer.get());
    if (convolution == nullptr) continue;
    const NodeId input = node.inputs.front();
    const CompileContext context{.name = node.name,
                                 .batch = batch,
                                 .inputs = {network.shape(input)},
                                 .output = node.output_shape,
                                 .training = true};
    const Conv2DSpec spec = convolution->spec(context);
    if (known.insert(describe(spec)).second)
      shapes.push_back({spec, static_cast<double>(convolution->flop(context)), !is_input(input)});
  }
  return shapes;
}

// Prints rows as they are measured, and tracks the time limit.
class Report {
 public:
  explicit Report(const Options& options) : seconds_(options.seconds) {
    if (options.json.empty()) return;
    stream_.open(options.json);
    if (!stream_)
      throw Error(ErrorCategory::output, options.json, "expected a file to write",
                  "it cannot be opened");
  }

  void add(const Json& row) {
    if (stream_.is_open()) stream_ << row.dump() << std::endl;
  }

  // Whether `share` of the time is over; counts the skipped rows then.
  bool is_over(double share, int rows) {
    if (seconds_since(start_) < share * seconds_) return false;
    left_out_ += rows;
    return true;
  }

  void finish() {
    const double seconds = seconds_since(start_);
    add({{"kind", "end"}, {"seconds", seconds}, {"left_out", left_out_}});
    fmt::print("\n{:.0f} s", seconds);
    if (left_out_ > 0) fmt::print("; {} rows were left out: the time was over", left_out_);
    fmt::print("\n");
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_;
  std::ofstream stream_;
  int left_out_ = 0;
};

constexpr float kNoLimit = std::numeric_limits<float>::max();

std::string in_columns(std::optional<float> milliseconds) {
  return milliseconds ? fmt::format("{:.4f}", *milliseconds) : "none";
}

Json or_null(std::optional<float> milliseconds) {
  return milliseconds ? Json(*milliseconds) : Json(nullptr);
}

// ---- Memory and tensor cores

void measure_ceilings(Context& context, Report& report) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  constexpr std::int64_t kSide = 8192;
  TrialTimer timer(context);
  const device::Buffer from = random_values(context, kBytes);
  const device::Buffer to = random_values(context, kBytes);
  const float copy = timer.milliseconds(
      [&] { device::copy(to.data(), from.data(), kBytes, context.stream()); }, kNoLimit);
  MatrixProduct product(context, {.rows = kSide, .inner = kSide, .columns = kSide});
  const device::Buffer workspace = context.allocator().allocate(product.workspace_bytes());
  const device::Buffer right = random_values(context, kBytes / 8);
  const device::Buffer result = random_values(context, kBytes / 8);
  const float multiply = timer.milliseconds(
      [&] { product.run(from.data(), right.data(), nullptr, workspace.data(), result.data()); },
      kNoLimit);
  const double bandwidth = 2e3 * static_cast<double>(kBytes) / static_cast<double>(copy);
  const double flops =
      2e3 * static_cast<double>(kSide) * kSide * kSide / static_cast<double>(multiply);
  const std::string type = to_string(context.options().precision);
  report.add({{"kind", "ceiling"},
              {"precision", type},
              {"copy_ms", copy},
              {"copy_bytes_per_second", bandwidth},
              {"product_ms", multiply},
              {"product_flops", flops}});
  fmt::print("copy of 1 GiB: {:.0f} GB/s; product of {}x{} in {}: {:.0f} TFLOP/s\n",
             bandwidth / 1e9, kSide, kSide, type, flops / 1e12);
}

// ---- Normalization

struct Rows {
  std::int64_t rows, channels;
};

void measure_normalization(Context& context, const Rows& size, Report& report) {
  const Precision precision = context.options().precision;
  const ChannelLayout layout =
      channel_layout(size.rows, size.channels, precision, context.multiprocessors());
  const auto elements = static_cast<std::size_t>(size.rows * size.channels);
  const auto channels = static_cast<std::size_t>(size.channels);
  const MomentsLayout moments{.channels = channels};
  const std::size_t bytes = elements * element_bytes(precision);
  std::vector<device::Buffer> buffers;
  const auto array = [&] {
    return TensorView(buffers.emplace_back(random_values(context, bytes)).data(), elements,
                      precision);
  };
  const auto floats = [&](std::size_t count) {
    return buffers.emplace_back(random_values(context, (count + 3) / 4 * 16)).as<float>().data();
  };
  const TensorView input = array();
  const TensorView residual = array();
  const TensorView output = array();
  const TensorView of_residual = array();
  const auto mask = buffers.emplace_back(random_values(context, mask_bytes(layout) + 16))
                        .as<std::uint8_t>()
                        .data();
  void* const partials = buffers.emplace_back(random_values(context, partial_bytes(layout))).data();
  const ChannelScale scale{floats(channels), floats(channels), floats(channels), floats(channels)};
  const GradientSums sums{floats(2 * channels), floats(channels), floats(channels)};
  const StatisticsArguments statistics{.layout = moments, .moments = floats(moments.size())};
  const float* const count = floats(1);

  TrialTimer timer(context);
  cudaStream_t stream = context.native();
  const std::size_t bits = elements / 8;
  const auto measure = [&](std::string_view kernel, std::size_t moved, const auto& enqueue) {
    const float ms = timer.milliseconds(enqueue, kNoLimit);
    const double bandwidth = 1e3 * static_cast<double>(moved) / static_cast<double>(ms);
    report.add({{"kind", "normalization"},
                {"kernel", kernel},
                {"rows", size.rows},
                {"channels", size.channels},
                {"precision", to_string(precision)},
                {"ms", ms},
                {"bytes", moved},
                {"bytes_per_second", bandwidth}});
    fmt::print("{:<44}{:>10.4f}{:>10.0f}\n",
               fmt::format("{} of {} x {}", kernel, size.rows, size.channels), ms, bandwidth / 1e9);
  };
  measure("statistics", bytes,
          [&] { batch_statistics(input, layout, partials, statistics, 0, stream); });
  measure("normalize, add, ReLU", 3 * bytes + bits,
          [&] { normalize(input, residual, scale, true, layout, output, mask, stream); });
  measure("gradient sums", 2 * bytes + bits,
          [&] { gradient_sums(input, mask, residual, scale, layout, partials, sums, stream); });
  measure("input gradient", 4 * bytes + bits, [&] {
    input_gradient(input, mask, residual, scale, sums.sums, count, layout, output, of_residual,
                   stream);
  });
}

// ---- Convolutions

// The fastest algorithm of an engine.
struct Fastest {
  float milliseconds = kNoLimit;
  int algorithm = 0;
};

// nullopt if none works.
std::optional<Fastest> fastest(Context& context, TrialMemory& memory,
                               const std::function<std::unique_ptr<ConvolutionEngine>()>& make) {
  Fastest found;
  std::optional<ConvolutionAlgorithm> best;
  succeeds([&] {
    const auto engine = make();
    const auto enqueue = [&] { engine->run(memory.arrays(), memory.workspace.data()); };
    best = fastest_of(context, *engine, memory, enqueue, found.milliseconds);
    return true;
  });
  if (!best) return std::nullopt;
  found.algorithm = best->number;
  return found;
}

template <typename Engine>
std::optional<float> time_of(Context& context, const Conv2DSpec& spec, ConvolutionPass pass,
                             TrialMemory& memory, Json& row, const std::string& name) {
  const auto found =
      fastest(context, memory, [&] { return std::make_unique<Engine>(context, spec, pass); });
  const std::optional<float> ms = found ? std::optional(found->milliseconds) : std::nullopt;
  row[name + "_ms"] = or_null(ms);
  if (found) row[name + "_algorithm"] = found->algorithm;
  return ms;
}

void measure_pass(Context& context, const Shape2D& shape, ConvolutionPass pass, bool adds,
                  TrialMemory& memory, Report& report) {
  constexpr std::array<std::string_view, 3> kPasses{"forward", "input gradient", "kernel gradient"};
  std::string name(kPasses[static_cast<std::size_t>(pass)]);
  if (adds) name += ", added";
  Conv2DSpec spec = shape.spec;
  spec.adds_input_gradient = adds;
  const std::string type = to_string(context.options().precision);
  Json row{{"kind", "convolution"}, {"shape", shape.name()}, {"batch", spec.batch},
           {"pass", name},          {"precision", type},     {"flop", shape.flop}};
  const auto legacy = time_of<LegacyConvolution>(context, spec, pass, memory, row, "legacy");
  const auto graph = time_of<GraphConvolution>(context, spec, pass, memory, row, "graph");
  report.add(row);
  const float best = std::min(legacy.value_or(kNoLimit), graph.value_or(kNoLimit));
  fmt::print("{:<28}{:<24}{:<10}{:>10}{:>10}{:>10.0f}\n", shape.name(), name, type,
             in_columns(legacy), in_columns(graph), shape.flop / static_cast<double>(best) / 1e9);
}

void measure_convolution(Context& context, Shape2D shape, Report& report) {
  const std::int64_t least = min_channels(context.options().precision);
  if (!shape.input_gradient) shape.spec.window.channels = least;  // as the layer reads its pixels
  const auto memory = trial_memory(context, shape.spec);
  if (!memory) {
    fmt::print("{:<28}too little memory\n", shape.name());
    return;
  }
  measure_pass(context, shape, ConvolutionPass::forward, false, *memory, report);
  measure_pass(context, shape, ConvolutionPass::backward_filter, false, *memory, report);
  if (!shape.input_gradient) return;
  measure_pass(context, shape, ConvolutionPass::backward_data, false, *memory, report);
  measure_pass(context, shape, ConvolutionPass::backward_data, true, *memory, report);
}

// ---- The first convolution with every engine that the layer may choose

void measure_stem(Context& context, Shape2D shape, Report& report) {
  const std::int64_t channels = shape.spec.window.channels;
  shape.spec.window.channels = min_channels(context.options().precision);
  const Conv2DSpec& spec = shape.spec;
  const Conv2DSpec folded = with_folded_image(spec, channels, context.options().precision);
  const std::string type = to_string(context.options().precision);
  const auto memory = trial_memory(context, spec);
  if (!memory) {
    fmt::print("{:<28}too little memory\n", shape.name());
    return;
  }
  const auto add = [&](ConvolutionPass pass, std::string_view way, const auto& make) {
    const auto found = fastest(context, *memory, make);
    const std::string name = pass == ConvolutionPass::forward ? "forward" : "weights";
    fmt::print("{:<28}{:<10}{:<10}{:<18}{:>10}\n", shape.name(), name, type, way,
               found ? fmt::format("{:.4f}", found->milliseconds) : "none");
    if (found)
      report.add({{"kind", "stem"},
                  {"pass", name},
                  {"way", way},
                  {"precision", type},
                  {"ms", found->milliseconds},
                  {"algorithm", found->algorithm}});
  };
  for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::backward_filter}) {
    add(pass, "legacy", [&] { return std::make_unique<LegacyConvolution>(context, spec, pass); });
    add(pass, "graph", [&] { return std::make_unique<GraphConvolution>(context, spec, pass); });
    add(pass, "folded, legacy", [&] {
      return std::make_unique<FoldedConvolution>(
          context, spec, channels, pass,
          std::make_unique<LegacyConvolution>(context, folded, pass));
    });
    add(pass, "folded, graph", [&] {
      return std::make_unique<FoldedConvolution>(
          context, spec, channels, pass, std::make_unique<GraphConvolution>(context, folded, pass));
    });
  }
  const WindowGeometry& f = folded.window;
  const auto elements = [](std::int64_t batch, std::int64_t h, std::int64_t w, std::int64_t c) {
    return static_cast<std::size_t>(batch * h * w * c);
  };
  const TensorView image(
      memory->input.data(),
      elements(spec.batch, spec.window.height, spec.window.width, spec.window.channels),
      context.options().precision);
  const TensorView copy(memory->output.data(), elements(spec.batch, f.height, f.width, f.channels),
                        image.type());
  if (copy.size_bytes() > memory->output.size()) return;
  const Folding folding{.window = spec.window, .channels = channels, .folded_window = f};
  const float ms = memory->timer.milliseconds(
      [&] { fold_image(image, folding, spec.batch, copy, context.native()); }, kNoLimit);
  report.add({{"kind", "fold"},
              {"precision", type},
              {"ms", ms},
              {"bytes", image.size_bytes() + copy.size_bytes()}});
  fmt::print("{:<28}{:<10}{:<10}{:<18}{:>10.4f}\n", shape.name(), "both", type, "the folding in it",
             ms);
}

// ---- Fused patterns

std::optional<float> time_of(Context& context, Pattern pattern, const Conv2DSpec& spec) {
  constexpr std::size_t kMaxTried = 4;
  std::optional<float> best;
  succeeds([&] {
    const bench::PatternGraph graph(context.cudnn(), pattern, spec);
    std::vector<device::Buffer> buffers;
    std::vector<void*> memory;
    for (const std::size_t bytes : graph.bytes())
      memory.push_back(buffers.emplace_back(random_values(context, bytes)).data());
    TrialTimer timer(context);
    const auto ways = usable_configurations(graph.whole(), requirements(context.options()));
    for (std::size_t i = 0; i < std::min(ways.size(), kMaxTried); ++i)
      succeeds([&] {
        auto plan = GraphPlan::create(context.cudnn(), ways[i]);
        if (!plan || plan->workspace_bytes() > kMaxWorkspace) return false;
        const device::Buffer workspace = context.allocator().allocate(plan->workspace_bytes());
        const float limit = best.value_or(kNoLimit);
        const float ms = timer.milliseconds(
            [&] { plan->run(context.cudnn(), graph.ids(), memory, workspace.data()); }, limit);
        if (ms < limit) best = ms;
        return true;
      });
    return true;
  });
  return best;
}

void measure_patterns(Context& context, const Shape2D& shape, Report& report) {
  for (const Pattern pattern : {Pattern::statistics, Pattern::normalized_statistics,
                                Pattern::normalized_filter, Pattern::data_sums}) {
    const std::optional<float> ms = time_of(context, pattern, shape.spec);
    report.add({{"kind", "pattern"},
                {"shape", shape.name()},
                {"batch", shape.spec.batch},
                {"pattern", to_string(pattern)},
                {"precision", "float16"},
                {"ms", or_null(ms)}});
    fmt::print("{:<28}{:<38}{:>10}\n", shape.name(), to_string(pattern), in_columns(ms));
  }
}

void run(const Options& options) {
  if (!device::gpu_is_available())
    throw Error(ErrorCategory::device, "gpu", "expected a GPU", device::gpu_unavailable_reason());
  const device::cuda::DeviceScope scope(options.gpu);
  Report report(options);
  Context half(options.gpu, {.precision = Precision::float16});
  Context brain(options.gpu, {.precision = Precision::bfloat16});
  report.add({{"kind", "start"},
              {"gpu", half.gpu_name()},
              {"cudnn", cudnnGetVersion()},
              {"batch", options.batch}});
  fmt::print("{}, cuDNN {}, batch {}\n\n", half.gpu_name(), cudnnGetVersion(), options.batch);
  if (options.only.empty())
    for (Context* context : {&brain, &half}) measure_ceilings(*context, report);

  std::vector<Shape2D> shapes = shapes_of_resnet50(options.batch);
  fmt::print("\n{:<28}{:<10}{:<10}{:<18}{:>10}\n", "first convolution", "pass", "type", "way",
             "ms");
  measure_stem(brain, shapes.front(), report);
  if (options.only == "stem") return report.finish();

  fmt::print("\n{:<44}{:>10}{:>10}\n", "normalization in bfloat16", "ms", "GB/s");
  for (const Rows size : {Rows{options.batch * 112 * 112, 64}, Rows{options.batch * 56 * 56, 256},
                          Rows{options.batch * 14 * 14, 1024}})
    measure_normalization(brain, size, report);

  constexpr double kShareOfConvolutions = 0.8;
  fmt::print("\n{:<28}{:<24}{:<10}{:>10}{:>10}{:>10}\n", "convolution", "pass", "type", "legacy ms",
             "graph ms", "TFLOP/s");
  for (const Shape2D& shape : shapes)
    for (Context* context : {&brain, &half})
      if (!report.is_over(kShareOfConvolutions, shape.input_gradient ? 4 : 2))
        measure_convolution(*context, shape, report);

  shapes.erase(shapes.begin());  // there are no engines for the first one
  fmt::print("\n{:<28}{:<38}{:>10}\n", "convolution", "pattern in float16", "ms");
  for (const Shape2D& shape : shapes)
    if (!report.is_over(1, 4)) measure_patterns(half, shape, report);
  report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program(
      "Times the convolutions of ResNet-50 on a GPU: cuDNN's legacy interface and its graph API.");
  Options options;
  program.add_option("--gpu", options.gpu, "N of gpu:N")
      ->check(CLI::Range(0, 1 << 10))
      ->capture_default_str();
  program.add_option("--batch", options.batch, "images")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 16))
      ->capture_default_str();
  program.add_option("--seconds", options.seconds, "after which no further row is measured")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  program.add_option("--only", options.only, "stem: the first convolution alone")
      ->check(CLI::IsMember({"stem"}));
  program.add_option("--json", options.json, "file for a line of JSON for each row");
  CLI11_PARSE(program, argc, argv);
  try {
    run(options);
    return EXIT_SUCCESS;
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep_bench_convolutions: error: {}\n", error.what());
    return exit_status(error.category());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep_bench_convolutions: error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
