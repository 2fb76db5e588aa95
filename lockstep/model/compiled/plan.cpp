#include "lockstep/model/compiled/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::model {
namespace {

// The number of elements of an array of all samples, limited so that the bytes of all arrays do not
// overflow.
std::size_t elements_of(std::int64_t batch, const Shape& shape, const std::string& name) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;
  std::int64_t elements = 0;
  if (__builtin_mul_overflow(batch, element_count(shape), &elements) || elements > kMaxElements)
    throw Error(ErrorCategory::input, name, "expected an array of at most 2^48 elements",
                fmt::format("got {} samples of {}", batch, to_string(shape)));
  return static_cast<std::size_t>(elements);
}

}  // namespace

Plan::Plan(const Network& network, Backend& backend, std::int64_t batch, bool training,
           const Arrays& arrays, std::int64_t rows, Recompute recompute,
           std::vector<std::int64_t> loss_rows)
    : backend_(backend),
      batch_(batch),
      training_(training),
      rows_(rows),
      positions_(rows > 0 ? network.input_shape().front() : 0),
      loss_rows_(std::move(loss_rows)),
      places_(network.inputs().size()),
      inputs_(network.inputs().size()),
      parameter_entries_(network.parameters().entries()),
      trained_(network.trained().entries().size()) {
  Graph graph = make_graph(network, training && backend.fuses_statistics());
  for (GraphStep& step : graph.steps) {
    step.output_shape = pass_shape(std::move(step.output_shape));
    for (Shape& shape : step.input_shapes) shape = pass_shape(std::move(shape));
  }
  outputs_ = graph.outputs;
  place_inputs(network);
  compile_steps(network, std::move(graph), training);
  mark_gradients();
  assign_times(recompute);
  assign_storage();
  if (training_) assign_gradients();
  if (training_) assign_narrow_gradients();
  assign_workspace();
  layout_ = plan_arena(lifetimes_);
  bind_parameters(arrays, network);
}

Plan::~Plan() = default;

// The part of `shape` that one pass computes.
Shape Plan::pass_shape(Shape shape) const {
  if (rows_ > 0) shape.front() = rows_;
  return shape;
}

void Plan::place_inputs(const Network& network) {
  values_.resize(network.inputs().size() + network.nodes().size());
  for (std::size_t k = 0; k < network.inputs().size(); ++k) {
    const NetworkInput& description = network.inputs()[k];
    Value& input = value(kInput - static_cast<NodeId>(k));
    input.elements = elements_of(batch_, pass_shape(description.shape), description.name);
    input.is_int32 = description.type == ElementType::int32;
    if (backend_.runs_on_host() && (input.is_int32 || backend_.precision() == Precision::float32))
      input.storage = kExternal - static_cast<StorageId>(k);
    else if (input.is_int32)
      input.storage = new_storage(input.elements * sizeof(std::int32_t), 0, 0);
    else
      input.storage = new_array(input.elements, 0, 0);
  }
}

