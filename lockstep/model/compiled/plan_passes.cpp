// The passes of a plan, and their profile.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/events.h"
#include "lockstep/model/compiled/plan.h"

namespace lockstep::inline v0::model {

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
  trace::end_lap();
}

void Plan::run_forward(Step& step, const PassContext& pass, Part part) {
  trace::lap(step.forward_lap);
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
  widenings_.clear();  // left over from a failed pass
  std::size_t reported = 0;
  const auto report_until = [&](std::size_t end) {
    for (; reported < end; ++reported)
      if (ready) ready(reported);
  };
  // Parameters of layers that the output does not depend on belong to no step. Their gradient is 0,
  // unless another layer shares them, and is reported in order.
  std::size_t written = 0;
  const auto pass_over_until = [&](std::size_t end) {
    for (; written < end; ++written)
      if (!is_shared(written))
        backend_.fill_with_zeros(ParameterTable::slice(gradients, parameter_entries_[written]));
  };
  PassContext rerun = pass;
  rerun.recomputing = true;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    for (const std::size_t k : step.reruns) run_forward(steps_[k], rerun, Part::recomputation);
    if (!step.runs_backward) continue;
    if (step.operation) {
      trace::lap(step.backward_lap);
      step.operation->backward(step.operands, pass);
    }
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
    if (widenings_.empty()) report_until(written);
  }
  pass_over_until(trained_);
  trace::end_lap();
  report_until(written);
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
  // The gradient of the input, if needed, follows that of the weights.
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
  // In backward: the saved values, and the operands that are read again.
  std::size_t kept = o.saved.size() + (step.needs.output_in_backward ? o.output.size_bytes() : 0);
  if (step.needs.inputs_in_backward)
    kept += step.graph.fused_add ? o.inputs[0].size_bytes() : bytes(o.inputs);
  std::size_t input_gradients = bytes(o.input_gradients);
  for (std::size_t k = 0; k < step.addends.size(); ++k)  // accumulated gradients are also read
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
  if (part == Part::backward && step.loss_rows > 0) flop += step.flop;  // includes forward
  return {.bytes = static_cast<std::int64_t>(moved),
          .flop = flop,
          .algorithm = step.operation->algorithm(part)};
}

void Plan::forward_without_samples() {
  for (Step& step : steps_)
    if (step.operation) step.operation->forward_without_samples(step.operands);
}

void Plan::backward_without_samples(const GradientReady& ready) {
  std::size_t reported = 0;
  bool is_waiting = false;  // for other gradients to be widened together, as in backward()
  const auto report_until = [&](std::size_t end) {
    for (; reported < end; ++reported)
      if (ready) ready(reported);
  };
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    if (!step.runs_backward) continue;
    if (step.operation) step.operation->backward_without_samples(step.operands);
    if (step.widens) is_waiting = !step.ends_widening;
    if (!step.trained.empty() && !is_waiting) report_until(step.trained.back() + 1);
  }
  report_until(trained_);
}

}  // namespace lockstep::inline v0::model
