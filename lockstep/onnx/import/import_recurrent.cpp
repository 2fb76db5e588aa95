// Imports LSTM, GRU and RNN.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

/// The gate blocks in Lockstep's order, as indices of those of ONNX: i, f, g, o in i, o, f, c, and
/// r, z, n in z, r, h; an RNN has one.
constexpr std::array<std::size_t, 4> kLstmBlocks{0, 2, 3, 1};
constexpr std::array<std::size_t, 3> kGruBlocks{1, 0, 2};
constexpr std::array<std::size_t, 1> kRnnBlocks{0};

/// Copies the blocks of one direction from `from`, beginning at `begin`, to `to`.
std::vector<float> reordered(const std::vector<float>& from, std::size_t begin, std::size_t block,
                             std::span<const std::size_t> blocks) {
  std::vector<float> to;
  to.reserve(block * blocks.size());
  for (const std::size_t index : blocks) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin + index * block);
    to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(block));
  }
  return to;
}

/// Lower case: names of activations are case-insensitive.
std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char letter) {
    return static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
  });
  return text;
}

/// The default activations of an operator, per direction.
std::span<const std::string_view> default_activations(const std::string& type) {
  static constexpr std::array<std::string_view, 3> kLstmActivations{"sigmoid", "tanh", "tanh"};
  const std::span<const std::string_view> all(kLstmActivations);
  return type == "LSTM" ? all : type == "GRU" ? all.first(2) : all.subspan(1, 1);
}

}  // namespace

/// Rejects unsupported options. Explicit defaults are accepted.
void Importer::check_recurrent_options(const Node& node, std::int64_t positions) {
  const Attributes attributes(node);
  const bool is_lstm = node.type == "LSTM";
  const auto defaults = default_activations(node.type);
  const std::vector<std::string> activations = attributes.texts("activations");
  for (std::size_t k = 0; k < activations.size(); ++k)
    if (lower(activations[k]) != defaults[k % defaults.size()])
      refuse(node, fmt::format("expected the activations {}", fmt::join(defaults, ", ")),
             fmt::format("got {}", fmt::join(activations, ", ")));
  if (const float limit = attributes.number("clip", std::numeric_limits<float>::infinity());
      limit < std::numeric_limits<float>::max())
    refuse(node, "expected values that are not limited (no \"clip\")",
           fmt::format("they are limited to {}", limit));
  if (attributes.integer("input_forget", 0) != 0)
    refuse(node, "expected a separate forget gate", "it has \"input_forget\"");
  if (node.type == "GRU" && attributes.integer("linear_before_reset", 0) == 0)
    refuse(node, "expected a GRU that resets after the product (\"linear_before_reset\" 1)",
           "it resets before");
  if (is_lstm && has_input(node, 7)) {
    const Constant* const peepholes = constant_at(node, 7);
    if (peepholes == nullptr || !peepholes->is_zero())
      refuse(node, "expected no peepholes", "it has some");
  }
  if (is_lstm && is_used(node, 2))
    refuse(node, "expected its outputs only", "the cell state after the last position is read");
  if (patterns_.contains(&node) || !has_input(node, 4)) return;
  const Constant* const lengths = constant_at(node, 4);
  const auto* const values = lengths == nullptr ? nullptr : lengths->integers();
  if (values == nullptr || !std::ranges::all_of(*values, [&](auto v) { return v == positions; }))
    refuse(node, "expected sequences of one length", "their lengths are an input");
}

/// Whether the second half of the biases is trained as well. PyTorch trains it; other programs, and
/// Lockstep for layers of one bias, write zeros.
bool Importer::has_two_biases(const Node& node) {
  if (node.type == "GRU") return true;
  if (!options_.keeps_two_biases) return false;
  if (model_.producer == "pytorch") return true;
  const Constant& constant = weights_at(node, 3);
  const std::vector<float>& values = *constant.floats();
  const std::size_t block = values.size() / static_cast<std::size_t>(2 * constant.shape.front());
  for (std::size_t k = 0; k < values.size(); ++k)
    if (k / block % 2 == 1 && values[k] != 0) return true;
  return false;
}

