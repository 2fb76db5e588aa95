#include "lockstep/strategy/replica/replica.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "lockstep/allreduce/buckets/layout.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace/events.h"
#include "lockstep/base/trace/recording.h"
#include "lockstep/device/recording.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/strategy/replica/replica_statistics.h"

namespace lockstep::inline v0::strategy {
namespace {

constexpr std::size_t kStepScalarEntries = 1;  // the last entry of the buckets

/// Returns the offsets of the trained parameters in the flat gradient, then that of the step
/// scalars.
std::vector<std::size_t> bucket_offsets(const model::ParameterTable& table,
                                        const GradientMemory& memory) {
  std::vector<std::size_t> offsets;
  for (const model::ParameterInfo& entry : table.entries()) offsets.push_back(entry.offset);
  offsets.push_back(memory.gradient_size());
  return offsets;
}

std::unique_ptr<ReplicaStatistics> make_shared_statistics(const allreduce::Communicator& group,
                                                          const NormalizationScope& scope) {
  const int members = scope.members(group.size());
  return members > 1 ? std::make_unique<ReplicaStatistics>(group.rank(), group.size(), members)
                     : nullptr;
}

std::array<device::Event, 4> timed_events(device::Stream& stream) {
  return {stream.record_timed(), stream.record_timed(), stream.record_timed(),
          stream.record_timed()};
}

/// Returns the replicas that pass true. Collective.
std::vector<int> replicas_with(bool mine, const allreduce::Communicator& group) {
  const std::array<std::byte, 1> flag{mine ? std::byte{1} : std::byte{0}};
  const auto all = group.all_gather(flag);
  std::vector<int> replicas;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].front() != std::byte{0}) replicas.push_back(static_cast<int>(i));
  return replicas;
}

}  // namespace

Replica::Replica(std::shared_ptr<const model::Network> network, device::Device device,
                 allreduce::Communicator group, const TrainerOptions& options, const LossPlan& plan)
    : options_(options),
      plan_(plan),
      group_(group),
      shared_statistics_(make_shared_statistics(group, options.normalization)),
      memory_(group),
      model_(std::move(network), device, memory_, options.compute,
             {.statistics = shared_statistics_.get(),
              .progress =
                  [this] {
                    if (group_.activity() != nullptr) group_.activity()->tick();
                  }}),
      loss_scaler_(loss_scaling_for(options.loss_scaling, options.compute.precision)),
      buckets_(std::move(group), memory_.all(), bucket_offsets(model_.trained_table(), memory_),
               options.buckets, kStepScalarEntries,
               device.kind == device::DeviceKind::gpu ? &model_.backend().stream() : nullptr),
      ready_([this](std::size_t parameter) { buckets_.ready(parameter); }),
      micro_batches_(model_.network(), options.micro_batches(),
                     shared_statistics_ ? group_.size() : 0, plan.loss),
      moving_statistics_(std::make_unique<MovingStatistics>(
          group_, model_, shared_statistics_ && shared_statistics_->members() == group_.size())),
      kept_parameters_(model_.backend().allocator().allocate(
          options.ema > 0 ? model_.gradients().size_bytes() : 0)),
      step_scalars_(memory_, group_, device),
      marks_(timed_events(model_.backend().stream())) {
  if (options.local.steps) {
    auto local = std::make_unique<LocalUpdater>(
        options.optimizer, options.local, model_, update_arrays(),
        [this](std::span<float> values) { buckets_.sum(values, model_.backend().stream()); });
    local_ = local.get();
    updater_ = std::move(local);
  } else {
    updater_ = model_.backend().updater(options.optimizer, model_.trained_table(), update_arrays());
  }
  // With accumulation, each micro-batch is loaded within the step.
  if (options.records_steps && options.accumulate == 1 && local_ == nullptr &&
      device::Recording::is_possible(model_.backend().stream()))
    recordings_.emplace(
        [this](const StepRecordings::Enqueue& enqueue) {
          return record_step(model_.backend().stream(), buckets_, group_, enqueue);
        },
        [this](StepKind mine) { return agree_on_kind(mine); });
  if (shared_statistics_) shared_statistics_->attach(buckets_, model_.backend());
  describe_buckets();
}

