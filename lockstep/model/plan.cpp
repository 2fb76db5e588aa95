#include "lockstep/model/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::model {

bool Lifetime::overlaps(const Lifetime& other) const {
  const auto share_a_time = [](int begin, int end, int other_begin, int other_end) {
    return begin <= other_end && other_begin <= end;  // false for the empty one, 0 to -1
  };
  return share_a_time(first, last, other.first, other.last) ||
         share_a_time(again_first, again_last, other.first, other.last) ||
         share_a_time(first, last, other.again_first, other.again_last) ||
         share_a_time(again_first, again_last, other.again_first, other.again_last);
}

ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes) {
  constexpr std::size_t kAlignment = 64;
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return lifetimes[i].bytes; });

  ArenaLayout layout{.offsets = std::vector<std::size_t>(lifetimes.size()), .bytes = 0};
  std::vector<std::size_t> placed;  // sorted by offset
  for (const std::size_t i : order) {
    const Lifetime& mine = lifetimes[i];
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const Lifetime& theirs = lifetimes[other];
      if (!mine.overlaps(theirs)) continue;
      if (offset + mine.bytes <= layout.offsets[other]) break;  // fits in the gap before it
      const std::size_t end = layout.offsets[other] + theirs.bytes;
      offset = std::max(offset, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + mine.bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {},
                                           [&](std::size_t p) { return layout.offsets[p]; }),
                  i);
  }
  return layout;
}

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
  Fusions fusions = backend.fusions();
  fusions.statistics &= training;
  Graph graph = make_graph(network, fusions);
  for (GraphStep& step : graph.steps) {
    step.output_shape = of_pass(std::move(step.output_shape));
    for (Shape& shape : step.input_shapes) shape = of_pass(std::move(shape));
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

// What a pass computes of values of this shape.
Shape Plan::of_pass(Shape shape) const {
  if (rows_ > 0) shape.front() = rows_;
  return shape;
}

void Plan::place_inputs(const Network& network) {
  values_.resize(network.inputs().size() + network.nodes().size());
  for (std::size_t k = 0; k < network.inputs().size(); ++k) {
    const NetworkInput& description = network.inputs()[k];
    Value& input = value(kInput - static_cast<NodeId>(k));
    input.elements = static_cast<std::size_t>(batch_ * element_count(of_pass(description.shape)));
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
    Value& output = value(step.graph.node);
    output.elements = static_cast<std::size_t>(batch_ * element_count(step.graph.output_shape));
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
    if (step.loss_rows > 0)
      output.elements = static_cast<std::size_t>(step.loss_rows * step.graph.output_shape.back());
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
    if (step.needs.input_channels > 0)
      pad_input(first_input, network.shape(first_input).back(), step.needs.input_channels);
  }
}

// If the preceding step has computed statistics, this step is their only reader.
bool Plan::has_input_statistics(const Step& step) const {
  const int producer = value(step.graph.inputs.front()).producer;
  return producer >= 0 && steps_[producer].needs.statistics_bytes > 0;
}

bool Plan::is_output(NodeId node) const {
  return std::ranges::find(outputs_, node) != outputs_.end();
}

// How many rows of the output of `step` are computed at a time, with their loss; 0: all. Called
// while the steps are compiled.
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

// Whether a step uses it that has not declared it.
bool Plan::is_shared(std::size_t parameter) const {
  return std::ranges::any_of(steps_, [&](const Step& step) {
    return step.node->owner && step.node->parameters.front() == parameter;
  });
}

// What recomputation has to know about a step.
StepArrays Plan::arrays_of(std::size_t step) const {
  const Step& one = steps_[step];
  const Value& output = value(one.graph.node);
  StepArrays arrays{.is_alias = !one.operation,
                    .is_output = is_output(one.graph.node),
                    .output_bytes = output.elements * element_bytes(backend_.precision()),
                    .saved_bytes = one.needs.saves_once ? 0 : one.needs.saved_bytes,
                    .runs_backward = one.runs_backward,
                    .inputs_in_backward = one.needs.inputs_in_backward,
                    .output_in_backward = one.needs.output_in_backward};
  for (const NodeId input : one.graph.inputs)
    if (const int producer = value(input).producer; producer >= 0)
      arrays.inputs.push_back(producer);
  return arrays;
}

// Calls visit(step) for the steps that run again before the backward of step `last`, if that is the
// last one of its segment.
template <typename Visit>
void Plan::for_steps_again(std::size_t last, const Visit& visit) {
  const std::vector<int>& segments = recomputation_.segments;
  if (last + 1 == steps_.size() || segments[last] == segments[last + 1]) return;
  std::size_t first = last;
  while (first > 0 && segments[first - 1] == segments[last]) --first;
  for (std::size_t i = first; i <= last; ++i)
    if (recomputation_.runs_again[i]) visit(steps_[i]);
}

// Forward, then backward of the segments from the last one to the first, each after its second
// forward.
void Plan::assign_times(Recompute recompute) {
  recomputation_ = no_recomputation(steps_.size());
  if (training_ && recompute == Recompute::blocks) {
    std::vector<StepArrays> arrays;
    for (std::size_t i = 0; i < steps_.size(); ++i) arrays.push_back(arrays_of(i));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].needs.statistics_bytes == 0) continue;
      const auto reader = static_cast<std::size_t>(value(steps_[i].graph.node).consumers.front());
      for (std::size_t k = i; k < reader; ++k) arrays[k].may_end_segment = false;
    }
    recomputation_ = plan_recomputation(arrays);
  }
  end_ = static_cast<int>(steps_.size());
  for (std::size_t i = steps_.size(); i-- > 0;) {
    for_steps_again(i, [&](Step& step) { step.again_time = end_++; });
    steps_[i].backward_time = end_++;
  }
}