void Plan::compile_steps(const Network& network, Graph graph, bool training) {
  std::vector<int> input_readers(inputs_.size());
  for (std::size_t k = 0; k < inputs_.size(); ++k)
    for (const GraphStep& step : graph.steps)
      input_readers[k] += std::ranges::count(step.inputs, kInput - static_cast<NodeId>(k)) > 0;
  for (GraphStep& description : graph.steps) {
    const int index = static_cast<int>(steps_.size());
    Step& step = steps_.emplace_back();
    step.graph = std::move(description);
    step.node = &network.nodes()[step.graph.node];
    step.forward_lap = trace::intern(step.node->name + " forward");
    step.backward_lap = trace::intern(step.node->name + " backward");
    Value& output = value(step.graph.node);
    output.elements = elements_of(batch_, step.graph.output_shape, step.node->name);
    output.producer = index;
    for (const NodeId input : step.graph.inputs) {
      value(input).consumers.push_back(index);
      output.needs_gradient |= value(input).needs_gradient;
    }
    const bool input_gradients = output.needs_gradient;
    const auto is_trained = [&](std::size_t p) { return p < trained_; };
    std::ranges::copy_if(step.node->own_parameters(), std::back_inserter(step.trained), is_trained);
    step.frozen = network.is_frozen(*step.node);
    output.needs_gradient |= std::ranges::any_of(step.node->parameters, is_trained);
    if (step.graph.absorbed) continue;
    step.loss_rows = loss_rows(graph, step);
    const NodeId first_input = step.graph.inputs.front();
    const bool is_read_later = std::any_of(
        graph.steps.begin() + index + 1, graph.steps.end(),
        [&](const GraphStep& later) { return std::ranges::count(later.inputs, first_input) > 0; });
    const CompileContext context{
        .name = step.node->name,
        .batch = batch_,
        .inputs = step.graph.input_shapes,
        .output = step.graph.output_shape,
        .training = training,
        .fused_add = step.graph.fused_add,
        .fused_relu = step.graph.fused_relu,
        .fused_statistics = step.graph.fused_statistics,
        .input_statistics = has_input_statistics(step),
        .input_gradients = input_gradients,
        .frozen = step.frozen,
        .adds_input_gradient = input_gradients && (is_read_later || is_output(first_input)),
        .reads_network_input =
            is_input(first_input) && input_readers[input_index(first_input)] == 1,
        .positions = positions_,
        .loss_rows = step.loss_rows};
    step.operation = step.node->layer->compile(context, backend_);
    step.flop = step.node->layer->flop(context);
    if (step.operation) step.needs = step.operation->needs();
    if (step.loss_rows > 0)
      output.elements = static_cast<std::size_t>(step.loss_rows * step.needs.row_stride);
    if (step.needs.input_channels > 0)
      pad_input(first_input, network.shape(first_input).back(), step.needs.input_channels);
  }
}

// Whether the preceding step computes the statistics of this step's input.
bool Plan::has_input_statistics(const Step& step) const {
  const int producer = value(step.graph.inputs.front()).producer;
  return producer >= 0 && steps_[producer].needs.statistics_bytes > 0;
}

bool Plan::is_output(NodeId node) const {
  return std::ranges::find(outputs_, node) != outputs_.end();
}

// The number of output rows of `step` to compute at a time, with their loss; 0: all. Called while
// the steps are compiled.
std::int64_t Plan::loss_rows(const Graph& graph, const Step& step) const {
  const auto output = std::ranges::find(outputs_, step.graph.node);
  if (loss_rows_.empty() || output == outputs_.end() || step.graph.fused_relu ||
      !step.node->layer->traits().computes_loss || !value(step.graph.node).needs_gradient)
    return 0;
  for (const GraphStep& other : graph.steps)
    if (std::ranges::count(other.inputs, step.graph.node) > 0) return 0;
  return loss_rows_[static_cast<std::size_t>(output - outputs_.begin())];
}

void Plan::pad_input(NodeId node, std::int64_t channels, std::int64_t padded) {
  Value& input = value(node);
  LOCKSTEP_CHECK_OP(input.storage, >=, 0);
  input.elements =
      input.elements / static_cast<std::size_t>(channels) * static_cast<std::size_t>(padded);
  lifetimes_[static_cast<std::size_t>(input.storage)].bytes =
      input.elements * element_bytes(backend_.precision());
}

// Backward of a step runs if the step or a step before it has trained parameters. The layer that
// declared a shared parameter runs backward after the one that shares it, and adds to its gradient.
void Plan::mark_gradients() {
  for (Step& step : steps_) {
    step.runs_backward = training_ && value(step.graph.node).needs_gradient;
    if (!step.node->parameters.empty())
      step.operands.add_parameter_gradient =
          !step.node->owner && is_shared(step.node->parameters.front());
  }
}

