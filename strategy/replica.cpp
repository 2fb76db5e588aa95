#include "strategy/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "allreduce/layout.h"
#include "data/order/batch_split.h"
#include "model/backend.h"
#include "strategy/moving_statistics.h"

namespace lockstep::strategy {
namespace {

constexpr std::size_t kPassengerEntries = 1;  // the last entry of the buckets

/// Where the parameters begin in the flat gradient, and behind them the passengers.
std::vector<std::size_t> bucket_offsets(const model::ParameterTable& table, const GradientMemory& memory) {
  std::vector<std::size_t> offsets;
  for (const model::ParameterInfo& entry : table.entries()) offsets.push_back(entry.offset);
  offsets.push_back(memory.gradient_size());
  return offsets;
}

std::unique_ptr<ReplicaStatistics> shared_statistics(const allreduce::Communicator& group,
                                                     const NormalizationScope& scope) {
  const int members = scope.members(group.size());
  return members > 1 ? std::make_unique<ReplicaStatistics>(group.rank(), group.size(), members) : nullptr;
}

}  // namespace

Replica::Replica(std::shared_ptr<const model::Network> network, device::Device device, allreduce::Communicator group,
                 const ReplicaOptions& options)
    : options_(options),
      group_(group),
      statistics_(shared_statistics(group, options.normalization)),
      memory_(group),
      model_(std::move(network), device, memory_, {.precision = options.precision, .statistics = statistics_.get()}),
      optimizer_(options.optimizer, model_.parameter_table()),
      loss_scaler_(options.loss_scaling),
      buckets_(std::move(group), memory_.all(), bucket_offsets(model_.parameter_table(), memory_), options.buckets,
               kPassengerEntries),
      ready_([this](std::size_t parameter) { buckets_.ready(parameter); }),
      feature_count_(static_cast<std::size_t>(model::element_count(model_.network().input_shape()))),
      kept_buffers_(model_.backend().allocator().allocate(model_.buffers().size_bytes())),
      busy_(static_cast<std::size_t>(group_.size())) {
  if (statistics_) statistics_->attach(buckets_, model_.backend());
  describe_buckets();
}

void Replica::describe_buckets() {
  if (group_.activity() != nullptr) group_.activity()->describe_buckets(bucket_contents());
}

void Replica::set_bucket_bytes(std::size_t bytes) {
  buckets_.set_bytes(bytes);
  describe_buckets();
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

StepResult Replica::train_step(const data::Batch& part, const StepRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  const allreduce::PhaseScope compute(group_.activity(), allreduce::Phase::compute);
  keep_statistics();
  const double exchanged_before = seconds_in_exchange();
  const model::MetricSums mine = compute_gradients(part, request);
  const std::chrono::duration<double> computed = std::chrono::steady_clock::now() - begin;
  StepResult result;
  result.loss_scale = loss_scaler_.scale();
  result.report = reduce(mine, request, computed.count() - (seconds_in_exchange() - exchanged_before));
  const allreduce::PhaseScope update(group_.activity(), allreduce::Phase::update);
  float scale = 1;
  if (result.report.non_finite > 0) {
    result.failed = replicas_with(!std::isfinite(mine.loss));
    result.applied = false;
  } else {
    scale = judge_gradient(result);
  }
  if (!result.applied) {
    restore_statistics();
    return result;
  }
  optimizer_.apply(model_.parameters(), model_.gradients(), request.learning_rate, request.update, scale);
  model_.parameters_changed();
  metrics_ += mine;
  samples_since_mean_ += part.samples;
  return result;
}

// Decides whether the reduced gradient is used, and returns what it is multiplied by. All replicas hold the same bits
// of it, so all come to the same norm, the same decision and the same next loss scale.
float Replica::judge_gradient(StepResult& result) {
  if (options_.clip_norm <= 0 && !loss_scaler_.is_on()) return 1;
  const double norm = model::global_norm(model_.gradients()) / static_cast<double>(result.loss_scale);
  if (options_.clip_norm > 0) result.gradient_norm = norm;
  result.applied = std::isfinite(norm);
  result.overflow = loss_scaler_.update(result.applied);
  return model::clip_scale(norm, options_.clip_norm) / result.loss_scale;
}

// A part with fewer samples than micro-batches is cut into single samples; one without any still reports its zero
// gradient. Replicas that normalize together make as many passes as the one with the most samples.
std::int64_t Replica::micro_batches(const data::Batch& part) const {
  const std::int64_t most = statistics_ ? (part.global_samples + group_.size() - 1) / group_.size() : part.samples;
  return std::clamp<std::int64_t>(most, 1, options_.accumulate);
}

double Replica::seconds_in_exchange() const { return statistics_ ? statistics_->seconds() : 0; }

model::MetricSums Replica::compute_gradients(const data::Batch& part, const StepRequest& request) {
  const std::int64_t pieces = micro_batches(part);
  model::MetricSums sums;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const data::Range range = data::split(part.samples, pieces, piece);
    const model::StepContext context{.seed = request.seed,
                                     .step = request.step,
                                     .first_sample = part.first_sample + range.begin,
                                     .global_samples = part.global_samples,
                                     .loss_scale = loss_scaler_.scale()};
    const bool last = piece + 1 == pieces;
    sums += model_.train_batch(view(part, range.begin, range.end), context, options_.loss, piece > 0,
                               last ? ready_ : model::GradientReady{});
  }
  return sums;
}

StepReport Replica::reduce(const model::MetricSums& mine, const StepRequest& request, double compute_seconds) {
  StepReport report;
  report.terminate = request.signal == SIGTERM ? 1 : 0;
  report.interrupt = request.signal == SIGINT ? 1 : 0;
  std::ranges::fill(memory_.passengers(), 0.0F);
  model::SummableMetrics(mine).write(memory_.report().data());
  report.write_signals(memory_.report());
  // The others add zero here, so all come to know the times of each.
  memory_.of_replica(group_.rank())[0] = static_cast<float>(request.input_seconds);
  memory_.of_replica(group_.rank())[1] = static_cast<float>(compute_seconds);
  buckets_.ready(model_.parameter_table().entries().size());
  buckets_.finish();
  for (int replica = 0; replica < group_.size(); ++replica)
    busy_[static_cast<std::size_t>(replica)] = {memory_.of_replica(replica)[0], memory_.of_replica(replica)[1]};
  return StepReport::read(memory_.report());
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

bool Replica::has_own_statistics() const { return !statistics_ || statistics_->members() < group_.size(); }

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

void Replica::keep_statistics() { model_.backend().copy(kept_buffers_.as<float>(), model_.buffers()); }

void Replica::restore_statistics() { model_.backend().copy(model_.buffers(), kept_buffers_.as<float>()); }

device::HostView Replica::host_view(std::span<float> values) { return {values, model_.backend().stream()}; }

model::BatchView Replica::view(const data::Batch& part, std::int64_t begin, std::int64_t end) const {
  const auto first = static_cast<std::size_t>(begin);
  const auto count = static_cast<std::size_t>(end - begin);
  model::BatchView view;
  view.samples = end - begin;
  view.features = std::span(part.features).subspan(first * feature_count_, count * feature_count_);
  if (!part.labels.empty()) view.targets.labels = std::span(part.labels).subspan(first, count);
  if (part.samples > 0 && !part.targets.empty()) {
    const std::size_t width = part.targets.size() / static_cast<std::size_t>(part.samples);
    view.targets.values = std::span(part.targets).subspan(first * width, count * width);
  }
  return view;
}

model::MetricSums reduce_metrics(const allreduce::Communicator& group, const model::MetricSums& mine) {
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
