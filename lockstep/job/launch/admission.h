// Who belongs to a job whose processes connect themselves: what each says of itself, and rank 0's
// decision. Without connections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::inline v0::job {

/// What a process says of itself when it joins a job.
struct JoinRequest {
  std::string version = {};  ///< Lockstep's
  std::string job = {};      ///< the name of its job; may be empty
  int rank = 0;
  int size = 1;                             ///< ranks of its job
  std::string host = {};                    ///< the name of its host
  std::string node = {};                    ///< equal for processes that share memory and a network
  std::vector<std::string> addresses = {};  ///< numeric; where it listens, the best first
  std::uint16_t port = 0;

  bool operator==(const JoinRequest&) const = default;
};

/// The members of a job, by rank.
struct JobTable {
  std::uint64_t job = 0;  ///< a number that no other job has
  std::vector<JoinRequest> members;
};

// As text between processes. The functions that parse throw Error (communication) for a text that
// the others do not write.
std::string to_text(const JoinRequest& request);
JoinRequest parse_join_request(const std::string& text);
std::string to_text(const JobTable& table);
JobTable parse_job_table(const std::string& text);

/// Identifies this process's host by its boot and namespaces. A name is not sufficient: two
/// containers of one machine, or two hosts, may have the same name but share neither memory,
/// process ids nor a network.
std::string node_of_this_process();

/// This process; `addresses` and `port` are left to the caller.
JoinRequest describe_this_process(const std::string& job, int rank, int size);

/// Admits the processes of a job.
class Admission {
 public:
  /// For the job of rank 0, which is admitted.
  explicit Admission(const JoinRequest& mine);

  /// Admits a process. Returns why it cannot be: "expected …, got …"; empty if it is.
  std::string admit(const JoinRequest& request);
  /// The process of `rank` has ended before all had joined.
  void leave(int rank) { members_[static_cast<std::size_t>(rank)].reset(); }
  bool is_complete() const;
  /// "rank 1", "ranks 1, 3 and 7 more": those that have not joined.
  std::string missing() const;
  /// The table of all, when complete.
  JobTable table() const;

 private:
  std::vector<std::optional<JoinRequest>> members_;
};

}  // namespace lockstep::inline v0::job
