#include "lockstep/job/launch/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::job {
namespace {

using nlohmann::json;

// Enough for a hundred thousand addresses.
constexpr JsonLimits kLimits{.bytes = std::size_t{16} << 20, .depth = 8, .values = 200'000};

constexpr auto kTaskTypes = enum_names<TaskType>({{TaskType::chief, "chief"},
                                                  {TaskType::worker, "worker"},
                                                  {TaskType::ps, "ps"},
                                                  {TaskType::evaluator, "evaluator"}});

[[noreturn]] void refuse_cluster(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, "TF_CONFIG", expected, actual);
}

TaskType parse_task_type(const std::string& name) {
  if (const auto type = kTaskTypes.find(name)) return *type;
  refuse_cluster("expected tasks of type chief, worker, ps or evaluator",
                 "got " + describe_json(name));
}

std::vector<std::string> parse_addresses(const std::string& type, const json& list) {
  const bool texts =
      list.is_array() && std::all_of(list.begin(), list.end(), [](const json& address) {
        return address.is_string() && !address.get_ref<const std::string&>().empty();
      });
  if (!texts)
    refuse_cluster(fmt::format("expected a list of addresses \"host:port\" for {}", type),
                   "got " + describe_json(list));
  return list.get<std::vector<std::string>>();
}

/// An integer or its decimal text; launch scripts use both.
int parse_index(const json& index) {
  const auto number = parse_number<int>(index.is_string() ? index.get_ref<const std::string&>()
                                                          : describe_json(index));
  if (!number || *number < 0)
    refuse_cluster("expected a task index from 0", "got " + describe_json(index));
  return *number;
}

}  // namespace

std::string to_string(TaskType type) { return std::string(kTaskTypes.name(type)); }

std::optional<Cluster> Cluster::parse(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
  const json config = parse_json(text, ErrorCategory::input, "TF_CONFIG", kLimits);
  if (!config.is_object())
    refuse_cluster("expected an object with \"cluster\" and \"task\"",
                   "got " + describe_json(config));
  const json jobs = config.value("cluster", json::object());
  if (!jobs.is_object())
    refuse_cluster("expected a \"cluster\" that lists addresses by type of task",
                   "got " + describe_json(jobs));
  if (jobs.empty()) return std::nullopt;

  Cluster cluster;
  for (const auto& [name, list] : jobs.items())
    cluster.tasks_[parse_task_type(name)] = parse_addresses(name, list);
  for (const TaskType single : {TaskType::chief, TaskType::evaluator})
    if (const std::size_t count = cluster.tasks(single).size(); count > 1)
      refuse_cluster(fmt::format("expected at most one {}", to_string(single)),
                     fmt::format("got {}", count));

  const json task = config.value("task", json());
  if (!task.is_object() || !task.contains("type") || !task["type"].is_string() ||
      !task.contains("index"))
    refuse_cluster("expected a \"task\" with \"type\" and \"index\" next to the cluster",
                   task.is_null() ? "there is none" : "got " + describe_json(task));
  cluster.type_ = parse_task_type(task["type"]);
  cluster.index_ = parse_index(task["index"]);
  if (!cluster.tasks_.contains(cluster.type_))
    refuse_cluster("expected a task of the cluster",
                   fmt::format("the cluster has no {}", to_string(cluster.type_)));
  if (const std::size_t count = cluster.tasks(cluster.type_).size();
      static_cast<std::size_t>(cluster.index_) >= count)
    refuse_cluster(fmt::format("expected a {} index below {}", to_string(cluster.type_), count),
                   fmt::format("got {}", cluster.index_));
  return cluster;
}

std::optional<Cluster> Cluster::from_environment() {
  const char* text = std::getenv("TF_CONFIG");
  return text == nullptr ? std::nullopt : parse(text);
}

std::string Cluster::task_name() const { return fmt::format("{}:{}", to_string(type_), index_); }

const std::vector<std::string>& Cluster::tasks(TaskType type) const {
  static const std::vector<std::string> none;
  const auto found = tasks_.find(type);
  return found == tasks_.end() ? none : found->second;
}

bool Cluster::is_chief() const {
  switch (type_) {
    case TaskType::chief:
    case TaskType::evaluator:
      return true;
    case TaskType::worker:
      return index_ == 0 && tasks(TaskType::chief).empty();
    case TaskType::ps:
      return false;
  }
  return false;
}

int Cluster::worker_count() const {
  check_trains();
  if (type_ == TaskType::evaluator) return 1;
  return static_cast<int>(tasks(TaskType::chief).size() + tasks(TaskType::worker).size());
}

int Cluster::worker_rank() const {
  check_trains();
  return type_ == TaskType::worker ? static_cast<int>(tasks(TaskType::chief).size()) + index_
                                   : index_;
}

std::vector<std::string> Cluster::worker_addresses() const {
  check_trains();
  if (type_ == TaskType::evaluator) return tasks(type_);
  std::vector<std::string> all = tasks(TaskType::chief);
  const std::vector<std::string>& workers = tasks(TaskType::worker);
  all.insert(all.end(), workers.begin(), workers.end());
  return all;
}

std::vector<std::string> Cluster::worker_names() const {
  check_trains();
  if (type_ == TaskType::evaluator) return {task_name()};
  std::vector<std::string> names;
  for (const TaskType type : {TaskType::chief, TaskType::worker})
    for (std::size_t i = 0; i < tasks(type).size(); ++i)
      names.push_back(fmt::format("{}:{}", to_string(type), i));
  return names;
}

void Cluster::check_trains() const {
  if (type_ == TaskType::ps)
    refuse_cluster(
        "expected a chief, worker or evaluator: multi-worker training has no parameter servers",
        "this task is " + task_name());
}

void Cluster::check_against_mpi(int rank, int size) const {
  if (worker_rank() == rank && worker_count() == size) return;
  refuse_cluster(
      fmt::format("expected a cluster that matches MPI, where this is rank {} of {}", rank, size),
      fmt::format("it names {}, which is rank {} of {}{}", task_name(), worker_rank(),
                  worker_count(),
                  size == 1 ? "; start all tasks with one mpirun, or use --transport tcp" : ""));
}

}  // namespace lockstep::inline v0::job
