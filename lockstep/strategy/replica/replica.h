// One replica: a model, its optimizer, and its training step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/allreduce/buckets/straggler.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/metrics/metric.h"
#include "lockstep/model/optimizer/updater.h"
#include "lockstep/strategy/replica/gradient_memory.h"
#include "lockstep/strategy/replica/local_updater.h"
#include "lockstep/strategy/replica/micro_batches.h"
#include "lockstep/strategy/replica/step_breakdown.h"
#include "lockstep/strategy/replica/step_recordings.h"
#include "lockstep/strategy/step/loss_scaler.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::inline v0::strategy {

class MovingStatistics;
class ReplicaStatistics;

/// Parameters of a step other than its samples; the same on all replicas, except `signal` and
/// `input_seconds`.
struct StepRequest {
  std::uint64_t seed = 1;   ///< seed of record order, dropout and initial weights
  std::int64_t step = 0;    ///< counted from 0 since the start of training; keys dropout
  std::int64_t update = 1;  ///< number of this update, from 1; skipped steps do not count
  float learning_rate = 0;  ///< learning rate of this step
  /// The signal that this rank has received; 0 for none. Set on one replica per rank.
  int signal = 0;
  double input_seconds = 0;  ///< time that this rank waited for the samples of this step
  bool staged = false;       ///< whether these samples were passed as `next` to the previous step
};

/// The result of a step; the same on all replicas.
struct StepResult {
  StepReport report;    ///< summed over all replicas
  bool applied = true;  ///< false: skipped; parameters and moving statistics are unchanged
  /// Whether all samples have weight 0, or all positions are masked. Such a step changes nothing
  /// and is no update, but it does not count as skipped, and its samples count in the metrics.
  bool weightless = false;
  std::vector<int> failed;  ///< replicas whose loss was not finite
  bool overflow = false;  ///< skipped because the loss scale was too large; the next one is smaller
  float loss_scale = 1;   ///< loss scale of this step
  /// Norm of the reduced gradient before clipping, without the loss scale; 0 without clipping.
  double gradient_norm = 0;
};

/// One replica of a model. All replicas of a group make the same calls in the same order, each
/// always on its own thread.
class Replica {
 public:
  /// Creates a copy of `network` on `device`, as a member of `group`. `plan`: loss_plan() of
  /// `options`. Collective.
  Replica(std::shared_ptr<const model::Network> network, device::Device device,
          allreduce::Communicator group, const TrainerOptions& options, const LossPlan& plan);
  ~Replica();  ///< waits for work in progress, which may use the memory
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  model::CompiledModel& model() { return model_; }   ///< its network, parameters and plans
  model::Updater& optimizer() { return *updater_; }  ///< its optimizer, on the model's device
  /// All replicas of the job, this one as a member.
  const allreduce::Communicator& group() const { return group_; }
  allreduce::GradientBuckets& buckets() { return buckets_; }  ///< the buckets of its gradient
  LossScaler& loss_scaler() { return loss_scaler_; }          ///< its loss scale
  /// Whether steps are recorded once and then replayed.
  bool records_steps() const { return recordings_.has_value(); }
  /// Must be called between steps, with the same value on all replicas.
  void set_bucket_bytes(std::size_t bytes);
  /// Measures the error in the next step (GradientBuckets::measure_wire_error).
  void measure_wire_error();
  /// Times the next steps in `profile`, which must outlive them; null ends it. Timed steps are not
  /// recorded on any replica.
  void set_profile(model::StepProfile* profile) { profile_ = profile; }
  /// A host view of values on the model's device; waits for work in progress.
  device::HostView host_view(std::span<float> values);
  /// xxh3-64 hash of the parameters in the order of their names.
  std::uint64_t parameter_hash() {
    return model_.parameter_table().hash(host_view(model_.parameters()).values());
  }

  /// Throws the same Error (communication) on all replicas unless their flat arrays have the same
  /// layout. Collective.
  void check_layout() const;

  /// One update: forward and backward on `part` in micro-batches, one reduction per gradient
  /// bucket, clipping, the optimizer. With 0 samples, the replica contributes a zero gradient. With
  /// TrainerOptions::local, a round: an update per micro-batch, one reduction of the change.
  /// `next`: the next part, if known; it is copied to the model's device during this step.
  /// Collective.
  StepResult train_step(const data::Batch& part, const StepRequest& request,
                        const data::Batch* next = nullptr);

  /// Creates the plans for parts of a global batch of `global_samples`, so that memory is allocated
  /// before the first step.
  void prepare(std::int64_t global_samples, bool training);

  /// Time that the computation was blocked by other replicas. On a GPU: the time of its host,
  /// without reductions in recordings.
  allreduce::CommunicationTimes communication() const {
    return buckets_.times() + waited_for_others_;
  }

  /// Busy time of each replica of the job in the last step, without waiting for others; the same on
  /// all replicas. On GPUs, `compute` is that of the step before.
  std::span<const allreduce::BusySeconds> busy() const { return step_scalars_.busy(); }

  /// Where the time of the last step went, without input, checkpoint and other.
  const StepBreakdown& breakdown() const { return breakdown_; }

  /// Returns the sums over the samples that this replica trained on since the last call.
  model::MetricSums take_metrics();
  /// Returns the totals of LossPlan::metrics over these samples.
  model::MetricTotals take_metric_totals();

