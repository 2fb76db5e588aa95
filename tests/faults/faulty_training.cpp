// A small training with a fault on one rank. The fault tests start it under mpirun.
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
#include "lockstep/job/signal/delayed_termination.h"
#include "lockstep/train/callbacks/stragglers.h"
#include "tests/faults/faults.h"
#include "tests/faults/wrapped_loop.h"

namespace lockstep::inline v0::faults {
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
  bool grouped = false;
  bool unguarded = false;
  bool again = false;
  bool replaces = false;
};

constexpr std::int64_t kPart = 4;  // records per step and replica
constexpr std::int64_t kClasses = 4;
constexpr std::int64_t kPrintedSteps = 20;

int parse(int argc, char** argv, Arguments& arguments) {
  CLI::App program("A small training with a fault on one rank", "faulty_training");
  std::string faults = "The fault:";
  std::vector<std::string> names;
  for (const auto& [name, meaning] : kinds()) {
    names.push_back(name);
    faults += fmt::format("\n  {}: {}", name, meaning);
  }
  program.add_option("--fault", arguments.fault.kind, faults)->check(CLI::IsMember(names));
  program.add_option("--rank", arguments.fault.rank, "Rank of the fault");
  program.add_option("--step", arguments.fault.step, "Number of steps before the fault");
  program.add_option("--job", arguments.job, "A name that identifies all processes of the job");
  program.add_option("--data", arguments.data,
                     "A data set to open before the setup of the replicas; not used");
  program.add_option("--allreduce", arguments.route, "Like lockstep train");
  program.add_option("--stall-timeout", arguments.stall_timeout, "Like lockstep train");
  program.add_option("--check-replicas", arguments.check_replicas, "Like lockstep train");
  program.add_option("--steps", arguments.steps, "Steps of the training");
  program.add_option("--units", arguments.units, "Units of each hidden layer");
  program.add_option("--bucket-bytes", arguments.bucket_bytes, "Size of a gradient bucket");
  program.add_option("--log-every", arguments.log_every,
                     "Steps between checks for stragglers; 0: none");
  program.add_option("--prefetch", arguments.prefetch, "Like lockstep train");
  program.add_option("--pause", arguments.pause, "Milliseconds before each step");
  program.add_option("--replicas", arguments.replicas, "Replicas of each rank");
  program.add_flag("--wrapped", arguments.wrapped,
                   "A custom loop with a DistributedOptimizer instead of a Trainer");
  program.add_flag("--again", arguments.again,
                   "First runs a training that fails on all ranks, and catches its error");
  program.add_option("--rest", arguments.rest, "Seconds between the trainings of --again");
  program.add_flag("--replaces", arguments.replaces,
                   "Trains with a strategy that replaces another one");
  program.add_flag("--grouped", arguments.grouped, "With --wrapped: over a group of ranks");
  program.add_flag("--unguarded", arguments.unguarded, "Lets exceptions leave main");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? -1 : 2;
  }
  return 0;
}

Network make_network(const Arguments& arguments,
                     const std::shared_ptr<const FaultInjector>& injector) {
  Network network({16}, "faulty");
  network.add(Dense({.units = arguments.units}));
  network.add(ReLU());
  network.add(Dense({.units = injector->is("layout") ? arguments.units + 1 : arguments.units}));
  network.add(FaultyLayer(injector));
  network.add(ReLU());
  network.add(Dense({.units = arguments.units}));
  network.add(ReLU());
  network.add(Dense({.units = kClasses}));
  return network;
}

/// Injects the fault at its step, and prints the progress of the training.
class Steps final : public Callback {
 public:
  Steps(std::shared_ptr<const FaultInjector> injector, Trainer& trainer,
        std::chrono::milliseconds pause, bool prints)
      : injector_(std::move(injector)), trainer_(trainer), pause_(pause), prints_(prints) {}

  void on_batch_begin(std::int64_t step) override {
    std::this_thread::sleep_for(pause_);
    injector_->inject_before_step(step, trainer_);
  }
  void on_batch_end(const train::StepLogs& logs) override {
    if (injector_->is("stops-and-sleeps", logs.step)) {
      injector_->wait_for_sleeping_reader();
      request_stop();
    }
    if (prints_ && logs.step <= kPrintedSteps) print_line(fmt::format("step {} done\n", logs.step));
  }
  void on_epoch_end(const train::EpochLogs& logs) override {
    if (prints_ && logs.verdict) print_line(fmt::format("verdict: {}\n", logs.verdict->text));
  }
  void on_train_end(const train::TrainEnd& end) override {
    if (prints_) print_line(fmt::format("trained {} steps\n", end.steps));
  }
  bool may_stop_at_batches() const override { return injector_->is("stops-and-sleeps"); }

 private:
  static void print_line(const std::string& line) {
    fmt::print("{}", line);
    std::fflush(stdout);
  }

  std::shared_ptr<const FaultInjector> injector_;
  Trainer& trainer_;
  std::chrono::milliseconds pause_;
  bool prints_;
};

int train(Session& session, const Arguments& arguments) {
  fmt::print("rank {} is process {}\n", session.rank(), getpid());
  std::fflush(stdout);
  if (arguments.wrapped)
    return run(session, {.fault = arguments.fault,
                         .workers = {.route = allreduce::parse_route(arguments.route),
                                     .stall_timeout = arguments.stall_timeout},
                         .steps = arguments.steps,
                         .pause = std::chrono::milliseconds(arguments.pause),
                         .in_group = arguments.grouped});
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
  const auto injector =
      std::make_shared<const FaultInjector>(arguments.fault, session.rank(), kPart * last_replica);
  if (injector->is("leaves-before-training")) return 0;
  if (injector->is("throws-before-training")) throw std::runtime_error("a file cannot be read");
  const std::int64_t batch = kPart * strategy.num_replicas_in_sync();
  const Dataset records = Dataset::synthetic({16}, kClasses, batch * arguments.steps).batch(batch);
  const auto bytes = static_cast<std::size_t>(arguments.bucket_bytes);
  Trainer trainer(strategy, make_network(arguments, injector),
                  {.buckets = {.first_bytes = bytes, .bytes = bytes}});
  train::FitOptions fit{.epochs = 1,
                        .progress = false,
                        .read = {.prefetch = arguments.prefetch},
                        .check_replicas = arguments.check_replicas};
  fit.signals = {SIGTERM, SIGINT};
  fit.callbacks.push_back(std::make_shared<Steps>(
      injector, trainer, std::chrono::milliseconds(arguments.pause), session.is_chief()));
  if (arguments.log_every > 0 && session.is_chief())
    fit.callbacks.push_back(std::make_shared<train::Stragglers>(strategy, arguments.log_every));
  const train::History history = trainer.fit(
      with_faulty_reading(records, injector, kPart * strategy.local_replicas(), batch), fit);
  session.barrier();  // all output is written
  if (injector->is("leaves-after-training")) _exit(0);
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
}  // namespace lockstep::inline v0::faults

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
