#include "lockstep/model/compiled/compiled_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/trace/events.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/compiled/plan.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layer/step_profile.h"

namespace lockstep::inline v0::model {
namespace {

device::Buffer allocate_floats(device::Allocator& allocator, std::size_t count) {
  return allocator.allocate(count * sizeof(float));
}

constexpr std::size_t kHostLogitsBytes = std::size_t{64} << 20;
constexpr std::size_t kGpuLogitsBytes = std::size_t{256} << 20;  // for fewer, larger products

// The number of `rows` to compute at a time: balanced blocks of at most `bytes` bytes, but large
// enough that accumulating the gradient of the weights is cheap compared with the products.
// Multiples of kMultiple rows are aligned.
std::int64_t rows_of_block(std::int64_t rows, std::size_t row_bytes, std::size_t bytes) {
  constexpr std::int64_t kLeast = 64;
  constexpr std::int64_t kMultiple = 16;
  const auto divided = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t most = std::max(static_cast<std::int64_t>(bytes / row_bytes), kLeast);
  const std::int64_t each = divided(rows, divided(rows, most));
  return std::min(divided(each, kMultiple) * kMultiple, rows);
}

void fill_initial(const ParameterTable& table, std::uint64_t seed, std::span<float> flat) {
  std::ranges::fill(flat, 0.0f);
  for (const ParameterInfo& entry : table.entries())
    initialize(entry.initializer, seed, entry.name, ParameterTable::slice(flat, entry));
}

}  // namespace

CompiledModel::CompiledModel(std::shared_ptr<const Network> network, device::Device device,
                             device::Allocator& gradients, const ComputeOptions& options,
                             const ComputeHooks& hooks)
    : network_(std::move(network)),
      backend_(make_backend(device, options, hooks)),
      normalizes_together_(hooks.statistics != nullptr),
      recompute_(options.recompute),
      logits_bytes_(options.logits_bytes > 0   ? options.logits_bytes
                    : backend_->runs_on_host() ? kHostLogitsBytes
                                               : kGpuLogitsBytes) {
  network_->check_complete();
  index_limits_.resize(network_->inputs().size());
  host_outputs_.resize(network_->outputs().size());
  for (const Node& node : network_->nodes()) {
    const std::optional<std::size_t> indices = node.layer->index_input(node.inputs.size());
    const std::int64_t count = node.layer->traits().index_count;
    if (!indices || count == 0) continue;
    IndexLimit& limit = index_limits_[input_index(node.inputs[*indices])];
    if (count < limit.count) limit = {.count = count, .layer = node.name};
  }
  parameters_ = allocate_floats(backend_->allocator(), parameter_table().flat_size());
  buffers_ = allocate_floats(backend_->allocator(), buffer_table().flat_size());
  gradients_ = allocate_floats(gradients, trained_table().flat_size());
  if (options.precision != Precision::float32)
    weights_ = backend_->allocator().allocate(parameter_table().flat_size() *
                                              element_bytes(options.precision));
}

// Waits for work in flight, which uses the memory.
CompiledModel::~CompiledModel() {
  if (!backend_) return;
  try {
    backend_->stream().synchronize();
  } catch (const Error&) {  // the device has failed; the error was already reported
  }
}

CompiledModel::CompiledModel(CompiledModel&&) noexcept = default;

void CompiledModel::initialize(std::uint64_t seed) {
  for (const auto& [table, flat] :
       {std::pair(&parameter_table(), parameters()), std::pair(&buffer_table(), buffers())}) {
    device::HostView view(flat, backend_->stream());
    fill_initial(*table, seed, view.values());
    view.write_back(backend_->stream());
  }
  parameters_changed();
}

TensorView CompiledModel::weights() {
  if (backend_->precision() == Precision::float32) return parameters();
  return {weights_.data(), parameter_table().flat_size(), backend_->precision()};
}

void CompiledModel::parameters_changed() {
  if (weights_.size() > 0) backend_->narrow(weights(), parameters());
}

Plan& CompiledModel::plan(const PlanKey& key) {
  if (ahead_ == Ahead::loaded) ahead_ = Ahead::overwritten;  // by the pass of this plan
  std::unique_ptr<Plan>& plan = plans_[key];
  if (!plan) {
    const auto plan_with = [&](Recompute recompute) {
      return std::make_unique<Plan>(*network_, *backend_, key.samples, key.training,
                                    Plan::Arrays{parameters(), weights(), buffers()}, key.rows,
                                    recompute, key.loss_rows);
    };
    auto compiled = plan_with(recompute_);
    if (recompute_ != Recompute::none && key.training) {
      // Segments are chosen by an estimate. Without savings, none are used.
      auto all_kept = plan_with(Recompute::none);
      if (all_kept->arena_bytes() <= compiled->arena_bytes()) compiled = std::move(all_kept);
    }
    plan = std::move(compiled);
    if (plan->arena_bytes() > arena_.size() || !arena_.data())
      grow_arena(std::max<std::size_t>(plan->arena_bytes(), 64), key);
    else
      plan->bind(static_cast<std::byte*>(arena_.data()));
  }
  return *plan;
}

void CompiledModel::grow_arena(std::size_t bytes, const PlanKey& key) try {
  backend_->stream().synchronize();  // work in flight may use the old arena
  arena_ = {};                       // free first: both together might not fit
  const std::size_t free = backend_->free_bytes();
  if (bytes > free) {
    constexpr double kMebibyte = 1 << 20;
    const bool may_recompute = key.training && recompute_ == Recompute::none;
    const double share = static_cast<double>(free) / static_cast<double>(bytes);
    throw Error(ErrorCategory::device, "memory",
                fmt::format("expected {:.1f} MiB of memory on {} for the activations of {} samples",
                            static_cast<double>(bytes) / kMebibyte, backend_->name(), key.samples),
                fmt::format("{:.1f} MiB are free, enough for about {}: use more replicas, "
                            "--accumulate{} or a smaller batch",
                            static_cast<double>(free) / kMebibyte,
                            static_cast<std::int64_t>(static_cast<double>(key.samples) * share),
                            may_recompute ? ", --recompute blocks" : ""));
  }
  arena_ = backend_->allocator().allocate(bytes);
  ++arenas_;
  for (const auto& entry : plans_)
    if (entry.second) entry.second->bind(static_cast<std::byte*>(arena_.data()));
} catch (...) {
  plans_.clear();  // they point into freed memory
  throw;
}

// The plan of a training pass. It depends on the loss only if there are too many logits to store
// them whole.
CompiledModel::PlanKey CompiledModel::training_key(std::int64_t samples,
                                                   const TotalLoss& loss) const {
  PlanKey key{.samples = samples, .training = true};
  if (kept_samples_ > 0) return key;
  for (const LossTerm& term : loss.terms()) {
    const NodeId node = network_->outputs()[term.output].node;
    if (!std::holds_alternative<SparseCategoricalCrossentropy>(term.loss) ||
        !network_->nodes()[node].layer->traits().computes_loss)
      continue;
    const Shape& shape = network_->shape(node);
    const std::int64_t rows = samples * element_count(shape) / shape.back();
    const std::size_t row_bytes =
        static_cast<std::size_t>(shape.back()) * element_bytes(backend_->precision());
    if (static_cast<std::size_t>(rows) <= logits_bytes_ / row_bytes) continue;
    key.loss_rows.resize(network_->outputs().size());
    key.loss_rows[term.output] = rows_of_block(rows, row_bytes, logits_bytes_);
  }
  return key;
}

void CompiledModel::prepare(std::int64_t samples, bool training, const TotalLoss& loss) {
  if (samples > 0)
    plan(training ? training_key(samples, loss) : PlanKey{.samples = samples});
  else if (training && normalizes_together_)
    plan({.samples = 1, .training = true});  // as train_without_samples() does
}

MetricSums CompiledModel::train_batch(const BatchView& batch, const StepContext& context,
                                      const TotalLoss& loss, bool accumulate,
                                      const GradientReady& ready) {
  backend_->clear_sums();
  load(batch, context, loss);
  train_loaded(batch.samples, context, loss, accumulate, ready);
  backend_->fetch_sums();
  backend_->stream().synchronize();
  return backend_->read_sums();
}

void CompiledModel::check_all_targets(const BatchView& batch, const TotalLoss& loss) const {
  const std::span<const LossTerm> terms = loss.terms();
  if (batch.samples > 0) LOCKSTEP_CHECK_OP(terms.size(), ==, batch.more_targets.size() + 1);
  for (std::size_t term = 0; term <= batch.more_targets.size(); ++term) {
    const LossTerm& one = terms[term];
    const Shape& shape = network_->shape(network_->outputs()[one.output].node);
    check_targets(one.loss, batch.samples, width(one.output), batch.targets_of(term),
                  width(one.output) / row_width(one.loss, shape));
  }
}

void CompiledModel::load(const BatchView& batch, const StepContext& context, const TotalLoss& loss,
                         bool staged) {
  check_all_targets(batch, loss);
  if (batch.samples == 0)
    return prepare(0, true);  // now, because in a step the other replicas would wait
  check_inputs(batch);
  const PlanKey key = training_key(batch.samples, loss);
  const bool is_loaded = staged && ahead_ == Ahead::loaded && key == ahead_key_;
  // first: compiling the plan registers its layers with the backend
  Plan& active = plan(key);
  backend_->begin_pass({.training = true,
                        .seed = context.seed,
                        .step = context.step,
                        .first_sample = context.first_sample},
                       {.divisor = context.global_samples, .loss_scale = context.loss_scale});
  if (!is_loaded) active.load(batch, staged && ahead_ == Ahead::none);
  if (staged) ahead_ = Ahead::none;
}

void CompiledModel::stage(const BatchView& batch) {
  ahead_ = Ahead::none;
  if (batch.samples > 0) backend_->stage(batch);
}

void CompiledModel::load_ahead(const BatchView& batch, const TotalLoss& loss) {
  try {
    check_all_targets(batch, loss);
    check_inputs(batch);
  } catch (const Error&) {  // load() reports it, in the step of this batch
    return;
  }
  ahead_key_ = training_key(batch.samples, loss);
  plan(ahead_key_).load(batch, true);
  ahead_ = Ahead::loaded;
}

void CompiledModel::train_loaded(std::int64_t samples, const StepContext& context,
                                 const TotalLoss& loss, bool accumulate,
                                 const GradientReady& ready) {
  if (samples == 0) return train_without_samples(accumulate, ready);
  Plan& active = plan(training_key(samples, loss));
  const PassContext pass{.training = true,
                         .seed = context.seed,
                         .step = context.step,
                         .first_sample = context.first_sample,
                         .profile = context.profile};
  active.forward(pass);
  trace::lap("loss");
  const std::span<const LossTerm> terms = loss.terms();
  for (std::size_t k = 0; k < network_->outputs().size(); ++k)
    if (std::ranges::find(terms, k, &LossTerm::output) == terms.end())
      backend_->fill_with_zeros(active.output_gradient(k));
  std::size_t bytes = 0;
  for (std::size_t term = 0; term < terms.size(); ++term) {
    if (active.computes_loss(terms[term].output)) {
      const std::int64_t width =
          network_->shape(network_->outputs()[terms[term].output].node).back();
      active.set_loss(terms[term].output,
                      [this, &loss, term, samples, width](const TensorView& logits,
                                                          std::int64_t first, std::int64_t count) {
                        backend_->compute_loss(loss, term, logits, samples, logits,
                                               {.first = first, .count = count, .width = width});
                      });
      continue;
    }
    const TensorView output = active.output(terms[term].output);
    const TensorView gradient = active.output_gradient(terms[term].output);
    backend_->compute_loss(loss, term, output, samples, gradient, {});
    bytes += output.size_bytes() + gradient.size_bytes();
  }
  keep(active, samples);  // before the backward pass, which reuses the memory
  if (context.profile != nullptr)
    context.profile->end("loss", {.bytes = static_cast<std::int64_t>(bytes)});
  if (!accumulate) return active.backward(pass, gradients(), ready);
  if (micro_gradients_.size() == 0)
    micro_gradients_ = allocate_floats(backend_->allocator(), trained_table().flat_size());
  const auto micro = micro_gradients_.as<float>();
  active.backward(pass, micro, [&](std::size_t parameter) {
    const ParameterInfo& entry = trained_table().entries()[parameter];
    backend_->accumulate(ParameterTable::slice(gradients(), entry),
                         ParameterTable::slice(micro, entry));
    if (ready) ready(parameter);
  });
}

void CompiledModel::train_without_samples(bool accumulate, const GradientReady& ready) {
  if (!accumulate) backend_->fill_with_zeros(gradients());
  if (normalizes_together_) {
    Plan& active = plan({.samples = 1, .training = true});
    active.forward_without_samples();
    active.backward_without_samples(ready);
    return;
  }
  for (std::size_t p = 0; ready && p < trained_table().entries().size(); ++p) ready(p);
}

void CompiledModel::check_inputs(const BatchView& batch, std::int64_t rows) const {
  const std::span<const NetworkInput> inputs = network_->inputs();
  if (batch.input_count() != inputs.size())
    throw Error(ErrorCategory::data, network_->name(),
                fmt::format("expected a batch of {}", counted(std::ssize(inputs), "input")),
                fmt::format("got {}", batch.input_count()));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].type != ElementType::int32) continue;
    const std::span<const std::int32_t> indices = batch.input(k).indices;
    const std::int64_t expected =
        batch.samples * (rows > 0 ? rows : element_count(inputs[k].shape));
    if (std::ssize(indices) != expected)
      throw Error(ErrorCategory::data, network_->name(),
                  fmt::format("expected {} indices for the input \"{}\"", expected, inputs[k].name),
                  fmt::format("got {}", indices.size()));
    const IndexLimit& limit = index_limits_[k];
    if (limit.layer.empty()) continue;  // its layer accepts any number
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (indices[i] < 0 || indices[i] >= limit.count)
        throw Error(
            ErrorCategory::data, fmt::format("layer {}", limit.layer),
            fmt::format("expected indices 0 .. {} for the input \"{}\"", limit.count - 1,
                        inputs[k].name),
            fmt::format("sample {} of the batch has {}",
                        static_cast<std::int64_t>(i) * batch.samples / expected, indices[i]));
  }
}

std::int64_t CompiledModel::width(std::size_t output) const {
  return element_count(network_->shape(network_->outputs()[output].node));
}

std::uint64_t CompiledModel::placement() const { return arenas_ + backend_->placement(); }

CompiledModel::Memory CompiledModel::memory() const {
  return {.parameters = parameters_.size() + weights_.size() + buffers_.size(),
          .gradients = gradients_.size() + micro_gradients_.size(),
          .activations = arena_.size()};
}

}  // namespace lockstep::inline v0::model
