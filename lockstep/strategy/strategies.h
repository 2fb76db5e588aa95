// The distribution strategies, and their construction by name.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/source/file_options.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::inline v0::strategy {

/// One replica, in one process.
class OneDeviceStrategy final : public Strategy {
 public:
  /// Throws Error (input) in a job of several ranks.
  explicit OneDeviceStrategy(job::Session& session, device::Device device = {},
                             const StrategyOptions& options = {});
  std::string name() const override { return "one-device"; }
};

/// Several replicas in one process, one thread per replica. A device may be listed several times:
/// its logical replicas share its cores.
class MirroredStrategy final : public Strategy {
 public:
  /// `devices`: one per replica, at least one. Throws Error (input) in a job of several ranks, or
  /// without a device.
  MirroredStrategy(job::Session& session, std::vector<device::Device> devices,
                   const StrategyOptions& options = {});
  std::string name() const override { return "mirrored"; }
};

/// Replicas on all ranks of an MPI job, one or several per rank, on one or more nodes. Rank 0 is
/// the chief.
///
/// If TF_CONFIG is set, it must agree with MPI: the same number of workers as ranks, and the task's
/// index equal to the rank.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  /// `devices`: one per replica of this rank; ranks may have different numbers of devices. Throws
  /// Error (input) if it is empty, or if TF_CONFIG is malformed or disagrees with MPI. Without a
  /// launcher, the job has one rank.
  explicit MultiWorkerMirroredStrategy(job::Session& session,
                                       std::vector<device::Device> devices = {device::Device{}},
                                       const StrategyOptions& options = {});
  std::string name() const override { return "multi-worker-mirrored"; }
};

/// Replicas on all ranks, or of one process, that train alone for several steps and then average
/// their parameters: a step of a training is such a round (TrainerOptions::local), and the batch of
/// its data set holds the samples of all local steps. For slow networks. Other numbers of replicas
/// give another result.
class LocalStepsStrategy final : public Strategy {
 public:
  /// As MultiWorkerMirroredStrategy.
  explicit LocalStepsStrategy(job::Session& session,
                              std::vector<device::Device> devices = {device::Device{}},
                              const StrategyOptions& options = {});
  std::string name() const override { return "local-steps"; }
  std::string caveat(const TrainerOptions& options) const override;
  /// Makes each micro-batch a local step. Throws Error (input) for accumulation, for loss scaling,
  /// and for normalization over several replicas.
  TrainerOptions adapted(TrainerOptions options) const override;
};

/// The names of make_strategy().
inline constexpr std::array<std::string_view, 5> kStrategyNames = {
    "auto", "one-device", "mirrored", "multi-worker-mirrored", "local-steps"};

/// Returns `name` if it is one of kStrategyNames, else throws Error (input). For other strategies
/// of tf.distribute, the message names a replacement. `where` is for the message.
std::string parse_strategy(std::string_view where, const std::string& name);

/// Creates a strategy by its `--strategy` name, one of kStrategyNames. `auto` is
/// multi-worker-mirrored in a job of several ranks, else mirrored for several devices, else
/// one-device. Throws Error (input) for an unknown name or inconsistent options. Collective.
std::unique_ptr<Strategy> make_strategy(job::Session& session, std::string_view name = "auto",
                                        std::vector<device::Device> devices = {device::Device{}},
                                        const StrategyOptions& options = {});

/// For DataSpecOptions::tfrecord.exchange and CsvOptions::exchange: the ranks of the job share the
/// reading of files, so opening is collective. Call it before creating a strategy. `session` must
/// outlive the opening of the data set.
data::IndexExchange index_exchange(const job::Session& session);
/// Overload for after a strategy was created, on the thread that created it.
data::IndexExchange index_exchange(const Strategy& strategy);

}  // namespace lockstep::inline v0::strategy
