// Recurrent layers: one implementation for LSTM, GRU and SimpleRNN.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct RecurrentSpec;

/// The computation of a recurrent layer at each position of a sequence. With x the input, h the
/// previous output, W the kernel, R the recurrent kernel, b the bias, and * for products of
/// elements:
enum class RecurrentCell {
  /// h' = tanh(W x + b + R h + c), with a recurrent bias c only where the layer has one.
  simple_rnn,
  /// r, z = sigmoid(W x + b + R h + c), n = tanh(W x + b + r * (R h + c)),
  /// h' = (1 - z) * n + z * h (Cho et al., arXiv 1406.1078, in the form of cuDNN and PyTorch, which
  /// is Keras's with reset_after). Blocks of the arrays: r, z, n.
  gru,
  /// i, f, o = sigmoid(W x + b + R h + d), g = tanh(W x + b + R h + d), c' = f * c + i * g,
  /// h' = o * tanh(c'), with a recurrent bias d only where the layer has one (Gers et al., 2000).
  /// Blocks of the arrays: i, f, g, o.
  lstm,
};

/// Options of recurrent layers, as in Keras.
struct RecurrentOptions {
  std::int64_t units = 0;         ///< elements of the output at a position; required
  bool return_sequences = false;  ///< [T, units] instead of the last output [units]
  /// Reads the last position first. A sequence of outputs is in the order in which they are
  /// computed, as in Keras.
  bool go_backwards = false;
  /// Another set of parameters, "backward_…", reads the last position first. The outputs of both
  /// for the same position are concatenated: [T, 2 * units], or [2 * units].
  bool bidirectional = false;
  bool use_bias = true;  ///< whether to add biases
  /// Whether an LSTM or a SimpleRNN adds a second bias, to the recurrent product, as PyTorch does.
  /// It does not extend the function, but both biases have the same gradient, so that their sum
  /// changes by two updates. A GRU always has it.
  bool recurrent_bias = false;
  /// The last input, an int32 input [T] of the network, holds segments, as for Attention. 0 is
  /// padding, which keeps the state and has output 0 in a sequence. The first position of another
  /// document starts from the initial state. The last output is that of the last position read that
  /// is not padding.
  bool segments = false;
  /// The second input is the state before the first position: the output [units], for an LSTM then
  /// the cell state [units]; with `bidirectional` those of both directions, "backward_…" last.
  bool initial_state = false;
};

/// [T, F], and optionally an initial state and segments, to [units] or [T, units]; without an
/// initial state it is 0. Arrays "kernel" [gates * units, F], initially Glorot uniform,
/// "recurrent_kernel" [gates * units, units], orthogonal, and "bias" [gates * units], initially 0,
/// but 1 for the forget gates of an LSTM; a GRU, and others by an option, also have
/// "recurrent_bias" [gates * units], initially 0. A 16-bit LSTM keeps its cell state in float32.
class Recurrent : public BuiltinLayer {
 public:
  /// Writes the options as read_options() reads them.
  void write(nlohmann::json& object) const;

  const RecurrentOptions& options() const { return options_; }  ///< as constructed
  std::string kind() const override;
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  /// Layers of one direction that return sequences, without an initial state, are incremental.
  Traits traits() const override;
  std::optional<std::size_t> index_input(std::size_t inputs) const override;

 protected:
  /// Options are checked when the layer is added to a network.
  Recurrent(RecurrentCell cell, const RecurrentOptions& options) : cell_(cell), options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static RecurrentOptions read_options(JsonObject& object, RecurrentCell cell);

 private:
  void check(const BuildContext& context) const;  // inputs and options
  bool has_recurrent_bias() const;
  RecurrentSpec spec(const CompileContext& context) const;

  RecurrentCell cell_;
  RecurrentOptions options_;
};

/// The layer of a cell.
template <RecurrentCell kCell>
class CellLayer final : public Recurrent {
 public:
  /// Options are checked when the layer is added to a network.
  explicit CellLayer(const RecurrentOptions& options) : Recurrent(kCell, options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& /*data*/) {
    return std::make_shared<const CellLayer>(read_options(object, kCell));
  }
};

using SimpleRNN =
    CellLayer<RecurrentCell::simple_rnn>;     ///< a dense layer of input and previous output
using GRU = CellLayer<RecurrentCell::gru>;    ///< gated recurrent units
using LSTM = CellLayer<RecurrentCell::lstm>;  ///< long short-term memory

