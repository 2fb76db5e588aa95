#include "lockstep/interop/torch/distributed_data_parallel.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/interop/check_together.h"
#include "lockstep/interop/torch/exchange.h"

namespace lockstep::inline v0::torch {
namespace {

constexpr const char* kWhere = "distributed_data_parallel";

interop::ReducerOptions passes_add_up(job::Workers& workers, interop::ReducerOptions options) {
  const interop::ReducerOptions defaults;
  interop::check_together(workers, kWhere, [&] {
    if (options.backward_passes_per_step != defaults.backward_passes_per_step ||
        options.average_passes != defaults.average_passes)
      throw Error(
          ErrorCategory::input, kWhere,
          "expected the defaults of backward_passes_per_step and average_passes: passes under "
          "no_sync() add up",
          fmt::format("got {} and {}", options.backward_passes_per_step, options.average_passes));
    if (options.skip_non_finite)
      throw Error(
          ErrorCategory::input, kWhere,
          "expected skip_non_finite with DistributedOptimizer, which decides whether to step",
          "got it");
    return std::string();
  });
  options.average_passes = false;
  return options;
}

}  // namespace

ModuleExchange::ModuleExchange(job::Workers& workers, ::torch::nn::Module& module,
                               const DataParallelOptions& options)
    : batch_dimension_(options.batch_dimension),
      gradients_(workers, module.named_parameters(), passes_add_up(workers, options.gradients),
                 {.where = kWhere,
                  .unchanged = "between backward() under no_sync() and the backward() that reduces "
                               "them: call zero_grad() after it",
                  .plan = [this] { return plan_pass(); },
                  .ended = [this] { pass_ended(); }}),
      buffers_(workers, module.named_buffers(), options.buffers) {
  broadcast_tensors(workers, module.named_parameters());
  broadcast_tensors(workers, module.named_buffers());
}

void ModuleExchange::forward_begins(const at::Tensor* batch) {
  if (!c10::GradMode::is_enabled()) return;
  gradients_.check();
  if (!batch_dimension_) {
    samples_ = 1;
    return;
  }
  if (batch == nullptr)
    gradients_.usage_error("expected a tensor with the samples among the arguments of forward()",
                           "there is none: reset DataParallelOptions::batch_dimension for equal "
                           "weights of ranks");
  if (*batch_dimension_ >= batch->dim())
    gradients_.usage_error(
        fmt::format("expected a tensor whose dimension {} counts the samples", *batch_dimension_),
        fmt::format("forward() got one with {} dimensions", batch->dim()));
  samples_ = static_cast<double>(batch->size(*batch_dimension_));
}

PassPlan ModuleExchange::plan_pass() {
  if (!samples_)
    gradients_.usage_error(
        "expected a forward pass through the wrapper before each backward pass: net(x) or "
        "net.forward(x), rather than net->forward(x)",
        "there was none since the last backward pass; the one of a retained graph counts only "
        "once");
  const double samples = *samples_;
  samples_.reset();
  samples_of_step_ += samples;
  return {.samples = samples, .is_last = synchronizing_};
}

void ModuleExchange::pass_ended() {
  if (!synchronizing_) return;
  gradients_.reduce();
  gradients_.reducer().applied();
  buffers_.synchronize(samples_of_step_);
  samples_of_step_ = 0;
}

}  // namespace lockstep::inline v0::torch
