#include "lockstep/onnx/export/quantize.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/onnx/export/quantized_network.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Network;
using model::NodeId;

constexpr std::int64_t kMaxBatch = 32;
constexpr std::int64_t kMaxObservedBytes = std::int64_t{1}
                                           << 28;  // memory of the observed values of a batch

/// Runs a network in inference on the CPU.
class Inference {
 public:
  Inference(Network network, std::span<const float> parameters, std::span<const float> buffers)
      : model_(std::make_shared<const Network>(std::move(network)), device::Device{}, allocator_) {
    LOCKSTEP_CHECK_OP(parameters.size(), ==, model_.parameters().size());
    LOCKSTEP_CHECK_OP(buffers.size(), ==, model_.buffers().size());
    std::ranges::copy(parameters, model_.parameters().begin());
    std::ranges::copy(buffers, model_.buffers().begin());
    model_.parameters_changed();
  }

  /// The inputs of the first `count` samples of `batch`, in the network's order.
  std::vector<model::InputView> inputs(const data::Batch& batch, std::int64_t count) const {
    std::vector<model::InputView> views;
    const auto wanted = model_.network().inputs();
    for (const model::NetworkInput& input : wanted) {
      const data::TensorArray& array = wanted.size() == 1 && batch.inputs.size() == 1
                                           ? batch.inputs.front()
                                           : batch.input(input.name);
      const std::size_t size = static_cast<std::size_t>(count) * array.elements;
      if (array.type == ElementType::int32)
        views.push_back({.indices = array.as<std::int32_t>().first(size)});
      else
        views.push_back({.features = array.as<float>().first(size)});
    }
    return views;
  }

  /// All outputs, valid until the next call.
  std::vector<std::span<const float>> outputs(std::int64_t count,
                                              std::span<const model::InputView> inputs) {
    return model_.predict_outputs({.samples = count, .inputs = inputs});
  }

 private:
  device::HostAllocator allocator_;
  model::CompiledModel model_;
};

/// `network` with the layers among `values` as further outputs.
Network with_outputs(const Network& network, std::span<const NodeId> values) {
  Network observed = network;
  if (!observed.has_named_outputs()) {
    const model::NetworkOutput only = observed.outputs().front();
    observed.output(only.name, only.node);
  }
  for (const NodeId value : values) {
    const auto outputs = observed.outputs();
    if (model::is_input(value) ||
        std::ranges::find(outputs, value, &model::NetworkOutput::node) != outputs.end())
      continue;
    std::string name = network.nodes()[static_cast<std::size_t>(value)].name;
    while (std::ranges::find(outputs, name, &model::NetworkOutput::name) != outputs.end())
      name += "_";
    observed.output(name, value);
  }
  return observed;
}

/// Chooses ranges and measures layers.
class Quantizer {
 public:
  Quantizer(const model::FoldedNetwork& original, const std::set<NodeId>& layers, int weight_bits)
      : original_(original),
        weight_bits_(weight_bits),
        rounded_(RoundingPlan(original.network, layers).rounded()) {}

  void calibrate(const data::Dataset& dataset, const QuantizeOptions& options);
  /// The signal-to-noise ratio of the outputs with `layer` alone in int8; nullopt without noise.
  std::optional<double> measure(NodeId layer) const;

  std::int64_t samples() const { return samples_; }
  ActivationRange range(NodeId value) const { return ranges_.at(value); }
  model::FoldedNetwork quantized(const std::set<NodeId>& layers) const {
    return quantized_network(original_, layers, ranges_, weight_bits_);
  }

 private:
  std::string name_of(NodeId value) const {
    const Network& network = original_.network;
    return model::is_input(value) ? network.inputs()[model::input_index(value)].name
                                  : network.nodes()[static_cast<std::size_t>(value)].name;
  }

  const model::FoldedNetwork& original_;
  int weight_bits_;
  std::vector<NodeId> rounded_;
  std::map<NodeId, ActivationRange> ranges_;
  std::int64_t samples_ = 0;
  // For measuring layers: samples, and the outputs of the network in float32.
  data::Batch batch_;
  std::int64_t batch_samples_ = 0;
  std::vector<std::vector<float>> reference_;
};

