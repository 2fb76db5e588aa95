// The lifetimes of a plan's arrays, from the times at which steps read and write them.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/model/compiled/plan.h"

namespace lockstep::inline v0::model {

// Describes a step for recomputation.
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

// Assigns times: forward, then backward of the segments from the last to the first, each after its
// second forward.
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
  const std::vector<int>& segments = recomputation_.segments;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    if (recomputation_.is_recomputed(i) && segments[i] < segments[i + 1])
      for (std::size_t k = 0; k <= i; ++k)
        if (segments[k] == segments[i] && recomputation_.is_rerun[k]) steps_[i].reruns.push_back(k);
    for (const std::size_t k : steps_[i].reruns) steps_[k].rerun_time = end_++;
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
  if (lifetime.has_second() && time >= lifetime.second_first) {
    lifetime.second_last = std::max(lifetime.second_last, time);
    return;
  }
  lifetime.first = std::min(lifetime.first, time);
  lifetime.last = std::max(lifetime.last, time);
}

// Begins the second lifetime of `storage`, written at `time`; later extensions apply to it.
void Plan::write_second(StorageId storage, int time) {
  Lifetime& lifetime = lifetimes_[storage];
  if (!lifetime.has_second()) lifetime.second_first = lifetime.second_last = time;
  extend(storage, time);
}

// The output may overwrite the input only if no other step reads the input's memory, now, in
// recomputation or in backward, and it holds no output of the network.
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
    if (recomputation_.is_rerun[i]) write_second(output.storage, step.rerun_time);
    for (const NodeId input : step.graph.inputs) {
      extend(value(input).storage, time);
      if (recomputation_.is_rerun[i]) extend(value(input).storage, step.rerun_time);
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
// gradient and the others add to it: within their operation if it supports that, otherwise through
// a separate array. The caller writes the gradient of an output first.
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
    const StorageId gradient = value(step.graph.node).gradient;
    LOCKSTEP_CHECK(gradient != kNone || step.loss_rows > 0);
    extend(gradient, time);
    for (std::size_t k = 0; k < step.graph.inputs.size(); ++k) {
      Value& input = value(step.graph.inputs[k]);
      if (!input.needs_gradient) continue;
      if (input.gradient != kNone && k == 0 && step.operation && step.needs.adds_input_gradient) {
        step.operands.add_input_gradient = true;
      } else if (input.gradient != kNone) {
        step.addends[k] = step.operation ? new_array(input.elements, time, time) : gradient;
      } else if (k == 0 &&
                 (!step.operation || step.needs.in_place || step.needs.gradient_in_place) &&
                 input.consumers.size() == 1) {
        input.gradient = gradient;
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
      if (step.rerun_time >= 0 && step.needs.saves_once) extend(step.saved, step.rerun_time);
      if (step.rerun_time >= 0 && !step.needs.saves_once) write_second(step.saved, step.rerun_time);
      if (step.runs_backward) extend(step.saved, step.backward_time);
    }
    if (const std::size_t discarded = discarded_bytes(step); discarded > 0)
      step.discarded = new_storage(discarded, step.backward_time, step.backward_time);
    if (step.needs.statistics_bytes == 0) continue;
    const int reader = value(step.graph.node).consumers.front();
    step.statistics = new_storage(step.needs.statistics_bytes, time, reader);
    if (step.rerun_time >= 0) write_second(step.statistics, step.rerun_time);
    extend(step.statistics, std::max(reader, steps_[reader].rerun_time));
    steps_[reader].statistics = step.statistics;
  }
  if (scratch > 0) scratch_ = new_storage(scratch, 0, end_);
}

// The gradient of a parameter is reported after widening, so only small groups are widened
// together.
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

// Scratch memory for the gradients of frozen parameters, which some operations always write.
std::size_t Plan::discarded_bytes(const Step& step) const {
  if (!step.runs_backward || !step.operation || (step.frozen && step.needs.skips_frozen)) return 0;
  std::size_t elements = 0;
  for (const std::size_t p : step.node->parameters)
    if (p >= trained_) elements = std::max(elements, parameter_entries_[p].count);
  return elements * sizeof(float);
}

}  // namespace lockstep::inline v0::model
