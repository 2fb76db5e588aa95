// TF_CONFIG: how tf.distribute describes a cluster and this process's place in it. MPI is what connects our ranks, so
// it is only read to be checked against what MPI says.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::job {

enum class TaskType { chief, worker, ps, evaluator };

/// "chief", "worker", "ps", "evaluator".
std::string to_string(TaskType type);

/// What TF_CONFIG says.
///
///     {"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}
class Cluster {
 public:
  /// Reads the text of TF_CONFIG. nullopt where it describes no cluster (empty, `{}`, an empty "cluster"). Throws Error
  /// (input) `[TF_CONFIG] …` for text that is not of the form above, an unknown type of task, a task that is not in the
  /// cluster, or several chiefs or evaluators.
  static std::optional<Cluster> parse(std::string_view text);

  /// The same for the environment variable TF_CONFIG; nullopt where it is not set.
  static std::optional<Cluster> from_environment();

  TaskType task_type() const { return type_; }
  int task_index() const { return index_; }
  /// "worker:1"
  std::string task_name() const;

  /// Addresses of the tasks of a type, as given; empty where there are none.
  const std::vector<std::string>& tasks(TaskType type) const;

  /// Whether this task writes checkpoints and summaries: the chief; worker 0 where there is no chief; an evaluator, in
  /// its own cluster of one.
  bool is_chief() const;
  /// Tasks that train together: chief and workers; 1 for an evaluator. A parameter server has none of this: Error
  /// (input).
  int worker_count() const;
  /// This task's number among them: chief 0, then the workers in order.
  int worker_rank() const;
  /// The addresses of the tasks that train together, by their numbers; for an evaluator its own.
  std::vector<std::string> worker_addresses() const;
  /// Their names: chief:0, worker:0, worker:1.
  std::vector<std::string> worker_names() const;

  /// Throws Error (input), with both views, unless this task is rank `rank` of `size` for MPI too. A rank may be alone
  /// in seeing a difference, so the caller lets all ranks know.
  void check_against_mpi(int rank, int size) const;

 private:
  void check_trains() const;

  std::map<TaskType, std::vector<std::string>> tasks_;
  TaskType type_ = TaskType::worker;
  int index_ = 0;
};

}  // namespace lockstep::job
