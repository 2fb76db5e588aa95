// The commands of the program `lockstep`.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::inline v0::job {
class Session;
struct SessionOptions;
class StartMonitor;
}  // namespace lockstep::inline v0::job

namespace lockstep::inline v0::apps {

class StandardStreams;

/// The arguments of main(), the standard streams, and the monitor of the start.
struct Invocation {
  int argc = 0;
  char** argv = nullptr;  ///< passed to MPI
  StandardStreams* streams = nullptr;
  std::shared_ptr<job::StartMonitor> start = {};
};

/// Runs `work` in a session on every rank and returns the exit status. SIGTERM is delayed
/// (job::DelayedTermination), and SIGUSR1 writes the flight recorder's events
/// (job::SignalRecording).
int run_session(const Invocation& invocation, const job::SessionOptions& options,
                const std::function<int(job::Session&)>& work);

// Each function adds a command to `program`; the command runs as a callback of its parser. `status`
// is set to the exit status of the program. A command without `status` throws Error if it fails.

void add_train_command(CLI::App& program, const Invocation& invocation, int& status);
void add_evaluate_command(CLI::App& program, const Invocation& invocation, int& status);
void add_predict_command(CLI::App& program, const Invocation& invocation, int& status);
void add_quantize_command(CLI::App& program, const Invocation& invocation, int& status);
void add_generate_command(CLI::App& program, const Invocation& invocation, int& status);
/// `lockstep data convert | index | inspect | verify | benchmark`.
void add_data_commands(CLI::App& program);
/// `lockstep checkpoint inspect | verify | export`, which write to `out`.
void add_checkpoint_command(CLI::App& program, std::ostream& out);
/// `lockstep inspect`, which writes to `out`.
void add_inspect_command(CLI::App& program, std::ostream& out);
void add_allreduce_bench_command(CLI::App& program, const Invocation& invocation, int& status);
/// `status` is 0 without problems, 1 with problems, 4 if ranks did not connect or stopped
/// responding.
void add_doctor_command(CLI::App& program, const Invocation& invocation, int& status);
/// `lockstep launch -- COMMAND…`: runs a command as one MPI job from processes that were started
/// without MPI.
void add_launch_command(CLI::App& program, const Invocation& invocation, int& status);
/// `lockstep plan`: predicts a training on many replicas from a measurement on one machine.
void add_plan_command(CLI::App& program, const Invocation& invocation, int& status);
/// `lockstep report`: writes an HTML report on trainings from their JSON events.
void add_report_command(CLI::App& program);
void add_version_command(CLI::App& program);

inline constexpr const char* kLaunchCommand = "launch";

/// The arguments of `lockstep launch` up to `--`, without the command to start, which has its own
/// options. Arguments of other commands are returned unchanged. Throws Error (input) if there is no
/// command to start.
std::vector<std::string> without_launched_command(std::vector<std::string> arguments);

/// The output of `lockstep --version`, such as "lockstep 0.1.0".
std::string version_line();

/// The output of `lockstep version --json`: the program's version, compiler, build and processor,
/// the number of cores, and for each library an object with the versions `built` and `loaded`. May
/// be called before MPI_Init.
nlohmann::ordered_json program_versions();

}  // namespace lockstep::inline v0::apps
