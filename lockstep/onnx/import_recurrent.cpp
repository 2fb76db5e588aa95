// LSTM, GRU and RNN.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/onnx/importer.h"

namespace lockstep::onnx {
namespace {

using model::NodeId;
using model::Shape;

/// The blocks of our arrays, as indices of those of ONNX: i, f, g, o of i, o, f, c, and r, z, n of
/// z, r, h; an RNN has one.
constexpr std::array<std::size_t, 4> kLstmBlocks{0, 2, 3, 1};
constexpr std::array<std::size_t, 3> kGruBlocks{1, 0, 2};
constexpr std::array<std::size_t, 1> kRnnBlocks{0};

/// Block by block from `from`, which begins at `begin` and has as many elements per block as `to`.
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

}  // namespace

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

  // What our layers have no option for.
  for (const char* const option : {"activations", "activation_alpha", "activation_beta", "clip"})
    if (attributes.has(option))
      refuse(node, "expected the default activations", fmt::format("it has \"{}\"", option));
  if (attributes.integer("input_forget", 0) != 0)
    refuse(node, "expected a forget gate of its own", "it has \"input_forget\"");
  if (is_gru && attributes.integer("linear_before_reset", 0) == 0)
    refuse(node, "expected a GRU that resets after the product (\"linear_before_reset\" 1)",
           "it resets before");
  const bool has_segments = pattern != nullptr && has_input(node, 4);
  const bool has_state = pattern != nullptr && has_input(node, 5);
  if (has_input(node, 4) && !has_segments)
    refuse(node, "expected sequences of one length", "their lengths are an input");
  for (const std::size_t state : {std::size_t{5}, std::size_t{6}}) {
    if (!has_input(node, state) || (!is_lstm && state == 6) || has_state) continue;
    const Constant* const initial = constant_at(node, state);
    if (initial == nullptr || !initial->is_zero())
      refuse(node, "expected an initial state of 0", "it is another");
  }
  if (is_lstm && has_input(node, 7)) refuse(node, "expected no peepholes", "it has some");
  if (is_lstm && is_used(node, 2))
    refuse(node, "expected its outputs only", "the cell state after the last position is read");

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
    const auto put_as = [&](const char* parameter, std::vector<float> values) {
      put(layer, (prefix + parameter).c_str(), std::move(values));
    };
    const auto width = static_cast<std::size_t>(features);
    put_as("kernel", reordered(*kernel.floats(), d * rows * width, block * width, blocks));
    put_as("recurrent_kernel",
           reordered(*recurrent.floats(), d * rows * block, block * block, blocks));
    if (!has_bias) continue;
    const std::vector<float>& biases = *weights_at(node, 3).floats();
    std::vector<float> bias = reordered(biases, 2 * d * rows, block, blocks);
    std::vector<float> other = reordered(biases, (2 * d + 1) * rows, block, blocks);
    // An LSTM or RNN of ours has the sum of both.
    for (std::size_t k = 0; k < rows && !is_gru; ++k) bias[k] += other[k];
    put_as("bias", std::move(bias));
    if (is_gru) put_as("recurrent_bias", std::move(other));
  }

  // Outputs in the graph: [T, directions, N, units] and [directions, N, units], or with "layout" 1
  // [N, T, directions, units] and [N, directions, units].
  const std::int64_t positions = input.shape[1 - batch];
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

}  // namespace lockstep::onnx
