// A small training that goes wrong on one rank as it is told to: what the fault tests start under
// mpirun.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>

#include "lockstep/data/open_data.h"
#include "lockstep/job/delayed_termination.h"
#include "lockstep/strategy/callbacks/stragglers.h"
#include "tests/faults/faults.h"
#include "tests/faults/wrapped_loop.h"

namespace lockstep::faults {
namespace {

struct Arguments {
  Fault fault;
  std::string job;
  std::string route = "auto";
  std::string data;
  double stall_timeout = 120;
  std::int64_t steps = 20;
  std::int64_t units = 32;
  std::int64_t bucket_bytes = 1024;
  std::int64_t check_replicas = 1000;
  std::int64_t log_every = 0;
  std::int64_t pause = 0;
  double rest = 0;
  int prefetch = 2;
  std::size_t replicas = 1;
  bool wrapped = false;
  bool unguarded = false;
  bool again = false;
  bool replaces = false;
};

constexpr std::int64_t kPart = 4;  // records of a step and replica
constexpr std::int64_t kClasses = 4;
constexpr std::int64_t kSpokenSteps = 20;

int parse(int argc, char** argv, Arguments& arguments) {
  CLI::App program("A small training that goes wrong on one rank", "faulty_training");
  std::string faults = "What happens:";
  std::vector<std::string> names;
  for (const auto& [name, meaning] : kinds()) {
    names.push_back(name);
    faults += fmt::format("\n  {}: {}", name, meaning);
  }
  program.add_option("--fault", arguments.fault.kind, faults)->check(CLI::IsMember(names));
  program.add_option("--rank", arguments.fault.rank, "Where it happens");
  program.add_option("--step", arguments.fault.step, "When it happens: steps done before");
  program.add_option("--job", arguments.job,
                     "A name by which all processes of the job can be told");
  program.add_option("--data", arguments.data,
                     "A data set that is opened, and not used, before the replicas are set up");
  program.add_option("--allreduce", arguments.route, "As that of lockstep train");
  program.add_option("--stall-timeout", arguments.stall_timeout, "As that of lockstep train");
  program.add_option("--check-replicas", arguments.check_replicas, "As that of lockstep train");
  program.add_option("--steps", arguments.steps, "Of the training");
  program.add_option("--units", arguments.units, "Of each hidden layer");
  program.add_option("--bucket-bytes", arguments.bucket_bytes, "Of a gradient bucket");
  program.add_option("--log-every", arguments.log_every,
                     "Steps between looks for stragglers; 0 for none");
  program.add_option("--prefetch", arguments.prefetch, "As that of lockstep train");
  program.add_option("--pause", arguments.pause, "Milliseconds before each step");
  program.add_option("--replicas", arguments.replicas, "Of each rank");
  program.add_flag("--wrapped", arguments.wrapped,
                   "A loop of its own with a DistributedOptimizer, in place of a Trainer");
  program.add_flag("--again", arguments.again,
                   "Begins with a training that fails on all ranks, and catches its error");
  program.add_option("--rest", arguments.rest, "Seconds between the trainings of --again");
  program.add_flag("--replaces", arguments.replaces,
                   "Trains with a strategy that has taken the place of another one");
  program.add_flag("--unguarded", arguments.unguarded, "Lets exceptions leave main");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? -1 : 2;
  }
  return 0;
}

Network make_network(const Arguments& arguments, const std::shared_ptr<const Mischief>& mischief) {
  Network network({16}, "faulty");
  network.add(Dense({.units = arguments.units}));
  network.add(ReLU());
  network.add(Dense({.units = mischief->is("layout") ? arguments.units + 1 : arguments.units}));
  network.add(FaultyLayer(mischief));
  network.add(ReLU());
  network.add(Dense({.units = arguments.units}));
  network.add(ReLU());
  network.add(Dense({.units = kClasses}));
  return network;
}

/// Strikes at its step, and says where the training is.
class Steps final : public Callback {
 public:
  Steps(std::shared_ptr<const Mischief> mischief, Trainer& trainer, std::chrono::milliseconds pause,
        bool speaks)
      : mischief_(std::move(mischief)), trainer_(trainer), pause_(pause), speaks_(speaks) {}

  void on_batch_begin(std::int64_t step) override {
    std::this_thread::sleep_for(pause_);
    mischief_->strike_before(step, trainer_);
  }
  void on_batch_end(const strategy::StepLogs& logs) override {
    if (mischief_->is("stops-and-sleeps", logs.step)) {
      mischief_->wait_for_sleeping_reader();
      request_stop();
    }
    if (speaks_ && logs.step <= kSpokenSteps) say(fmt::format("step {} done\n", logs.step));
  }
  void on_epoch_end(const strategy::EpochLogs& logs) override {
    if (speaks_ && logs.verdict) say(fmt::format("verdict: {}\n", logs.verdict->text));
  }
  void on_train_end(const strategy::TrainEnd& end) override {
    if (speaks_) say(fmt::format("trained {} steps\n", end.steps));
  }
  bool may_stop_at_batches() const override { return mischief_->is("stops-and-sleeps"); }