model::UpdateArrays Replica::update_arrays() {
  return {.parameters = trained_parameters(),
          .gradients = model_.gradients(),
          .weights = options_.compute.precision == model::Precision::float32
                         ? model::TensorView()
                         : model::TensorView(model_.weights().data(), model_.gradients().size(),
                                             options_.compute.precision),
          .statistics = model_.buffers(),
          .kept_statistics = moving_statistics_->kept(),
          .average_decay = options_.ema};
}

Replica::~Replica() {
  try {
    model_.backend().stream().synchronize();
  } catch (const Error&) {  // the device error was already reported
  }
}

// Counts the time of agreement as waiting for other replicas, because busy times are compared.
StepKind Replica::agree_on_kind(StepKind mine) {
  const auto begin = std::chrono::steady_clock::now();
  const StepKind agreed = strategy::agree_on_kind(group_, mine);
  const double waited = seconds_since(begin);
  waited_for_others_.exposed += waited;
  waited_for_others_.waited += waited;
  return agreed;
}

void Replica::describe_buckets() {
  if (group_.activity() == nullptr) return;
  std::vector<std::pair<std::size_t, std::string_view>> names;
  for (const model::ParameterInfo& entry : model_.trained_table().entries())
    names.emplace_back(names.size(), entry.name);
  const std::vector<std::string> contents = buckets_.contents(names, "the step's report");
  trace::describe_buckets(contents);
  group_.activity()->describe_buckets(contents);
}

void Replica::set_bucket_bytes(std::size_t bytes) {
  if (recordings_) recordings_->clear();  // recordings refer to the buckets' memory
  launched_.clear();                      // NCCL may connect again for other sizes
  buckets_.set_bytes(bytes);
  describe_buckets();
}

void Replica::measure_wire_error() {
  if (recordings_) recordings_->clear();  // measuring allocates and waits, which cannot be recorded
  buckets_.measure_wire_error();
}

void Replica::check_layout() const {
  std::vector<allreduce::LayoutEntry> layout;
  for (const model::ParameterInfo& entry : model_.trained_table().entries())
    layout.push_back({entry.name, entry.count});
  allreduce::check_layout(group_, layout);
}

void Replica::prepare(std::int64_t global_samples, bool training) {
  const std::int64_t least = global_samples / group_.size();
  for (const std::int64_t samples : {least, least + (global_samples % group_.size() > 0 ? 1 : 0)}) {
    data::Batch part;
    part.samples = samples;
    part.global_samples = global_samples;
    if (!training) {
      model_.prepare(samples, false);
      continue;
    }
    if (!plan_.metrics.empty()) model_.keep_outputs(reads_sums(part) ? 0 : samples);
    // Micro-batches have at most two sizes.
    for (const std::int64_t piece : {std::int64_t{0}, micro_batches_.count(part) - 1})
      model_.prepare(micro_batches_.range(part, piece).size(), true, plan_.loss);
  }
}

StepResult Replica::train_step(const data::Batch& part, const StepRequest& request,
                               const data::Batch* next) {
  const bool is_timed =
      profile_ != nullptr && profile_->begin_step(part.samples, request.input_seconds);
  timing_ = is_timed ? profile_ : nullptr;
  const bool keeps_outputs = !reads_sums(part);
  if (!plan_.metrics.empty()) model_.keep_outputs(keeps_outputs ? part.samples : 0);
  const allreduce::CommunicationTimes communicated_before = communication();
  const double agreed_before = waited_for_others_.waited;
  enqueue_step(part, request);
  step_scalars_.end_step(model_.backend().stream());
  if (next != nullptr) stage(*next, part);
  const allreduce::PhaseScope update(group_.activity(), allreduce::Phase::update);
  StepResult result;
  result.report = step_scalars_.read();
  const model::UpdateOutcome outcome = updater_->outcome();
  const model::MetricSums mine = local_ != nullptr ? local_->sums() : model_.backend().read_sums();
  if (timing_ != nullptr) timing_->end_step();
  measure_step(communication() - communicated_before, waited_for_others_.waited - agreed_before);
  const model::MetricSums& all = result.report.metrics;
  // Follows the decision of the updater: the sum of tiny weights is above 0, but rounded to 0 here.
  result.weightless =
      result.report.is_finite && !outcome.applied && all.samples > 0 && !(all.weight_sum() > 0);
  result.applied = outcome.applied || result.weightless;
  result.loss_scale = loss_scaler_.scale();
  if (options_.clip_norm > 0 && local_ == nullptr) result.gradient_norm = outcome.gradient_norm;
  if (!result.report.is_finite)
    result.failed = replicas_with(model::SummableMetrics(mine).non_finite > 0, group_);
  else if (!result.weightless)
    result.overflow = loss_scaler_.update(result.applied);
  if (!result.applied) return result;
  metrics_ += mine;
  if (keeps_outputs)
    add_metrics(part, model_.kept_outputs(), metric_totals_);
  else
    model::add_sums(plan_.metrics, mine, metric_totals_);
  if (!result.weightless) moving_statistics_->add_samples(part.samples);
  return result;
}

