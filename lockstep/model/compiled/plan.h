// A network compiled for one batch size, whose buffers are in one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/model/compiled/arena.h"
#include "lockstep/model/compiled/recomputation.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/network/graph.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::model {

/// Forward and, in training, backward for exactly `batch` samples: the order of operations, and the
/// place of every buffer in one arena. A pass does not allocate memory.
class Plan {
 public:
  /// The model's flat arrays. They must outlive the plan, as must the network and the backend.
  struct Arrays {
    std::span<float> parameters;
    TensorView weights;  ///< the parameters in the backend's precision
    std::span<float> buffers;
  };
  /// `rows`, in inference: number of sequence positions per pass, where the sequence is the first
  /// extent of all shapes (CompileContext::positions); 0: all. `recompute` applies to training.
  /// `loss_rows`, in training: for each output of the network the number of rows to compute at a
  /// time, with their loss, if its layer supports it (Traits::computes_loss) and only the loss
  /// reads it; 0, or an empty list: all.
  Plan(const Network& network, Backend& backend, std::int64_t batch, bool training,
       const Arrays& arrays, std::int64_t rows = 0, Recompute recompute = Recompute::none,
       std::vector<std::int64_t> loss_rows = {});
  ~Plan();

  /// Size of the arena that bind() needs.
  std::size_t arena_bytes() const { return layout_.bytes; }
  /// Points all tensors into `arena`, which is 64-byte aligned and has at least arena_bytes().
  void bind(std::byte* arena);
  /// Size of the buffer that bind_cache() needs, independent of the number of rows.
  std::size_t cache_bytes() const;
  /// Makes the next passes use `cache`, which is 64-byte aligned and may hold earlier rows of the
  /// same sequences from other plans.
  void bind_cache(std::byte* cache);

  /// Moves a batch of this plan's size to where forward reads it. Host memory that forward reads in
  /// place must stay valid until backward has run.
  void load(const BatchView& batch, bool staged);
  /// Runs forward on the loaded batch.
  void forward(const PassContext& pass);
  /// The output with this index of Network::outputs(), [batch, output shape...], valid after
  /// forward until the next pass of any plan on the same arena.
  TensorView output(std::size_t index = 0) const;
  /// The gradient of an output, which the caller writes between forward and backward; empty if the
  /// output depends on no trained parameter.
  TensorView output_gradient(std::size_t index = 0) const;
  /// Whether this output is computed in blocks of rows, with its loss, in backward. It then has no
  /// output() and no output_gradient(), and requires set_loss().
  bool computes_loss(std::size_t index) const { return step_of(index).loss_rows > 0; }
  /// Sets the loss of such an output for the next backward.
  void set_loss(std::size_t index, RowLoss loss) { step_of(index).operands.loss = std::move(loss); }
  /// Writes every trained parameter's gradient to the flat array `gradients` and calls `ready` (may
  /// be empty) after each.
  void backward(const PassContext& pass, std::span<float> gradients, const GradientReady& ready);

  /// Participates in the communication of a forward pass, without samples.
  void forward_without_samples();
  /// Participates in the communication of backward: writes no gradients, and calls `ready` in the
  /// same order relative to the exchanges.
  void backward_without_samples(const GradientReady& ready);

 private:
  using StorageId = int;
  static constexpr StorageId kNone = -1;
  // kExternal - k: input k in the caller's host memory, features in the plan's type or indices.
  static constexpr StorageId kExternal = -2;

  // The operation of one step and its operands.
  struct Step {
    GraphStep graph;
    const Node* node = nullptr;
    const char* forward_lap = "";          // from trace::intern(), "conv1 forward"
    const char* backward_lap = "";         // "conv1 backward"
    std::unique_ptr<Operation> operation;  // null: the output is the memory of the input
    Needs needs;
    std::int64_t flop = 0;       // operations of forward
    std::int64_t loss_rows = 0;  // CompileContext::loss_rows
    bool runs_backward = false;
    // Step i runs forward at time i. These are the times of its backward pass, and of its second
    // forward if the step is recomputed.
    int backward_time = 0;
    int rerun_time = -1;
    std::vector<std::size_t> reruns;   // steps recomputed before its backward, in order
    bool frozen = false;               // Network::is_frozen()
    StorageId discarded = kNone;       // unused gradients of frozen parameters
    std::vector<std::size_t> trained;  // trained indices into node->own_parameters(), consecutive
    // Per input: temporary storage of its gradient, if another reader has already written one.
    std::vector<StorageId> addends;
    StorageId saved = kNone;
    StorageId statistics = kNone;  // read or written by this step
    StorageId narrow_gradient = kNone;
    bool widens = false;         // narrow_gradient belongs to a trained parameter
    bool ends_widening = false;  // the narrow gradients so far are then widened
    Operands operands;
  };