Plan::StorageId Plan::new_storage(std::size_t bytes, int first, int last) {
  lifetimes_.push_back({.bytes = bytes, .first = first, .last = last});
  return static_cast<StorageId>(lifetimes_.size()) - 1;
}

Plan::StorageId Plan::new_array(std::size_t elements, int first, int last) {
  return new_storage(elements * element_bytes(backend_.precision()), first, last);
}

void Plan::extend(StorageId storage, int time) {
  if (storage < 0) return;
  Lifetime& lifetime = lifetimes_[storage];
  if (lifetime.has_again() && time >= lifetime.again_first) {
    lifetime.again_last = std::max(lifetime.again_last, time);
    return;
  }
  lifetime.first = std::min(lifetime.first, time);
  lifetime.last = std::max(lifetime.last, time);
}

// The contents are written again at `time`; what is extended to later times reads these.
void Plan::write_again(StorageId storage, int time) {
  Lifetime& lifetime = lifetimes_[storage];
  if (!lifetime.has_again()) lifetime.again_first = lifetime.again_last = time;
  extend(storage, time);
}

// The output may overwrite the input only if no other step reads the input's memory, now, when
// steps run again or in backward, and no output of the network is there.
bool Plan::may_run_in_place(std::size_t index) const {
  const Step& step = steps_[index];
  if (!step.needs.in_place || recomputation_.kept[index]) return false;
  const StorageId storage = value(step.graph.inputs.front()).storage;
  if (storage < 0) return false;
  for (const NodeId output : outputs_)
    if (value(output).storage == storage) return false;
  for (const Value& other : values_) {
    if (other.storage != storage) continue;
    if (other.consumers.size() > 1) return false;
    if (other.producer < 0 && recomputation_.is_recomputed(index)) return false;
    if (other.producer < 0) continue;
    if (recomputation_.kept[other.producer]) return false;
    const Step& producer = steps_[other.producer];
    if (producer.runs_backward && producer.operation && producer.needs.output_in_backward)
      return false;
  }
  return true;
}

void Plan::assign_storage() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    const int time = static_cast<int>(i);
    const bool in_place = !step.operation || may_run_in_place(i);
    Value& output = value(step.graph.node);
    const int written = step.loss_rows > 0 ? step.backward_time : time;
    output.storage = in_place ? value(step.graph.inputs.front()).storage
                              : new_array(output.elements, written, written);
    extend(output.storage, written);
    if (recomputation_.runs_again[i]) write_again(output.storage, step.again_time);
    for (const NodeId input : step.graph.inputs) {
      extend(value(input).storage, time);
      if (recomputation_.runs_again[i]) extend(value(input).storage, step.again_time);
      if (step.runs_backward && step.operation && step.needs.inputs_in_backward)
        extend(value(input).storage, step.backward_time);
    }
    if (step.runs_backward && step.operation && step.needs.output_in_backward)
      extend(output.storage, step.backward_time);
  }
  // Outputs are read after the last step.
  for (std::size_t k = 0; k < outputs_.size(); ++k)
    if (!computes_loss(k)) extend(value(outputs_[k]).storage, end_of_forward());
}