void Replica::enqueue_step(const data::Batch& part, const StepRequest& request) {
  const allreduce::PhaseScope compute(group_.activity(), allreduce::Phase::compute);
  updater_->begin({.learning_rate = request.learning_rate,
                   .update = request.update,
                   .clip_norm = options_.clip_norm,
                   .loss_scale = loss_scaler_.scale()});
  if (!recordings_) return enqueue_work(part, request, false);
  load(part, request, 0);
  end_piece("input");
  step_scalars_.stage(request.signal, {request.input_seconds, gpu_busy_});
  recordings_->run(
      part.samples, model_.placement(), [&] { enqueue_work(part, request, true); },
      timing_ != nullptr);
}

void Replica::enqueue_work(const data::Batch& part, const StepRequest& request, bool is_loaded) {
  mark(mark_begin);
  const double thread_before = is_on_gpu() ? 0 : processor_seconds(CLOCK_THREAD_CPUTIME_ID);
  buckets_.set_host_waits(launched_.insert(part.samples).second);
  model::Backend& backend = model_.backend();
  moving_statistics_->keep();
  backend.clear_sums();
  end_piece("input");
  const double exchanged_before = seconds_in_exchange();
  if (local_ != nullptr) local_->begin_round();
  compute_gradients(part, request, is_loaded);
  mark(mark_gradients);
  exchanged_ = seconds_in_exchange() - exchanged_before;
  if (is_on_gpu() && !is_loaded)
    step_scalars_.stage(request.signal, {request.input_seconds, gpu_busy_});
  else if (!is_on_gpu())
    step_scalars_.stage(
        request.signal,
        {request.input_seconds, seconds_between(mark_begin, mark_gradients) - exchanged_,
         processor_seconds(CLOCK_THREAD_CPUTIME_ID) - thread_before});
  step_scalars_.write(backend.stream());
  if (local_ != nullptr)
    end_local_steps(part);
  else
    backend.write_sums(memory_.report());
  buckets_.ready(model_.trained_table().entries().size());
  buckets_.finish();
  buckets_.set_host_waits(false);
  end_piece("reduction");
  mark(mark_reduced);
  const trace::Span updating("parameter update");
  updater_->update(memory_.report());
  backend.fetch_sums();
  mark(mark_updated);
  end_piece("update", work_of_update());
  step_scalars_.fetch(backend.stream());
}

void Replica::mark(Mark point) { model_.backend().stream().record(marks_[point]); }

bool Replica::is_on_gpu() {
  return model_.backend().stream().device().kind == device::DeviceKind::gpu;
}

// On a GPU, the host measures only its own waits: `agreeing` before a recorded step, while the GPU
// is idle, and reductions through the host. Other waits are derived from the busy times of all
// replicas in the previous step.
void Replica::measure_step(const allreduce::CommunicationTimes& communicated, double agreeing) {
  breakdown_ = {.compute = seconds_between(mark_begin, mark_gradients),
                .update = seconds_between(mark_reduced, mark_updated)};
  if (!is_on_gpu()) {
    breakdown_.compute = std::max(0.0, breakdown_.compute - exchanged_);
    breakdown_.communication = communicated.exposed - communicated.waited;
    breakdown_.waiting = communicated.waited;
    return;
  }
  // The first step waits for the host, which creates plans.
  gpu_busy_ = has_measured_ ? breakdown_.compute : 0;
  has_measured_ = true;
  const auto seconds = [](const allreduce::BusySeconds& busy) { return busy.input + busy.compute; };
  double longest = 0;
  for (const allreduce::BusySeconds& busy : this->busy())
    longest = std::max(longest, seconds(busy));
  const double late = longest - seconds(busy()[group_.rank()]) - agreeing;
  const double exposed = seconds_between(mark_gradients, mark_reduced);
  const double waited = std::clamp(std::max(late, communicated.waited - agreeing), 0.0, exposed);
  breakdown_.communication = exposed - waited;
  breakdown_.waiting = agreeing + waited;
}

