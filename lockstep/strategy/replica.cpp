#include "lockstep/strategy/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/allreduce/layout.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/recording.h"
#include "lockstep/model/backend.h"
#include "lockstep/strategy/normalization.h"
#include "lockstep/strategy/step_recordings.h"

namespace lockstep::strategy {
namespace {

constexpr std::size_t kStepScalarEntries = 1;  // the last entry of the buckets

/// The offsets of the parameters in the flat gradient, followed by that of the step scalars.
std::vector<std::size_t> bucket_offsets(const model::ParameterTable& table,
                                        const GradientMemory& memory) {
  std::vector<std::size_t> offsets;
  for (const model::ParameterInfo& entry : table.entries()) offsets.push_back(entry.offset);
  offsets.push_back(memory.gradient_size());
  return offsets;
}

std::unique_ptr<ReplicaStatistics> shared_statistics(const allreduce::Communicator& group,
                                                     const NormalizationScope& scope) {
  const int members = scope.members(group.size());
  return members > 1 ? std::make_unique<ReplicaStatistics>(group.rank(), group.size(), members)
                     : nullptr;
}

/// Page-locked if a GPU reads and writes it.
std::unique_ptr<device::Allocator> host_memory_for(device::Device device) {
  if (device.kind == device::DeviceKind::gpu) return device::make_pinned_allocator();
  return std::make_unique<device::HostAllocator>();
}

}  // namespace

Replica::Replica(std::shared_ptr<const model::Network> network, device::Device device,
                 allreduce::Communicator group, const ReplicaOptions& options)
    : options_(options),
      group_(group),
      statistics_(shared_statistics(group, options.normalization)),
      memory_(group),
      model_(std::move(network), device, memory_,
             {.precision = options.precision,
              .tf32 = options.tf32,
              .deterministic = options.deterministic,
              .statistics = statistics_.get(),
              .progress = [this] { tick(); }}),
      loss_scaler_(options.loss_scaling),
      buckets_(std::move(group), memory_.all(), bucket_offsets(model_.parameter_table(), memory_),
               options.buckets, kStepScalarEntries,
               device.kind == device::DeviceKind::gpu ? &model_.backend().stream() : nullptr),
      ready_([this](std::size_t parameter) { buckets_.ready(parameter); }),
      feature_count_(
          static_cast<std::size_t>(model::element_count(model_.network().input_shape()))),
      kept_buffers_(model_.backend().allocator().allocate(model_.buffers().size_bytes())),
      updater_(model_.backend().updater(
          options.optimizer, model_.parameter_table(),
          {.parameters = model_.parameters(),
           .gradients = model_.gradients(),
           .weights = options.precision == model::Precision::float32 ? model::TensorView()
                                                                     : model_.weights(),
           .statistics = model_.buffers(),
           .kept_statistics = kept_buffers_.as<float>()})),
      step_scalars_(host_memory_for(device)->allocate(memory_.step_scalars().size_bytes())),
      busy_(static_cast<std::size_t>(group_.size())) {
  // Each micro-batch is loaded in the middle of its step.
  if (options.records_steps && options.accumulate == 1 &&
      device::Recording::is_possible(model_.backend().stream()))
    recordings_.emplace(
        [this](const StepRecordings::Enqueue& put) {
          return record_step(model_.backend().stream(), buckets_, group_, put);
        },
        [this](StepKind mine) { return agreed(mine); });
  if (statistics_) statistics_->attach(buckets_, model_.backend());
  describe_buckets();
}

Replica::~Replica() {
  try {
    model_.backend().stream().synchronize();
  } catch (const Error&) {  // the device failed, which was reported before
  }
}

// Recorded sums of one replica go with recorded ones of the others alone, and so do the times that
// are compared.
StepKind Replica::agreed(StepKind mine) {
  const auto begin = std::chrono::steady_clock::now();
  const std::array<std::byte, 1> told{static_cast<std::byte>(mine)};
  auto foremost = mine;
  for (const auto& theirs : group_.all_gather(told))
    foremost = std::min(foremost, static_cast<StepKind>(theirs.front()));
  const double waited = seconds_since(begin);
  waited_for_others_.exposed += waited;
  waited_for_others_.waited += waited;
  return foremost;
}

void Replica::describe_buckets() {
  if (group_.activity() != nullptr) group_.activity()->describe_buckets(bucket_contents());
}

void Replica::set_bucket_bytes(std::size_t bytes) {
  if (recordings_) recordings_->clear();  // they hold memory of the buckets
  buckets_.set_bytes(bytes);
  describe_buckets();
}

void Replica::measure_wire_error() {
  if (recordings_) recordings_->clear();  // measuring allocates and waits, which cannot be recorded
  buckets_.measure_wire_error();
}

std::vector<std::string> Replica::bucket_contents() const {
  const auto& entries = model_.parameter_table().entries();
  std::vector<std::string> contents;
  std::size_t next = 0;
  for (const allreduce::BucketRange& bucket : buckets_.buckets()) {
    const std::size_t end = std::min(next + bucket.entries, entries.size());
    if (next == end)
      contents.emplace_back("the step's report");
    else if (next + 1 == end)
      contents.push_back(entries[next].name);
    else
      contents.push_back(fmt::format("{} .. {}", entries[next].name, entries[end - 1].name));
    next = end;
  }
  return contents;
}

void Replica::check_layout() const {
  std::vector<allreduce::LayoutEntry> layout;
  for (const model::ParameterInfo& entry : model_.parameter_table().entries())
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
    // Micro-batches have at most two sizes.
    for (const std::int64_t piece : {std::int64_t{0}, micro_batches(part) - 1})
      model_.prepare(micro_batch(part, piece).size(), true);
  }
}

