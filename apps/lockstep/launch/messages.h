// Messages between the tasks of a launch: their kinds, their contents as JSON, and the validation
// of what other processes send. The functions that parse throw Error (communication) `[launch]
// expected …, got …`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/job/launch/task.h"
#include "lockstep/net/connection.h"

namespace lockstep::inline v0::apps::launch {

enum class FrameKind : std::uint8_t {
  arrive = 'A',   ///< to the first task: request to join (JoinRequest)
  welcome = 'W',  ///< reply: accepted
  refuse = 'R',   ///< reply: exit with a status and a message
  probe = 'P',    ///< to a host: try to reach these hosts (Target)
  probed = 'Q',   ///< reply: the hosts that it cannot reach
  call = 'C',     ///< from an agent of mpirun: start the daemon of a host
  run = 'X',      ///< to a host: start its daemon (daemon.h)
  output = 'O',   ///< reply: the daemon's standard output
  errors = 'E',   ///< reply: the daemon's standard error
  started = 'T',  ///< reply: MPI ranks have been seen on the host
  ended = 'Z',    ///< reply: the daemon's exit status
  signal = 'S',   ///< to the first task: a signal that another task received
  leave = 'L',    ///< to all: the job has ended, with this exit status
};

/// A body may contain the addresses of ten thousand hosts; the queue, the unread output of a host.
inline constexpr net::FrameLimits kFrameLimits{
    .kinds = "AWRPQCXOETZSL", .body = std::size_t{4} << 20, .queued = std::size_t{256} << 20};

/// Parses the JSON document of a frame: at most `values` values, at most three levels deep.
nlohmann::json parse_fields(std::string_view text, std::size_t values);

/// The field of an object, or the element of an array.
const nlohmann::json& field(const nlohmann::json& object, const char* name);
const nlohmann::json& element(const nlohmann::json& array, std::size_t index);
const nlohmann::json& require_array(const nlohmann::json& value, std::size_t most);

int integer_of(const nlohmann::json& value, int least, int most);
/// String of at most `most` bytes, without control characters.
std::string line_of(const nlohmann::json& value, std::size_t most);
/// String of at most `most` bytes.
std::string text_of(const nlohmann::json& value, std::size_t most);
/// Numbers of processors.
std::vector<int> processors_of(const nlohmann::json& value);

/// A whole decimal number, without sign.
int parse_integer(std::string_view text, int least, int most);

/// Whether mpirun accepts `name` as a single host name: letters, digits, dots, dashes and
/// underscores.
bool is_host_name(std::string_view name);
bool is_interface_name(std::string_view name);
/// Whether `list` has the syntax of CUDA_VISIBLE_DEVICES: numbers and names such as GPU-8932f937,
/// separated by commas.
bool is_gpu_list(std::string_view list);
/// A numeric IPv4 or IPv6 address, optionally with an interface ("fe80::1%eth0").
bool is_address(std::string_view address);
/// Whether every character is an ASCII letter or digit, or one of `more`.
bool consists_of(std::string_view text, std::string_view more);

[[noreturn]] void refuse(std::string_view expected, std::string_view got);

/// The description of itself that a task sends to the rendezvous.
struct JoinRequest {
  std::string job = {};  ///< name of its job
  int rank = 0;
  int ranks = 1;           ///< number of ranks of the job, according to this task
  int local_ranks = 0;     ///< number of ranks on its host, according to this task; 0: unknown
  std::string host = {};   ///< name of its host
  std::string place = {};  ///< identifies the host: equal only for tasks that share it
  std::vector<int> processors = {};  ///< processors that it may run on
  std::string gpus = {};             ///< CUDA_VISIBLE_DEVICES
  std::string interface = {};        ///< its interface to the first task
  std::string towards = {};          ///< the first task's interface to it; set by the first task
  std::vector<std::string> addresses = {};  ///< addresses of its host
  std::uint16_t port = 0;  ///< port at which other hosts test whether they can reach this one

  bool operator==(const JoinRequest&) const = default;
};

std::string to_text(const JoinRequest& join_request);
JoinRequest parse_join_request(const std::string& text);

/// Describes this process. `host`: name of its host; empty: the system's host name. Throws Error
/// (input) if mpirun would not accept the name.
JoinRequest describe_this_task(const job::Task& task, const std::string& job,
                               const std::string& host);

/// Another host, with a port at which it accepts connections.
struct Target {
  std::string host = {};
  std::vector<std::string> addresses = {};  ///< numeric; a single one that answers is sufficient
  std::uint16_t port = 0;

  bool operator==(const Target&) const = default;
};

std::string to_text(const std::vector<Target>& targets);
std::vector<Target> parse_targets(const std::string& text);

/// How a task is to exit.
struct Ending {
  int status = 0;
  std::string message = {};  ///< error message; empty if none, or if another task prints it

  bool operator==(const Ending&) const = default;
};

std::string to_text(const Ending& ending);
Ending parse_ending(const std::string& text);

}  // namespace lockstep::inline v0::apps::launch