// Backward visits steps in reverse. If a value has several readers, the last one writes its
// gradient and the others add to it: in their operation if that can, otherwise through an array of
// their own. The first to write the gradient of an output is who asks for it.
void Plan::assign_gradients() {
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    Value& output = value(outputs_[k]);
    if (output.needs_gradient && !computes_loss(k))
      output.gradient = new_array(output.elements, end_of_forward(), end_of_forward());
  }
  for (std::size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    const int time = step.backward_time;
    step.addends.assign(step.graph.inputs.size(), kNone);
    if (!step.runs_backward) continue;
    const StorageId mine = value(step.graph.node).gradient;
    LOCKSTEP_CHECK(mine != kNone || step.loss_rows > 0);
    extend(mine, time);
    for (std::size_t k = 0; k < step.graph.inputs.size(); ++k) {
      Value& input = value(step.graph.inputs[k]);
      if (!input.needs_gradient) continue;
      if (input.gradient != kNone && k == 0 && step.operation && step.needs.adds_input_gradient) {
        step.operands.add_input_gradient = true;
      } else if (input.gradient != kNone) {
        step.addends[k] = step.operation ? new_array(input.elements, time, time) : mine;
      } else if (k == 0 &&
                 (!step.operation || step.needs.in_place || step.needs.gradient_in_place) &&
                 input.consumers.size() == 1) {
        input.gradient = mine;
      } else {
        input.gradient = new_array(input.elements, time, time);
      }
      extend(input.gradient, time);
    }
  }
}

void Plan::assign_workspace() {
  std::size_t scratch = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    const int time = static_cast<int>(i);
    scratch = std::max(scratch, step.needs.scratch_bytes);
    if (step.needs.saved_bytes > 0) {
      step.saved = new_storage(step.needs.saved_bytes, time, time);
      if (step.again_time >= 0 && step.needs.saves_once) extend(step.saved, step.again_time);
      if (step.again_time >= 0 && !step.needs.saves_once) write_again(step.saved, step.again_time);
      if (step.runs_backward) extend(step.saved, step.backward_time);
    }
    if (const std::size_t discarded = discarded_bytes(step); discarded > 0)
      step.discarded = new_storage(discarded, step.backward_time, step.backward_time);
    if (step.needs.statistics_bytes == 0) continue;
    const int reader = value(step.graph.node).consumers.front();
    step.statistics = new_storage(step.needs.statistics_bytes, time, reader);
    if (step.again_time >= 0) write_again(step.statistics, step.again_time);
    extend(step.statistics, std::max(reader, steps_[reader].again_time));
    steps_[reader].statistics = step.statistics;
  }
  if (scratch > 0) scratch_ = new_storage(scratch, 0, end_);
}

// The gradient of a parameter is reported once it is wide, so few of them wait for one another.
void Plan::assign_narrow_gradients() {
  constexpr std::size_t kElements = std::size_t{1} << 20;
  std::vector<Step*> waiting;
  std::size_t elements = 0;
  const auto widen_at = [&](int time) {
    for (const Step* step : waiting) extend(step->narrow_gradient, time);
    widenings_.reserve(std::max(widenings_.capacity(), waiting.size()));
    if (!waiting.empty()) waiting.back()->ends_widening = true;
    waiting.clear();
    elements = 0;
  };
  int time = 0;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    if (!step.runs_backward || !step.needs.narrow_gradient || step.frozen) continue;
    const std::size_t kernel = step.node->parameters.front();
    const std::size_t count = parameter_entries_[kernel].count;
    const int now = step.backward_time;
    step.narrow_gradient = new_array(count, now, now);
    step.widens = kernel < trained_;
    if (!step.widens) continue;
    time = now;
    waiting.push_back(&step);
    elements += count;
    if (elements >= kElements) widen_at(time);
  }
  widen_at(time);
}