/// A recurrent layer for one batch size. In its memory, positions are outermost, in the order in
/// which they are read, so that the samples of one step are the rows of one product. "Direction" 1
/// is that of the parameters "backward_…".
struct RecurrentSpec {
  RecurrentCell cell = RecurrentCell::lstm;  ///< cell type
  std::int64_t batch = 0;                    ///< samples
  std::int64_t rows = 0;                     ///< rows of a step in memory; 0 after the batch
  std::int64_t steps = 0;                    ///< T
  std::int64_t inputs = 0;                   ///< F
  std::int64_t units = 0;                    ///< outputs per step and direction
  int directions = 1;                        ///< 1 or 2
  bool go_backwards = false;    ///< whether the only direction reads the last position first
  bool sequences = false;       ///< whether all steps are outputs, or the last
  bool bias = true;             ///< whether to add biases
  bool recurrent_bias = false;  ///< whether the recurrent products have a separate bias
  bool segments = false;        ///< whether there may be padding and several documents
  bool initial_state = false;   ///< whether the state before the first step is an input
  bool training = false;        ///< whether a backward pass follows
  bool input_gradient = false;  ///< whether backward must write the gradient of an input
  std::int64_t positions = 0;   ///< CompileContext::positions

  /// Elements of a row of the products.
  std::int64_t width() const {
    return units * (cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1);
  }
  /// Arrays of `units` elements that a step passes to the next one.
  std::int64_t states() const { return cell == RecurrentCell::lstm ? 2 : 1; }
  /// Elements of a sample's initial state.
  std::int64_t state_elements() const { return directions * states() * units; }
  /// Offset of a direction in it, in elements.
  std::int64_t state_offset(int direction) const { return direction * states() * units; }
  /// Rows of all steps.
  std::int64_t all_rows() const { return steps * rows; }
  /// Index of the first parameter of a direction: kernel, recurrent kernel, biases.
  std::size_t first_parameter(int direction) const {
    return direction == 0 ? 0 : std::size_t{2} + (bias ? 1 : 0) + (recurrent_bias ? 1 : 0);
  }
  /// Whether a direction reads the last position first.
  bool is_reversed(int direction) const { return go_backwards || direction == 1; }
  /// The position that a step reads.
  std::int64_t input_position(std::int64_t step, int direction) const {
    return is_reversed(direction) ? steps - 1 - step : step;
  }
  /// Whether the output contains that of a step.
  bool is_output(std::int64_t step) const { return sequences || step == steps - 1; }
  /// Offset in elements of the output of a step, which is_output(), in that of a sample.
  std::int64_t output_offset(std::int64_t step, int direction) const {
    const std::int64_t position = direction == 1 ? steps - 1 - step : step;
    return ((sequences ? position : 0) * directions + direction) * units;
  }
  /// Elements of a sample's output.
  std::int64_t output_elements() const { return (sequences ? steps : 1) * directions * units; }
};

/// How a step processes the row of one sample. `first` is the first position of another document.
enum class RecurrentMark : std::uint8_t { next, padding, first };
/// The mark of a position of `segment`. `document` is the last segment read before it that is not
/// padding; 0: there is none.
constexpr RecurrentMark recurrent_mark(std::int32_t document, std::int32_t segment) {
  if (segment == 0) return RecurrentMark::padding;
  return document == 0 || document == segment ? RecurrentMark::next : RecurrentMark::first;
}

/// Lays out parts of one memory block, each at a multiple of 64 bytes.
class MemoryParts {
 public:
  /// Adds a part; returns its offset.
  std::size_t add(std::size_t bytes) {
    const std::size_t begin = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  std::size_t bytes() const { return bytes_; }  ///< total

 private:
  static constexpr std::size_t kAlignment = 64;
  std::size_t bytes_ = 0;
};

/// The data of one direction that forward keeps, as offsets in its part of Operands::saved.
struct RecurrentLayout {
  /// [T, rows, width]: the products of the inputs; a step replaces them by the values of its gates,
  /// and in backward by the gradients of their preactivations.
  std::size_t gates = 0;
  /// [T + 1, rows, units]: the outputs that the steps read. That of a RecurrentMark::first is the
  /// initial one, which is in the rows of step 0.
  std::size_t hidden = 0;
  /// [T + 1, rows, units] float32: the cell states of an LSTM before and after the steps. A
  /// RecurrentMark::first reads that of step 0 instead, the initial one.
  std::size_t state = 0;
  /// [T, rows, units]: R h + c of the n of a GRU; in training.
  std::size_t candidates = 0;
  std::size_t marks = 0;  ///< [T, rows] RecurrentMark; with segments
  std::size_t bytes = 0;  ///< size for one direction
};
/// The layout for elements of `element_bytes` bytes.
RecurrentLayout recurrent_layout(const RecurrentSpec& spec, std::size_t element_bytes);

}  // namespace lockstep::inline v0::model