void Replica::end_piece(std::string_view name, const model::Work& work) {
  if (timing_ != nullptr) timing_->end(name, work);
}

// The update reads the gradient, reads and writes parameters and slots, and writes 16-bit weights.
model::Work Replica::work_of_update() {
  const std::size_t slots = updater_->slot_names().size();
  const std::size_t narrow = options_.compute.precision == model::Precision::float32
                                 ? 0
                                 : model::element_bytes(options_.compute.precision);
  const std::size_t parameter_bytes = (3 + 2 * slots) * sizeof(float) + narrow;
  return {.bytes =
              static_cast<std::int64_t>(model_.trained_table().element_count() * parameter_bytes)};
}

double Replica::seconds_in_exchange() const {
  return shared_statistics_ ? shared_statistics_->seconds() : 0;
}

model::StepContext Replica::context(const data::Batch& part, const StepRequest& request,
                                    std::int64_t number) const {
  return {.seed = request.seed,
          .step = request.step,
          .first_sample = micro_batches_.first_sample(part, number),
          .global_samples =
              local_ != nullptr ? micro_batches_.range(part, number).size() : part.global_samples,
          .loss_scale = loss_scaler_.scale(),
          .profile = timing_};
}

model::BatchView Replica::view(const data::Batch& part, std::int64_t number) {
  model::BatchView view = micro_batches_.view(part, micro_batches_.range(part, number));
  if (options_.class_weights.empty()) return view;
  model::apply_class_weights(view.targets, options_.class_weights, view.samples, sample_weights_);
  view.targets.sample_weights = sample_weights_;
  return view;
}

void Replica::load(const data::Batch& part, const StepRequest& request, std::int64_t number) {
  const model::BatchView batch = view(part, number);
  const bool staged = request.staged && number == 0 && batch.samples > 0;
  model_.load(batch, context(part, request, number), plan_.loss, staged);
}

// The GPU waits for the host between two recordings, so the input of the next step is enqueued
// after this one. This allocates nothing if both have the same number of samples.
void Replica::stage(const data::Batch& next, const data::Batch& part) {
  const model::BatchView batch = view(next, 0);
  model_.stage(batch);
  if (recordings_ && profile_ == nullptr && next.samples == part.samples && batch.samples > 0)
    model_.load_ahead(batch, plan_.loss);
}

void Replica::compute_gradients(const data::Batch& part, const StepRequest& request,
                                bool is_loaded) {
  const std::int64_t pieces = micro_batches_.count(part);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const data::Range range = micro_batches_.range(part, piece);
    if (!is_loaded) {
      load(part, request, piece);
      end_piece("input");
    }
    const bool last = piece + 1 == pieces;
    model_.train_loaded(range.size(), context(part, request, piece), plan_.loss,
                        local_ == nullptr && piece > 0,
                        last && local_ == nullptr ? ready_ : model::GradientReady{});
    if (local_ == nullptr) continue;
    local_->take_local_step(memory_.report());
    end_piece("update", work_of_update());
  }
}

void Replica::end_local_steps(const data::Batch& part) {
  device::Stream& stream = model_.backend().stream();
  const double weight =
      static_cast<double>(part.samples) / static_cast<double>(part.global_samples);
  local_->end_local_steps(static_cast<float>(weight));
  std::array<float, model::SummableMetrics::kSize> sums{};
  model::SummableMetrics(local_->sums()).write(sums.data());
  device::copy(memory_.report().data(), sums.data(), sizeof sums, stream);
  for (std::size_t i = 0; i < model_.trained_table().entries().size(); ++i) buckets_.ready(i);
}

model::MetricSums Replica::take_metrics() { return std::exchange(metrics_, {}); }

model::MetricTotals Replica::take_metric_totals() { return std::exchange(metric_totals_, {}); }