  /// Replaces the moving statistics by their mean over all replicas, for checkpoints and for the
  /// rest of the training. With sync normalization they are already the same. Collective.
  void adopt_mean_statistics();
  /// Installs that mean for evaluation, and the moving average of the parameters if there is one;
  /// restore_statistics() restores the values for training. Collective.
  void install_mean_statistics();
  void restore_statistics();  ///< see install_mean_statistics()
  /// Sets the moving average, if there is one, to the current parameters. Required after the
  /// parameters have been set other than by an update.
  void reset_average();
  /// Whether the moving statistics must agree on all replicas now: with sync normalization, and
  /// from a mean until the next step. The same on all replicas.
  bool statistics_agree() const;

  /// Returns sums of loss and metrics in inference mode. Adds those of LossPlan::metrics to
  /// `totals`.
  model::MetricSums evaluate(const data::Batch& part, model::MetricTotals& totals);
  /// Returns each output [samples, shape...] for the samples `range` of `part` in inference mode;
  /// valid until the next call.
  std::vector<std::span<const float>> predict(const data::Batch& part, data::Range range) {
    return model_.predict_outputs(micro_batches_.view(part, range));
  }

 private:
  StepKind agree_on_kind(StepKind mine);
  void enqueue_step(const data::Batch& part, const StepRequest& request);
  void enqueue_work(const data::Batch& part, const StepRequest& request, bool is_loaded);
  model::StepContext context(const data::Batch& part, const StepRequest& request,
                             std::int64_t number) const;
  /// Micro-batch `number` of `part`, with weights; valid until the next call.
  model::BatchView view(const data::Batch& part, std::int64_t number);
  void load(const data::Batch& part, const StepRequest& request, std::int64_t number);
  /// Copies the part of the next step to the device during the computation on `part`.
  void stage(const data::Batch& next, const data::Batch& part);
  void compute_gradients(const data::Batch& part, const StepRequest& request, bool is_loaded);
  void end_local_steps(const data::Batch& part);
  model::UpdateArrays update_arrays();
  /// Whether all metrics use only the sums of the loss over the samples of `part`.
  bool reads_sums(const data::Batch& part) const;
  void add_metrics(const data::Batch& part, const std::vector<std::span<const float>>& outputs,
                   model::MetricTotals& totals);
  void end_piece(std::string_view name, const model::Work& work = {});
  /// Points of a step that delimit the parts of its breakdown.
  enum Mark : std::uint8_t { mark_begin, mark_gradients, mark_reduced, mark_updated };
  static constexpr std::size_t kMarks = 4;
  void mark(Mark point);
  double seconds_between(Mark from, Mark to) const {
    return marks_[to].seconds_since(marks_[from]);
  }
  bool is_on_gpu();
  void measure_step(const allreduce::CommunicationTimes& communicated, double agreeing);
  model::Work work_of_update();
  double seconds_in_exchange() const;
  std::span<float> trained_parameters();
  void describe_buckets();

  TrainerOptions options_;
  LossPlan plan_;
  allreduce::Communicator group_;
  std::unique_ptr<ReplicaStatistics> shared_statistics_;  // null for local normalization
  GradientMemory memory_;  // before the model, whose gradients are stored in it
  model::CompiledModel model_;
  LossScaler loss_scaler_;
  allreduce::GradientBuckets buckets_;
  model::GradientReady ready_;
  MicroBatches micro_batches_;
  std::vector<float> sample_weights_;  // for the last loaded micro-batch, with class weights
  std::unique_ptr<MovingStatistics> moving_statistics_;
  LocalUpdater* local_ = nullptr;  // updater_ in rounds of local steps; null: none
  std::unique_ptr<model::Updater> updater_;
  device::Buffer kept_parameters_;  // while the average is installed
  StepScalars step_scalars_;
  std::array<device::Event, kMarks> marks_;  // recordings move them
  double exchanged_ = 0;                     // seconds of statistics exchanges in the current step
  StepBreakdown breakdown_;                  // breakdown of the last step
  double gpu_busy_ = 0;                      // `compute` of the last step on a GPU
  bool has_measured_ = false;                // whether a step was measured
  std::optional<StepRecordings>
      recordings_;                   // after group_: recordings keep NCCL's communicators alive
  std::set<std::int64_t> launched_;  // sample counts whose kernels have been launched
  allreduce::CommunicationTimes waited_for_others_;  // before recorded steps
  model::MetricSums metrics_;
  model::MetricTotals metric_totals_;  // totals of plan_.metrics
  model::StepProfile* profile_ = nullptr;
  model::StepProfile* timing_ = nullptr;  // null if the current step is not timed
};

/// Sums `mine` over all members of `group`: loss and weights in double, counts as integers. The
/// result is the same on all members. Collective.
model::MetricSums reduce_metrics(const allreduce::Communicator& group,
                                 const model::MetricSums& mine);

/// Combines the totals of `metrics` of all members of `group`: sums in double, lists in the order
/// of the members. Collective.
model::MetricTotals reduce_totals(const allreduce::Communicator& group,
                                  const model::Metrics& metrics, const model::MetricTotals& mine);

}  // namespace lockstep::inline v0::strategy