void Quantizer::calibrate(const data::Dataset& dataset, const QuantizeOptions& options) {
  const Network& network = original_.network;
  const Network observed = with_outputs(network, rounded_);
  std::int64_t bytes = 1;  // per sample
  for (const model::NetworkOutput& output : observed.outputs())
    bytes += model::element_count(observed.shape(output.node)) *
             static_cast<std::int64_t>(sizeof(float));
  const std::int64_t batch_size = std::clamp<std::int64_t>(kMaxObservedBytes / bytes, 1, kMaxBatch);
  samples_ = std::min(options.samples, dataset.size());
  if (samples_ < kMinCalibrationSamples)
    throw Error(
        ErrorCategory::data, dataset.description(),
        fmt::format("expected at least {} samples to calibrate with", kMinCalibrationSamples),
        fmt::format("got {}", samples_));

  Inference inference(observed, original_.parameters, original_.buffers);
  std::map<NodeId, ActivationHistogram> histograms;
  const auto add = [&](NodeId value, std::span<const float> values) {
    if (!histograms[value].add(values))
      throw Error(ErrorCategory::data, name_of(value),
                  "expected finite values for the samples of the calibration",
                  "got NaN or infinity");
  };
  const auto stream = dataset.shuffle()
                          .batch(batch_size)
                          .stream({.last_step = (samples_ + batch_size - 1) / batch_size,
                                   .threads = options.threads});
  std::vector<data::Batch> parts;
  for (std::int64_t seen = 0; seen < samples_ && stream->next(parts);) {
    const data::Batch& batch = parts.front();
    const std::int64_t count = std::min(samples_ - seen, batch.samples);
    const auto inputs = inference.inputs(batch, count);
    const auto outputs = inference.outputs(count, inputs);
    for (const NodeId value : rounded_) {
      if (model::is_input(value)) {
        add(value, inputs[model::input_index(value)].features);
        continue;
      }
      const auto found = std::ranges::find(observed.outputs(), value, &model::NetworkOutput::node);
      add(value, outputs[static_cast<std::size_t>(found - observed.outputs().begin())]);
    }
    if (seen == 0) {
      batch_ = batch;
      batch_samples_ = count;
      for (std::size_t k = 0; k < network.outputs().size(); ++k)
        reference_.emplace_back(outputs[k].begin(), outputs[k].end());
    }
    seen += count;
  }
  for (const auto& [value, histogram] : histograms)
    ranges_[value] = histogram.range(options.calibration);
}

std::optional<double> Quantizer::measure(NodeId layer) const {
  model::FoldedNetwork alone = quantized({layer});
  Inference inference(std::move(alone.network), alone.parameters, alone.buffers);
  const auto outputs = inference.outputs(batch_samples_, inference.inputs(batch_, batch_samples_));
  double ratio = 0;  // noise over signal
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    double noise = 0;
    double signal = 0;
    for (std::size_t i = 0; i < outputs[k].size(); ++i) {
      const double value = reference_[k][i];
      noise += (outputs[k][i] - value) * (outputs[k][i] - value);
      signal += value * value;
    }
    if (signal > 0) ratio += noise / signal;
  }
  if (ratio == 0) return std::nullopt;
  return -10 * std::log10(ratio);
}

/// The candidates that match one of `patterns`.
std::set<NodeId> kept_layers(const Network& network, std::span<const NodeId> candidates,
                             std::span<const std::string> patterns) {
  constexpr std::size_t kNamesListed = 8;
  std::vector<std::string_view> names;
  for (const NodeId layer : candidates)
    names.push_back(network.nodes()[static_cast<std::size_t>(layer)].name);
  std::set<NodeId> kept;
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (const NodeId layer : candidates) {
      const model::Node& node = network.nodes()[static_cast<std::size_t>(layer)];
      if (fnmatch(pattern.c_str(), node.name.c_str(), 0) != 0) continue;
      kept.insert(layer);
      matches = true;
    }
    const auto listed = std::span(names).first(std::min(names.size(), kNamesListed));
    if (!matches)
      throw Error(ErrorCategory::input, "keep-float",
                  fmt::format("expected a pattern of names of layers that int8 is for, which are "
                              "{}{}",
                              list_names(listed), listed.size() < names.size() ? ", …" : ""),
                  got_name(pattern, names));
  }
  return kept;
}

/// Finds the fewest of `layers`, sorted from the noisiest, to keep in float32.
class Search {
 public:
  Search(const Quantizer& quantizer, std::vector<NodeId> layers, const MeasureDrop& measure_drop,
         double max_drop)
      : quantizer_(quantizer),
        layers_(std::move(layers)),
        measure_drop_(measure_drop),
        max_drop_(max_drop) {}