void Importer::import_recurrent(const Node& node) {
  const bool is_lstm = node.type == "LSTM";
  const bool is_gru = node.type == "GRU";
  const std::span<const std::size_t> blocks = is_lstm  ? std::span<const std::size_t>(kLstmBlocks)
                                              : is_gru ? std::span<const std::size_t>(kGruBlocks)
                                                       : std::span<const std::size_t>(kRnnBlocks);
  const auto found = patterns_.find(&node);
  const LayerPattern* const pattern = found == patterns_.end() ? nullptr : found->second;
  const Attributes attributes(node);
  const Array input = array_at(node, 0);
  const std::size_t batch = attributes.integer("layout", 0) != 0 ? 0 : 1;
  if (input.shape.size() != 3 || input.batch() != batch)
    refuse(node, "expected a sequence with the samples where \"layout\" has them",
           fmt::format("they are axis {} of {}", input.batch(), input.shape.size()));
  const std::string direction = attributes.text("direction", "forward");
  const bool is_bidirectional = direction == "bidirectional";
  if (!is_bidirectional && direction != "forward" && direction != "reverse")
    refuse(node, "expected \"direction\" to be forward, reverse or bidirectional",
           fmt::format("got \"{}\"", direction));

  const std::int64_t positions = input.shape[1 - batch];
  check_recurrent_options(node, positions);
  const bool has_segments = pattern != nullptr && has_input(node, 4);
  const bool has_state = pattern != nullptr && has_input(node, 5);
  for (const std::size_t state : {std::size_t{5}, std::size_t{6}}) {
    if (!has_input(node, state) || (!is_lstm && state == 6) || has_state) continue;
    const Constant* const initial = constant_at(node, state);
    if (initial == nullptr || !initial->is_zero())
      refuse(node, "expected an initial state of 0", "it is not 0");
  }

  const Constant& kernel = weights_at(node, 1);
  const Constant& recurrent = weights_at(node, 2);
  const std::int64_t directions = is_bidirectional ? 2 : 1;
  const auto gates = static_cast<std::int64_t>(blocks.size());
  const std::int64_t features = input.shape[2];
  const std::int64_t units = recurrent.shape.empty() ? 0 : recurrent.shape.back();
  if (units <= 0 || units >= (std::int64_t{1} << 24) ||
      recurrent.shape != Shape{directions, gates * units, units} ||
      kernel.shape != Shape{directions, gates * units, features})
    refuse(node,
           fmt::format("expected weights of {} directions and {} gates for {} features", directions,
                       gates, features),
           fmt::format("got {} and {}", model::to_string(kernel.shape),
                       model::to_string(recurrent.shape)));
  const bool has_bias = has_input(node, 3);
  if (has_bias && weights_at(node, 3).shape != Shape{directions, 2 * gates * units})
    refuse(node, fmt::format("expected a bias [{}, {}]", directions, 2 * gates * units),
           fmt::format("got {}", model::to_string(weights_at(node, 3).shape)));
  const bool two_biases = has_bias && has_two_biases(node);

  const bool sequences = is_used(node, 0);
  const bool last = is_used(node, 1);
  const bool is_reverse = direction == "reverse";
  const bool is_reversed_sequence = pattern != nullptr && pattern->reverses_sequence;
  if (sequences && ((is_reverse && !is_reversed_sequence) || (last && has_segments) ||
                    (last && is_bidirectional)))
    refuse(
        node,
        "expected a reversed layer to return its last output, and one that is bidirectional or has "
        "segments either all outputs or the last ones",
        "others are read");
  const model::RecurrentOptions options{.units = units,
                                        .return_sequences = sequences,
                                        .go_backwards = is_reverse,
                                        .bidirectional = is_bidirectional,
                                        .use_bias = has_bias,
                                        .recurrent_bias = two_biases,
                                        .segments = has_segments,
                                        .initial_state = has_state};
  std::vector<NodeId> inputs = {plain(node, input)};
  if (has_state) inputs.push_back(plain(node, samples_at(node, 5)));
  if (has_segments) inputs.push_back(plain(node, samples_at(node, 4)));
  const std::string name = layer_name(node, 1);
  const NodeId layer = is_lstm  ? add(node, model::LSTM(options), inputs, name)
                       : is_gru ? add(node, model::GRU(options), inputs, name)
                                : add(node, model::SimpleRNN(options), inputs, name);

  const auto block = static_cast<std::size_t>(units);
  const std::size_t rows = block * blocks.size();
  for (std::size_t d = 0; d < static_cast<std::size_t>(directions); ++d) {
    const std::string prefix = d == 0 ? "" : "backward_";
    const auto set_array = [&](const char* parameter, std::vector<float> values) {
      set_weights(layer, (prefix + parameter).c_str(), std::move(values));
    };
    const auto width = static_cast<std::size_t>(features);
    set_array("kernel", reordered(*kernel.floats(), d * rows * width, block * width, blocks));
    set_array("recurrent_kernel",
              reordered(*recurrent.floats(), d * rows * block, block * block, blocks));
    if (!has_bias) continue;
    const std::vector<float>& biases = *weights_at(node, 3).floats();
    std::vector<float> bias = reordered(biases, 2 * d * rows, block, blocks);
    std::vector<float> other = reordered(biases, (2 * d + 1) * rows, block, blocks);
    for (std::size_t k = 0; k < rows && !two_biases; ++k) bias[k] += other[k];
    set_array("bias", std::move(bias));
    if (two_biases) set_array("recurrent_bias", std::move(other));
  }

  // Outputs in the graph: [T, directions, N, units] and [directions, N, units], or with "layout" 1
  // [N, T, directions, units] and [N, directions, units].
  Array all;
  all.node = layer;
  all.axes = {positions, directions, units};
  all.order = {0, 1, 2};
  all.shape = batch == 0 ? Shape{kSampleCount, positions, directions, units}
                         : Shape{positions, directions, kSampleCount, units};
  if (sequences) set(node, all);
  if (!last) return;
  Array end;
  end.node = layer;
  if (sequences) end = cropped(node, all, batch == 0 ? 1 : 0, positions - 1, positions);
  end.shape =
      batch == 0 ? Shape{kSampleCount, directions, units} : Shape{directions, kSampleCount, units};
  if (!sequences) {
    end.axes = {directions, units};
    end.order = {0, 1};
  }
  set(node, end, 1);
}

}  // namespace lockstep::inline v0::onnx