  // One array of the network: its storage, its gradient and its readers.
  struct Value {
    std::size_t elements = 0;
    int producer = -1;           // index of a step; -1 for an input of the network
    std::vector<int> consumers;  // indices of steps, ascending
    bool is_int32 = false;       // an input of indices
    bool needs_gradient = false;
    StorageId storage = kNone;
    StorageId gradient = kNone;
  };

  void place_inputs(const Network& network);
  Shape pass_shape(Shape shape) const;
  void compile_steps(const Network& network, Graph graph, bool training);
  void mark_gradients();
  StepArrays arrays_of(std::size_t step) const;
  void assign_times(Recompute recompute);
  void run_forward(Step& step, const PassContext& pass, Part part);
  bool is_shared(std::size_t parameter) const;
  void assign_storage();
  void assign_gradients();
  void assign_workspace();
  void assign_narrow_gradients();
  void widen_gradients(StepProfile* profile);
  std::size_t discarded_bytes(const Step& step) const;
  void bind_parameters(const Arrays& arrays, const Network& network);
  bool may_run_in_place(std::size_t index) const;
  bool has_input_statistics(const Step& step) const;
  void pad_input(NodeId node, std::int64_t channels, std::int64_t padded);
  bool is_output(NodeId node) const;
  std::int64_t loss_rows(const Graph& graph, const Step& step) const;

  StorageId new_storage(std::size_t bytes, int first, int last);
  void extend(StorageId storage, int time);
  void write_second(StorageId storage, int time);
  int end_of_forward() const { return static_cast<int>(steps_.size()) - 1; }
  // The inputs, which are negative, come first.
  std::size_t index_of(NodeId node) const {
    return static_cast<std::size_t>(node + static_cast<NodeId>(inputs_.size()));
  }
  Value& value(NodeId node) { return values_[index_of(node)]; }
  const Value& value(NodeId node) const { return values_[index_of(node)]; }
  // The step that writes an output.
  Step& step_of(std::size_t output) {
    return steps_[static_cast<std::size_t>(value(outputs_[output]).producer)];
  }
  const Step& step_of(std::size_t output) const {
    return steps_[static_cast<std::size_t>(value(outputs_[output]).producer)];
  }
  TensorView view(StorageId storage, std::size_t elements) const;
  StorageId new_array(std::size_t elements, int first, int last);
  void point_gradients_at(std::span<float> gradients);
  void end_layer(const Step& step, Part last, StepProfile& profile) const;
  static Work work_of(const Step& step, Part part);

  Backend& backend_;
  std::int64_t batch_;
  bool training_;
  std::int64_t rows_;                    // 0: all
  std::int64_t positions_;               // length of the sequences; 0: rows_ is 0
  std::vector<std::int64_t> loss_rows_;  // by output; may be empty
  std::vector<Step> steps_;
  std::vector<Value> values_;        // the network's inputs, the last one first, then the nodes
  std::vector<LoadedInput> places_;  // the inputs in the arena; empty if read in place
  std::vector<LoadedInput> inputs_;  // the loaded batch
  std::vector<NodeId> outputs_;
  Recomputation recomputation_;
  int end_ = 0;                      // the time after the last backward
  std::vector<Lifetime> lifetimes_;  // indexed by StorageId
  ArenaLayout layout_;
  StorageId scratch_ = kNone;
  std::byte* arena_ = nullptr;
  std::span<const ParameterInfo> parameter_entries_;  // trained ones first
  std::size_t trained_;                               // number of trained parameters
  float* bound_gradients_ = nullptr;
  std::vector<Widening> widenings_;  // gradients that are not yet widened
};

}  // namespace lockstep::inline v0::model