// Room for the gradients of frozen parameters, which an operation writes without being asked.
std::size_t Plan::discarded_bytes(const Step& step) const {
  if (!step.runs_backward || !step.operation || (step.frozen && step.needs.skips_frozen)) return 0;
  std::size_t elements = 0;
  for (const std::size_t p : step.node->parameters)
    if (p >= trained_) elements = std::max(elements, parameter_entries_[p].count);
  return elements * sizeof(float);
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

void Plan::load(const BatchView& batch, bool staged) {
  inputs_ = places_;
  backend_.load(inputs_, batch, staged);
  for (std::size_t k = 0; k < inputs_.size(); ++k) {
    const Value& input = value(kInput - static_cast<NodeId>(k));
    LOCKSTEP_CHECK_OP(input.is_int32 ? inputs_[k].indices.size() : inputs_[k].features.size(), ==,
                      input.elements);
  }
}

void Plan::forward(const PassContext& pass) {
  for (Step& step : steps_) {
    for (std::size_t k = 0; k < step.graph.inputs.size(); ++k) {
      const Value& input = value(step.graph.inputs[k]);
      if (input.is_int32)
        step.operands.indices = inputs_[input_index(step.graph.inputs[k])].indices;
      else if (input.storage <= kExternal)
        step.operands.inputs[k] =
            inputs_[static_cast<std::size_t>(kExternal - input.storage)].features;
    }
    if (step.operation && step.loss_rows == 0) run_forward(step, pass, Part::forward);
  }
}

void Plan::run_forward(Step& step, const PassContext& pass, Part part) {
  step.operation->forward(step.operands, pass);
  if (pass.profile != nullptr) end_layer(step, part, *pass.profile);
}

TensorView Plan::output(std::size_t index) const {
  const Value& output = value(outputs_[index]);
  if (output.storage <= kExternal)
    return steps_[static_cast<std::size_t>(output.producer)].operands.inputs.front();
  return view(output.storage, output.elements);
}

TensorView Plan::output_gradient(std::size_t index) const {
  const Value& output = value(outputs_[index]);
  return view(output.gradient, output.elements);
}

void Plan::point_gradients_at(std::span<float> gradients) {
  if (gradients.data() == bound_gradients_) return;
  bound_gradients_ = gradients.data();
  for (Step& step : steps_)
    for (std::size_t p = 0; p < step.node->parameters.size(); ++p)
      if (const std::size_t index = step.node->parameters[p]; index < trained_)
        step.operands.parameter_gradients[p] =
            ParameterTable::slice(gradients, parameter_entries_[index]);
}

void Plan::backward(const PassContext& pass, std::span<float> gradients,
                    const GradientReady& ready) {
  point_gradients_at(gradients);
  widenings_.clear();  // of a pass that failed
  std::size_t told = 0;
  const auto tell_until = [&](std::size_t end) {
    for (; told < end; ++told)
      if (ready) ready(told);
  };
  // Parameters of layers that the output does not depend on belong to no step. Their gradient is 0,
  // unless another layer shares them, and is reported in order.
  std::size_t written = 0;
  const auto pass_over_until = [&](std::size_t end) {
    for (; written < end; ++written)
      if (!is_shared(written))
        backend_.fill_with_zeros(ParameterTable::slice(gradients, parameter_entries_[written]));
  };
  PassContext again = pass;
  again.recomputing = true;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    for_steps_again(i, [&](Step& step) { run_forward(step, again, Part::recomputation); });
    Step& step = steps_[i];
    if (!step.runs_backward) continue;
    if (step.operation) step.operation->backward(step.operands, pass);
    for (std::size_t k = 0; k < step.graph.inputs.size(); ++k) {
      const Value& input = value(step.graph.inputs[k]);
      if (!input.needs_gradient) continue;
      if (step.addends[k] != kNone)
        backend_.accumulate(view(input.gradient, input.elements), step.operands.input_gradients[k]);
      else if (!step.operation && input.gradient != value(step.graph.node).gradient)
        backend_.copy(view(input.gradient, input.elements), step.operands.output_gradient);
    }
    if (step.operation && pass.profile != nullptr) end_layer(step, Part::backward, *pass.profile);
    if (step.widens)
      widenings_.push_back({step.operands.narrow_gradient, step.operands.parameter_gradients[0]});
    if (step.ends_widening) widen_gradients(pass.profile);
    if (step.trained.empty()) continue;
    pass_over_until(step.trained.front());
    written = step.trained.back() + 1;
    if (widenings_.empty()) tell_until(written);
  }
  pass_over_until(trained_);
  tell_until(written);
}

