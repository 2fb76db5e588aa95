// TF_CONFIG: the description of a cluster, and of this process's task in it, as used by
// tf.distribute. Ranks are connected by MPI, so under MPI it is only checked against MPI's view.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0::job {

enum class TaskType { chief, worker, ps, evaluator };

/// "chief", "worker", "ps", "evaluator".
std::string to_string(TaskType type);

/// The contents of TF_CONFIG.
///
///     {"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index":
///     0}}
class Cluster {
 public:
  /// Parses the text of TF_CONFIG. nullopt if it describes no cluster (empty, `{}`, an empty
  /// "cluster"). Throws Error (input) `[TF_CONFIG] …` for text that does not have the form above,
  /// an unknown task type, a task that is not in the cluster, or several chiefs or evaluators.
  static std::optional<Cluster> parse(std::string_view text);

  /// Parses the environment variable TF_CONFIG; nullopt if it is not set.
  static std::optional<Cluster> from_environment();

  /// "worker:1"
  std::string task_name() const;

  /// Addresses of the tasks of a type, as given; may be empty.
  const std::vector<std::string>& tasks(TaskType type) const;

  /// Whether this task writes checkpoints and summaries: the chief; worker 0 if there is no chief;
  /// an evaluator, which trains in a cluster of one.
  bool is_chief() const;
  /// Number of tasks that train together: chief and workers; 1 for an evaluator. This and the
  /// functions below throw Error (input) for a parameter server.
  int worker_count() const;
  /// This task's rank among them: the chief is 0, then the workers in order.
  int worker_rank() const;
  /// The addresses of the tasks that train together, by rank; for an evaluator, its own.
  std::vector<std::string> worker_addresses() const;
  /// Their names: chief:0, worker:0, worker:1.
  std::vector<std::string> worker_names() const;

  /// Throws Error (input), with both views, unless this task is rank `rank` of `size`, as in MPI.
  /// Possibly only one rank sees a difference, so the caller must report it to all ranks.
  void check_against_mpi(int rank, int size) const;

 private:
  void check_trains() const;

  std::map<TaskType, std::vector<std::string>> tasks_;
  TaskType type_ = TaskType::worker;
  int index_ = 0;
};

}  // namespace lockstep::inline v0::job