// Whether a step other than the declaring one uses the parameter.
bool Plan::is_shared(std::size_t parameter) const {
  return std::ranges::any_of(steps_, [&](const Step& step) {
    return step.node->owner && step.node->parameters.front() == parameter;
  });
}

void Plan::bind_parameters(const Arrays& arrays, const Network& network) {
  const std::size_t bytes = element_bytes(arrays.weights.type());
  for (Step& step : steps_) {
    for (const std::size_t p : step.node->parameters) {
      const ParameterInfo& entry = network.parameters().entries()[p];
      step.operands.parameters.push_back(ParameterTable::slice(arrays.parameters, entry));
      step.operands.weights.emplace_back(
          static_cast<std::byte*>(arrays.weights.data()) + entry.offset * bytes, entry.count,
          arrays.weights.type());
    }
    for (const std::size_t b : step.node->buffers)
      step.operands.buffers.push_back(
          ParameterTable::slice(arrays.buffers, network.buffers().entries()[b]));
    step.operands.parameter_gradients.resize(step.node->parameters.size());
  }
}

TensorView Plan::view(StorageId storage, std::size_t elements) const {
  if (storage < 0) return {};
  return {arena_ + layout_.offsets[storage], elements, backend_.precision()};
}

void Plan::bind(std::byte* arena) {
  arena_ = arena;
  const auto bytes = [this](StorageId storage, std::size_t count) -> std::span<std::byte> {
    if (storage < 0) return {};
    return {arena_ + layout_.offsets[storage], count};
  };
  for (Step& step : steps_) {
    const Value& output = value(step.graph.node);
    step.operands.output = view(output.storage, output.elements);
    step.operands.output_gradient = view(output.gradient, output.elements);
    step.operands.inputs.assign(step.graph.inputs.size(), {});
    step.operands.input_gradients.assign(step.graph.inputs.size(), {});
    for (std::size_t k = 0; k < step.graph.inputs.size(); ++k) {
      const Value& input = value(step.graph.inputs[k]);
      if (!input.is_int32) step.operands.inputs[k] = view(input.storage, input.elements);
      if (!step.runs_backward) continue;
      const StorageId addend = step.addends[k];
      step.operands.input_gradients[k] =
          view(addend == kNone ? input.gradient : addend, input.elements);
    }
    step.operands.saved = bytes(step.saved, step.needs.saved_bytes);
    step.operands.scratch =
        bytes(step.needs.scratch_bytes > 0 ? scratch_ : kNone, step.needs.scratch_bytes);
    if (step.statistics != kNone)
      step.operands.statistics = bytes(step.statistics, lifetimes_[step.statistics].bytes);
    if (step.narrow_gradient != kNone)
      step.operands.narrow_gradient =
          view(step.narrow_gradient, parameter_entries_[step.node->parameters.front()].count);
    if (step.discarded == kNone) continue;
    auto* const discarded = reinterpret_cast<float*>(bytes(step.discarded, 0).data());
    for (std::size_t p = 0; p < step.node->parameters.size(); ++p)
      if (const std::size_t index = step.node->parameters[p]; index >= trained_)
        step.operands.parameter_gradients[p] = {discarded, parameter_entries_[index].count};
  }
  for (std::size_t k = 0; k < places_.size(); ++k) {
    const Value& input = value(kInput - static_cast<NodeId>(k));
    if (!input.is_int32)
      places_[k].features = view(input.storage, input.elements);
    else if (input.storage >= 0)
      places_[k].indices = {
          reinterpret_cast<std::int32_t*>(arena_ + layout_.offsets[input.storage]), input.elements};
  }
}

std::size_t Plan::cache_bytes() const {
  std::size_t bytes = 0;
  for (const Step& step : steps_) bytes += step.needs.cache_bytes;
  return bytes;
}

void Plan::bind_cache(std::byte* cache) {
  for (Step& step : steps_) {
    step.operands.cache = {cache, step.needs.cache_bytes};
    cache += step.needs.cache_bytes;
  }
}

}  // namespace lockstep::inline v0::model