  /// Sets the members below. Throws Error (input) if even one int8 layer loses too much.
  void run() {
    if (fits(0)) return;
    const std::size_t most = layers_.size() - 1;
    std::size_t above = 0;  // largest count of float32 layers that loses too much
    std::size_t kept = 0;
    do {
      above = kept;
      if (above == most)
        throw Error(ErrorCategory::input, "max-drop",
                    fmt::format("expected a network that loses at most {:g} points", max_drop_),
                    fmt::format("got {:.2f} with one layer in int8", last_drop_));
      kept = std::min(most, std::max<std::size_t>(1, 2 * above));
    } while (!fits(kept));
    while (kept - above > 1) {
      const std::size_t middle = above + (kept - above) / 2;
      (fits(middle) ? kept : above) = middle;
    }
  }

  std::optional<model::FoldedNetwork> network;  ///< the best so far
  double drop = 0;                              ///< loss of quality of `network`
  std::size_t call = 0;                         ///< index of the MeasureDrop call for `network`
  std::set<NodeId> int8;                        ///< int8 layers of `network`

 private:
  /// Whether the network without the first `kept` layers loses no more than allowed.
  bool fits(std::size_t kept) {
    std::set<NodeId> chosen(layers_.begin() + static_cast<std::ptrdiff_t>(kept), layers_.end());
    model::FoldedNetwork quantized = quantizer_.quantized(chosen);
    last_drop_ = measure_drop_(quantized);
    ++calls_;
    constexpr double kRounding = 1e-9;
    if (!(last_drop_ <= max_drop_ + kRounding)) return false;
    network.emplace(std::move(quantized));
    drop = last_drop_;
    call = calls_ - 1;
    int8 = std::move(chosen);
    return true;
  }

  const Quantizer& quantizer_;
  std::vector<NodeId> layers_;
  const MeasureDrop& measure_drop_;
  double max_drop_;
  double last_drop_ = 0;
  std::size_t calls_ = 0;
};

}  // namespace

QuantizedModel quantize(const model::FoldedNetwork& original, const data::Dataset& calibration,
                        const MeasureDrop& measure_drop, const QuantizeOptions& options) {
  if (options.weight_bits < 7 || options.weight_bits > 8)
    throw Error(ErrorCategory::input, "weight-bits", "expected 7 or 8",
                fmt::format("got {}", options.weight_bits));
  const Network& network = original.network;
  network.check_complete();
  const std::vector<NodeId> all = layers_for_int8(network);
  const std::set<NodeId> kept = kept_layers(network, all, options.keep_float);
  std::vector<NodeId> candidates;
  std::ranges::copy_if(all, std::back_inserter(candidates),
                       [&](NodeId layer) { return !kept.contains(layer); });
  if (candidates.empty())
    throw Error(ErrorCategory::input, network.name(),
                "expected a convolution or a dense layer to compute with int8",
                all.empty() ? "it has none" : "all are kept in float32");

  // Ranges of all layers; those of `kept` are only reported.
  Quantizer quantizer(original, {all.begin(), all.end()}, options.weight_bits);
  quantizer.calibrate(calibration, options);
  std::map<NodeId, std::optional<double>> decibels;
  for (const NodeId layer : candidates) decibels[layer] = quantizer.measure(layer);
  std::vector<NodeId> noisiest = candidates;
  std::ranges::stable_sort(noisiest, [&](NodeId a, NodeId b) {
    return decibels[a].value_or(HUGE_VAL) < decibels[b].value_or(HUGE_VAL);
  });

  Search search(quantizer, std::move(noisiest), measure_drop, options.max_drop);
  search.run();
  QuantizedModel result{.network = std::move(*search.network),
                        .drop = search.drop,
                        .call = search.call,
                        .samples = quantizer.samples()};
  const RoundingPlan plan(network, search.int8);
  for (const NodeId layer : all) {
    const model::Node& node = network.nodes()[static_cast<std::size_t>(layer)];
    const bool is_int8 = search.int8.contains(layer);
    if (is_int8) result.int8_layers.insert(node.name);
    result.layers.push_back({.name = node.name,
                             .type = std::string(model::type_of(*node.layer)),
                             .is_int8 = is_int8,
                             .kept_by = is_int8                ? ""
                                        : kept.contains(layer) ? "keep-float"
                                                               : "max-drop",
                             .input = quantizer.range(plan.range_of(node.inputs.front())),
                             .decibels = decibels[layer]});
  }
  return result;
}

}  // namespace lockstep::inline v0::onnx