void Plan::widen_gradients(StepProfile* profile) {
  backend_.widen(widenings_);
  std::size_t bytes = 0;
  for (const Widening& array : widenings_) bytes += array.from.size_bytes() + array.to.size_bytes();
  widenings_.clear();
  if (profile != nullptr)
    profile->end("gradient conversion", {.bytes = static_cast<std::int64_t>(bytes)});
}

void Plan::end_layer(const Step& step, Part last, StepProfile& profile) const {
  const Part* const earlier = profile.last_part();
  // What follows the gradient of the weights is that of the input, if it is needed.
  const bool is_complete = last == Part::backward && earlier != nullptr &&
                           std::ranges::all_of(step.operands.input_gradients, &TensorView::empty);
  if (last == Part::backward && earlier != nullptr && *earlier == Part::weight_gradient)
    last = Part::data_gradient;
  if (!is_complete) profile.end(last);
  profile.end_layer(step.node->name, [&](Part part) { return work_of(step, part); });
}

Work Plan::work_of(const Step& step, Part part) {
  const Operands& o = step.operands;
  const auto bytes = [](const auto& arrays) {
    std::size_t sum = 0;
    for (const auto& array : arrays) sum += array.size_bytes();
    return sum;
  };
  // In backward: what the operation saved of its operands, and what it reads again.
  std::size_t kept = o.saved.size() + (step.needs.output_in_backward ? o.output.size_bytes() : 0);
  if (step.needs.inputs_in_backward)
    kept += step.graph.fused_add ? o.inputs[0].size_bytes() : bytes(o.inputs);
  std::size_t input_gradients = bytes(o.input_gradients);
  for (std::size_t k = 0; k < step.addends.size(); ++k)  // those that are added to are also read
    if (step.addends[k] != kNone || (k == 0 && o.add_input_gradient))
      input_gradients += o.input_gradients[k].size_bytes();
  const std::size_t output_gradient = o.output_gradient.size_bytes();
  const std::size_t parameter_gradients = bytes(o.parameter_gradients);

  std::size_t moved = 0;
  std::int64_t flop = 0;
  switch (part) {
    case Part::forward:
    case Part::recomputation:
      moved = bytes(o.inputs) + o.indices.size_bytes() + bytes(o.weights) + o.output.size_bytes() +
              o.saved.size();
      flop = step.flop;
      break;
    case Part::statistics:
      moved = o.inputs[0].size_bytes();
      break;
    case Part::backward:
      moved = kept + bytes(o.weights) + output_gradient + parameter_gradients + input_gradients;
      flop = input_gradients > 0 && parameter_gradients > 0 ? 2 * step.flop : step.flop;
      break;
    case Part::gradient_sums:
    case Part::weight_gradient:
      moved = kept + output_gradient + parameter_gradients;
      flop = step.flop;
      break;
    case Part::data_gradient:
      moved = output_gradient + input_gradients;
      if (!o.weights.empty()) moved += o.weights[0].size_bytes();  // without the bias
      flop = step.flop;
      break;
  }
  if (part == Part::backward && step.loss_rows > 0) flop += step.flop;  // forward is part of it
  return {.bytes = static_cast<std::int64_t>(moved), .flop = flop};
}

void Plan::forward_without_samples() {
  for (Step& step : steps_)
    if (step.operation) step.operation->forward_without_samples(step.operands);
}

void Plan::backward_without_samples(const GradientReady& ready) {
  std::size_t told = 0;
  bool is_waiting = false;  // for other gradients to be widened at once, as in backward()
  const auto tell_until = [&](std::size_t end) {
    for (; told < end; ++told)
      if (ready) ready(told);
  };
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    if (!step.runs_backward) continue;
    if (step.operation) step.operation->backward_without_samples(step.operands);
    if (step.widens) is_waiting = !step.ends_widening;
    if (!step.trained.empty() && !is_waiting) tell_until(step.trained.back() + 1);
  }
  tell_until(trained_);
}

}  // namespace lockstep::model