void Replica::tick() const {
  if (group_.activity() != nullptr) group_.activity()->tick();
}

StepResult Replica::train_step(const data::Batch& part, const StepRequest& request,
                               const data::Batch* next) {
  enqueue_step(part, request);
  if (next != nullptr) {
    const data::Range first = micro_batch(*next, 0);
    model_.stage(view(*next, first.begin, first.end));
  }
  const allreduce::PhaseScope update(group_.activity(), allreduce::Phase::update);
  StepResult result;
  result.report = read_report();
  const model::UpdateOutcome outcome = updater_->outcome();
  const model::MetricSums mine = model_.backend().read_sums();
  result.applied = outcome.applied;
  result.loss_scale = loss_scaler_.scale();
  if (options_.clip_norm > 0) result.gradient_norm = outcome.gradient_norm;
  if (!result.report.is_finite)
    result.failed = replicas_with(model::SummableMetrics(mine).non_finite > 0);
  else
    result.overflow = loss_scaler_.update(result.applied);
  if (!result.applied) return result;
  metrics_ += mine;
  samples_since_mean_ += part.samples;
  return result;
}

void Replica::enqueue_step(const data::Batch& part, const StepRequest& request) {
  const allreduce::PhaseScope compute(group_.activity(), allreduce::Phase::compute);
  updater_->begin({.learning_rate = request.learning_rate,
                   .update = request.update,
                   .clip_norm = options_.clip_norm,
                   .loss_scale = loss_scaler_.scale()});
  if (!recordings_) return enqueue_work(part, request, false);
  const auto begin = std::chrono::steady_clock::now();
  load(part, request, 0);
  // This is the host's time; the time on a GPU is not visible here.
  stage_report(request, seconds_since(begin));
  recordings_->run(part.samples, model_.placement(), [&] { enqueue_work(part, request, true); });
}

void Replica::enqueue_work(const data::Batch& part, const StepRequest& request, bool is_loaded) {
  const auto begin = std::chrono::steady_clock::now();
  model::Backend& backend = model_.backend();
  keep_statistics();
  backend.clear_sums();
  const double exchanged_before = seconds_in_exchange();
  compute_gradients(part, request, is_loaded);
  if (!is_loaded)
    stage_report(request, seconds_since(begin) - (seconds_in_exchange() - exchanged_before));
  const std::span<float> step_scalars = memory_.step_scalars();
  device::copy(step_scalars.data(), step_scalars_.data(), step_scalars.size_bytes(),
               backend.stream());
  backend.write_sums(memory_.report());
  buckets_.ready(model_.parameter_table().entries().size());
  buckets_.finish();
  updater_->update(memory_.report());
  backend.fetch_sums();
}

// A part with fewer samples than micro-batches is cut into single samples; one without any still
// reports its zero gradient. Replicas that normalize together make as many passes as the one with
// the most samples.
std::int64_t Replica::micro_batches(const data::Batch& part) const {
  const std::int64_t most =
      statistics_ ? (part.global_samples + group_.size() - 1) / group_.size() : part.samples;
  return std::clamp<std::int64_t>(most, 1, options_.accumulate);
}

double Replica::seconds_in_exchange() const { return statistics_ ? statistics_->seconds() : 0; }

model::StepContext Replica::context(const data::Batch& part, const StepRequest& request,
                                    std::int64_t first) const {
  return {.seed = request.seed,
          .step = request.step,
          .first_sample = part.first_sample + first,
          .global_samples = part.global_samples,
          .loss_scale = loss_scaler_.scale()};
}

data::Range Replica::micro_batch(const data::Batch& part, std::int64_t number) const {
  return data::split(part.samples, micro_batches(part), number);
}

void Replica::load(const data::Batch& part, const StepRequest& request, std::int64_t number) {
  const data::Range range = micro_batch(part, number);
  const bool staged = request.staged && number == 0 && range.size() > 0;
  model_.load(view(part, range.begin, range.end), context(part, request, range.begin),
              options_.loss, staged);
}