model::MetricSums Replica::evaluate(const data::Batch& part, model::MetricTotals& totals) {
  const model::BatchView batch = micro_batches_.view(part);
  if (reads_sums(part)) {
    const model::MetricSums sums = model_.evaluate_batch(batch, plan_.loss);
    model::add_sums(plan_.metrics, sums, totals);
    return sums;
  }
  std::vector<std::span<const float>> outputs;
  const model::MetricSums sums = model_.evaluate_batch(batch, plan_.loss, &outputs);
  add_metrics(part, outputs, totals);
  return sums;
}

bool Replica::reads_sums(const data::Batch& part) const {
  const model::LossTerm& term = plan_.loss[0];
  const bool is_plain = plan_.loss.terms().size() == 1 && term.weight == 1 &&
                        options_.class_weights.empty() && part.weights.empty() &&
                        part.partner_labels.empty();
  return plan_.metrics.empty() ||
         (is_plain && std::ranges::all_of(plan_.metrics, [&](const auto& metric) {
            return metric->reads_sums(term.loss);
          }));
}

void Replica::add_metrics(const data::Batch& part,
                          const std::vector<std::span<const float>>& outputs,
                          model::MetricTotals& totals) {
  model::add_batch(plan_.metrics, {}, {}, 0, totals);  // resizes the totals
  if (part.samples == 0) return;
  const model::BatchView batch = micro_batches_.view(part);
  for (std::size_t i = 0; i < plan_.metrics.size(); ++i) {
    const std::size_t term = plan_.metric_terms.empty() ? 0 : plan_.metric_terms[i];
    plan_.metrics[i]->add(outputs[plan_.loss[term].output], batch.targets_of(term), part.samples,
                          totals[i]);
  }
}

void Replica::adopt_mean_statistics() { moving_statistics_->adopt_mean(); }
std::span<float> Replica::trained_parameters() {
  return model_.parameters().first(model_.gradients().size());
}

void Replica::install_mean_statistics() {
  moving_statistics_->install_mean();
  if (options_.ema == 0) return;
  model::Backend& backend = model_.backend();
  backend.copy(kept_parameters_.as<float>(), trained_parameters());
  backend.copy(trained_parameters(), updater_->slot(model::kAverageSlot));
  model_.parameters_changed();
}

void Replica::reset_average() {
  if (options_.ema > 0)
    model_.backend().copy(updater_->slot(model::kAverageSlot), trained_parameters());
}

bool Replica::statistics_agree() const { return moving_statistics_->agree(); }
void Replica::restore_statistics() {
  moving_statistics_->restore();
  if (options_.ema == 0) return;
  model_.backend().copy(trained_parameters(), kept_parameters_.as<float>());
  model_.parameters_changed();
}

device::HostView Replica::host_view(std::span<float> values) {
  return {values, model_.backend().stream()};
}

model::MetricSums reduce_metrics(const allreduce::Communicator& group,
                                 const model::MetricSums& mine) {
  std::array<double, 2> sums{mine.loss_sum, mine.weight_excess};
  std::array<std::int64_t, 5> counts{mine.samples, mine.correct, mine.correct_top5,
                                     mine.more_positions, mine.masked};
  group.all_reduce(std::span<double>(sums)).wait();
  group.all_reduce(std::span<std::int64_t>(counts)).wait();
  return {.loss_sum = sums[0],
          .samples = counts[0],
          .correct = counts[1],
          .correct_top5 = counts[2],
          .classes = mine.classes,
          .weight_excess = sums[1],
          .more_positions = counts[3],
          .masked = counts[4]};
}

model::MetricTotals reduce_totals(const allreduce::Communicator& group,
                                  const model::Metrics& metrics, const model::MetricTotals& mine) {
  model::MetricTotals totals;
  model::add_totals(metrics, mine, totals);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    std::vector<double>& sums = totals[i];
    if (metrics[i]->sums() > 0) {
      group.all_reduce(std::span(sums)).wait();
      continue;
    }
    const auto lists = group.all_gather(std::as_bytes(std::span(sums)));
    sums.clear();
    for (const std::vector<std::byte>& list : lists) {
      const std::size_t begin = sums.size();
      sums.resize(begin + list.size() / sizeof(double));
      if (!list.empty()) std::memcpy(&sums[begin], list.data(), list.size());
    }
  }
  return totals;
}

}  // namespace lockstep::inline v0::strategy