 private:
  static void say(const std::string& line) {
    fmt::print("{}", line);
    std::fflush(stdout);
  }

  std::shared_ptr<const Mischief> mischief_;
  Trainer& trainer_;
  std::chrono::milliseconds pause_;
  bool speaks_;
};

int train(Session& session, const Arguments& arguments) {
  fmt::print("rank {} is process {}\n", session.rank(), getpid());
  std::fflush(stdout);
  if (arguments.wrapped)
    return run(session, {.fault = arguments.fault,
                         .workers = {.route = allreduce::parse_route(arguments.route),
                                     .stall_timeout = arguments.stall_timeout},
                         .steps = arguments.steps,
                         .pause = std::chrono::milliseconds(arguments.pause)});
  if (!arguments.data.empty()) static_cast<void>(data::open_data(arguments.data));
  if (arguments.fault.kind == "throws-before-the-replicas" &&
      session.rank() == arguments.fault.rank)
    throw std::runtime_error("a file cannot be read");
  const std::vector<device::Device> devices(arguments.replicas);
  const strategy::StrategyOptions options = {.route = allreduce::parse_route(arguments.route),
                                             .stall_timeout = arguments.stall_timeout};
  std::optional<MultiWorkerMirroredStrategy> replaced;
  if (arguments.replaces) replaced.emplace(session, devices, options);
  MultiWorkerMirroredStrategy strategy(session, devices, options);
  replaced.reset();
  const std::int64_t last_replica = strategy.first_replica() + strategy.local_replicas() - 1;
  const auto mischief =
      std::make_shared<const Mischief>(arguments.fault, session.rank(), kPart * last_replica);
  if (mischief->is("leaves-before-training")) return 0;
  if (mischief->is("throws-before-training")) throw std::runtime_error("a file cannot be read");
  const std::int64_t batch = kPart * strategy.num_replicas_in_sync();
  const Dataset records = Dataset::synthetic({16}, kClasses, batch * arguments.steps).batch(batch);
  const auto bytes = static_cast<std::size_t>(arguments.bucket_bytes);
  Trainer trainer(strategy, make_network(arguments, mischief),
                  {.buckets = {.first_bytes = bytes, .bytes = bytes}});
  strategy::FitOptions fit{.epochs = 1,
                           .progress = false,
                           .read = {.prefetch = arguments.prefetch},
                           .check_replicas = arguments.check_replicas};
  fit.signals = {SIGTERM, SIGINT};
  fit.callbacks.push_back(std::make_shared<Steps>(
      mischief, trainer, std::chrono::milliseconds(arguments.pause), session.is_chief()));
  if (arguments.log_every > 0 && session.is_chief())
    fit.callbacks.push_back(std::make_shared<strategy::Stragglers>(strategy, arguments.log_every));
  const strategy::History history = trainer.fit(
      with_faulty_reading(records, mischief, kPart * strategy.local_replicas(), batch), fit);
  session.barrier();  // everyone has said what it has to say
  if (mischief->is("leaves-after-training")) _exit(0);
  return history.end.signal == 0 ? 0 : 128 + history.end.signal;
}

/// A training that fails on all ranks.
void train_and_fail(Session& session, Arguments arguments) {
  arguments.fault = {.kind = "throws", .rank = session.rank()};
  try {
    train(session, arguments);
  } catch (const std::runtime_error& error) {
    fmt::print("caught: {}\n", error.what());
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(arguments.rest));
}

int begin(Session& session, const Arguments& arguments) {
  if (arguments.again) train_and_fail(session, arguments);
  return train(session, arguments);
}

}  // namespace
}  // namespace lockstep::faults

int main(int argc, char** argv) {
  lockstep::faults::Arguments arguments;
  if (const int status = lockstep::faults::parse(argc, argv, arguments); status != 0)
    return status < 0 ? 0 : status;
  std::optional<lockstep::Session> session;
  try {
    session.emplace(argc, argv,
                    lockstep::job::SessionOptions{.stall_timeout = arguments.stall_timeout,
                                                  .start_timeout = 60});
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lockstep: error: {}\n", error.what());
    return lockstep::exit_status(error.category());
  }
  const lockstep::job::DelayedTermination late(*session);
  const auto body = [&] { return lockstep::faults::begin(*session, arguments); };
  return arguments.unguarded ? body() : session->guard(body);
}
