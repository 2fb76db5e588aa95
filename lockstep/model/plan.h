// Places the buffers of a plan in one piece of memory: two may share bytes if they are never needed at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/model/backend.h"
#include "lockstep/model/graph.h"
#include "lockstep/model/network.h"

namespace lockstep::model {

/// A buffer's size and the interval of time, both ends included, in which its content matters.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaLayout {
  std::vector<std::size_t> offsets;  ///< one per lifetime; multiples of 64
  std::size_t bytes = 0;
};

/// Greedy by size: the largest buffer first, each at the lowest offset where it meets none that lives at the same time
/// (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020). Deterministic.
ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes);

// A network compiled for one batch size: the order of operations and every buffer's place in one arena.

/// Forward and, in training, backward for exactly `batch` samples. Nothing is allocated in a pass.
class Plan {
 public:
  /// The model's flat arrays; they outlive the plan, as network and backend do.
  struct Arrays {
    std::span<float> parameters;
    TensorView weights;  ///< the parameters in the backend's precision
    std::span<float> buffers;
  };
  Plan(const Network& network, Backend& backend, std::int64_t batch, bool training, const Arrays& arrays);
  ~Plan();

  /// Bytes of arena that bind() needs.
  std::size_t arena_bytes() const { return layout_.bytes; }
  /// Points all tensors into `arena`, 64-byte aligned, of at least arena_bytes().
  void bind(std::byte* arena);

  /// Where the backend's load() puts the features; empty where forward reads them where they are.
  TensorView input() const;
  /// Runs forward on what was loaded, or on `features`, [batch, input shape...], in host memory; they must stay in
  /// place until backward has run.
  void forward(const TensorView& features, const PassContext& pass);
  /// [batch, output shape...], valid after forward until the next pass of any plan on the same arena.
  TensorView output() const;
  /// To be filled by the loss between forward and backward; empty where nothing is trained.
  TensorView output_gradient() const;
  /// Writes every parameter's gradient into the flat array `gradients` and tells `ready` (may be empty) after each.
  void backward(const PassContext& pass, std::span<float> gradients, const GradientReady& ready);

  /// Takes part in what the operations of several replicas exchange, without samples of its own.
  void forward_without_samples();
  /// Likewise; writes no gradient and tells `ready` in the same order, between the same exchanges.
  void backward_without_samples(const GradientReady& ready);

 private:
  using StorageId = int;
  static constexpr StorageId kNone = -1;
  static constexpr StorageId kExternal = -2;  // the caller's features, in host memory and of the plan's type

  // One step's operation and its view of memory.
  struct Step {
    GraphStep graph;
    const Node* node = nullptr;
    std::unique_ptr<Operation> operation;  // null: the output is the input's memory
    Needs needs;
    bool runs_backward = false;
    // Per input: where its gradient is written first if another reader has written the real one before, so that this
    // one is added.
    std::vector<StorageId> addends;
    StorageId saved = kNone;
    StorageId statistics = kNone;  // of the step that finds them and of the one that takes them
    Operands operands;
  };

  // One array of the network: where it lies, where its gradient lies, and who reads it.
  struct Value {
    std::size_t elements = 0;
    int producer = -1;           // step; -1 for the network's input
    std::vector<int> consumers;  // steps, ascending
    bool needs_gradient = false;
    StorageId storage = kNone;
    StorageId gradient = kNone;
  };

  void compile_steps(const Network& network, Graph graph, bool training);
  void mark_gradients();
  void assign_storage();
  void assign_gradients();
  void assign_workspace();
  void bind_parameters(const Arrays& arrays, const Network& network);
  bool may_run_in_place(const Step& step) const;
  bool has_input_statistics(const Step& step) const;

  StorageId new_storage(std::size_t bytes, int first, int last);
  void extend(StorageId storage, int time);
  int backward_time(int step) const { return 2 * static_cast<int>(steps_.size()) - 1 - step; }
  int end_of_forward() const { return static_cast<int>(steps_.size()) - 1; }
  // kInput, which is -1, comes first.
  static std::size_t index_of(NodeId node) {
    const NodeId index = node - kInput;
    return static_cast<std::size_t>(index);
  }
  Value& value(NodeId node) { return values_[index_of(node)]; }
  const Value& value(NodeId node) const { return values_[index_of(node)]; }
  TensorView view(StorageId storage, std::size_t elements) const;
  StorageId new_array(std::size_t elements, int first, int last);
  void point_gradients_at(std::span<float> gradients);

  Backend& backend_;
  std::int64_t batch_;
  bool training_;
  std::vector<Step> steps_;
  std::vector<Value> values_;  // the network's input first, then one per node
  NodeId output_;
  std::vector<Lifetime> lifetimes_;  // by StorageId
  ArenaLayout layout_;
  StorageId scratch_ = kNone;
  std::byte* arena_ = nullptr;
  std::span<const ParameterInfo> parameter_entries_;
  float* bound_gradients_ = nullptr;
};

}  // namespace lockstep::model