void Replica::compute_gradients(const data::Batch& part, const StepRequest& request,
                                bool is_loaded) {
  const std::int64_t pieces = micro_batches(part);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const data::Range range = micro_batch(part, piece);
    if (!is_loaded) load(part, request, piece);
    const bool last = piece + 1 == pieces;
    model_.train_loaded(range.end - range.begin, context(part, request, range.begin), options_.loss,
                        piece > 0, last ? ready_ : model::GradientReady{});
  }
}

// What this host knows of the step; the sums of the losses are written into it on the model's
// device.
void Replica::stage_report(const StepRequest& request, double compute_seconds) {
  StepReport report;
  report.add_signal(request.signal);
  const std::span<float> staged = step_scalars_.as<float>();
  std::ranges::fill(staged, 0.0F);
  report.write_signals(staged);
  // The other replicas add zero here, so the sum contains the times of each replica.
  const std::span<float> mine = GradientMemory::of_replica(staged, group_.rank());
  mine[0] = static_cast<float>(request.input_seconds);
  mine[1] = static_cast<float>(compute_seconds);
}

StepReport Replica::read_report() {
  const std::span<float> staged = step_scalars_.as<float>();
  device::Stream& stream = model_.backend().stream();
  device::copy(staged.data(), memory_.step_scalars().data(), staged.size_bytes(), stream);
  await(stream);
  for (int replica = 0; replica < group_.size(); ++replica) {
    const std::span<float> theirs = GradientMemory::of_replica(staged, replica);
    busy_[static_cast<std::size_t>(replica)] = {theirs[0], theirs[1]};
  }
  return StepReport::read(staged);
}

// Polls instead of synchronizing the stream, because its work may wait for a replica that is lost.
void Replica::await(device::Stream& stream) const {
  constexpr int kBriefLooks = 4096;
  const device::Event done = stream.record();
  for (int look = 0; !done.is_complete(); ++look) {
    if (look < kBriefLooks) {
      std::this_thread::yield();
      continue;
    }
    group_.throw_if_failed();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::vector<int> Replica::replicas_with(bool mine) const {
  const std::array<std::byte, 1> flag{mine ? std::byte{1} : std::byte{0}};
  const auto all = group_.all_gather(flag);
  std::vector<int> replicas;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].front() != std::byte{0}) replicas.push_back(static_cast<int>(i));
  return replicas;
}

model::MetricSums Replica::take_metrics() { return std::exchange(metrics_, {}); }

bool Replica::has_own_statistics() const {
  return !statistics_ || statistics_->members() < group_.size();
}

void Replica::adopt_mean_statistics() {
  average_statistics();
  samples_since_mean_ = 0;
}

void Replica::install_mean_statistics() {
  keep_statistics();
  average_statistics();
}

void Replica::average_statistics() {
  if (!has_own_statistics()) return;
  device::HostView view = host_view(model_.buffers());
  average_moving_statistics(group_, view.values(), samples_since_mean_);
  view.write_back(model_.backend().stream());
}

void Replica::keep_statistics() {
  model_.backend().copy(kept_buffers_.as<float>(), model_.buffers());
}

void Replica::restore_statistics() {
  model_.backend().copy(model_.buffers(), kept_buffers_.as<float>());
}

device::HostView Replica::host_view(std::span<float> values) {
  return {values, model_.backend().stream()};
}

model::BatchView Replica::view(const data::Batch& part, std::int64_t begin,
                               std::int64_t end) const {
  const auto first = static_cast<std::size_t>(begin);
  const auto count = static_cast<std::size_t>(end - begin);
  model::BatchView view;
  view.samples = end - begin;
  if (part.pixels.empty()) {
    view.features =
        std::span(part.features).subspan(first * feature_count_, count * feature_count_);
  } else {
    view.pixels = std::span(part.pixels).subspan(first * feature_count_, count * feature_count_);
    view.normalization = part.normalization;
  }
  if (!part.labels.empty()) view.targets.labels = std::span(part.labels).subspan(first, count);
  if (!part.partner_labels.empty()) {
    view.targets.partner_labels = std::span(part.partner_labels).subspan(first, count);
    view.targets.weights = std::span(part.label_weights).subspan(first, count);
  }
  if (part.samples > 0 && !part.targets.empty()) {
    const std::size_t width = part.targets.size() / static_cast<std::size_t>(part.samples);
    view.targets.values = std::span(part.targets).subspan(first * width, count * width);
  }
  return view;
}

model::MetricSums reduce_metrics(const allreduce::Communicator& group,
                                 const model::MetricSums& mine) {
  double loss = mine.loss;
  std::array<std::int64_t, 3> counts{mine.samples, mine.correct, mine.correct_top5};
  group.all_reduce(std::span(&loss, 1)).wait();
  group.all_reduce(std::span<std::int64_t>(counts)).wait();
  return {.loss = loss,
          .samples = counts[0],
          .correct = counts[1],
          .correct_top5 = counts[2],
          .has_accuracy = mine.has_accuracy};
}

}  // namespace lockstep::strategy
