#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/doctor/cores.h"
#include "apps/lockstep/doctor/data.h"
#include "apps/lockstep/doctor/devices.h"
#include "apps/lockstep/doctor/folders.h"
#include "apps/lockstep/doctor/host.h"
#include "apps/lockstep/doctor/network.h"
#include "apps/lockstep/doctor/replicas.h"
#include "apps/lockstep/doctor/report.h"
#include "apps/lockstep/doctor/routes.h"
#include "apps/lockstep/process_setup.h"
#include "lockstep/allreduce/watchdog/watchdog.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/terminal.h"
#include "lockstep/job/launch/start_monitor.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::apps {
namespace {

struct DoctorArguments {
  std::string data;
  std::string data_dir;
  std::string checkpoint_dir;
  std::vector<allreduce::Route> routes;  ///< empty: all that connect the ranks
  double seconds = 6;
  bool quick = false;
  bool json = false;

  double measuring_seconds() const { return quick ? 1 : seconds; }
};

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

/// Options of `lockstep doctor`.
template <>
struct Fields<apps::DoctorArguments> {
  using Options = apps::DoctorArguments;
  static constexpr std::tuple list{
      Field{&Options::data,
            {"data", "",
             "Data that every rank must be able to read, as for --data of lockstep train"},
            {},
            {.value = "SPEC"}},
      Field{
          &Options::data_dir,
          {"data_dir", "", "Directory to search for fashion-mnist before the system's directories"},
          {},
          {.value = "DIR"}},
      Field{&Options::checkpoint_dir,
            {"checkpoint_dir", "",
             "Directory that rank 0 must be able to write to; its contents are not changed"},
            {},
            {.value = "DIR"}},
      TextField<Options>{
          {"allreduce", "",
           "ROUTE[,ROUTE...] to measure: {}. Default: all routes that connect these ranks"},
          [](Options& options, std::string_view, std::span<const std::string> values) {
            options.routes = apps::parse_routes(values.back());
          },
          [](const Options&) { return std::vector<std::string>(); },
          {.value = "ROUTE[,ROUTE...]", .names = apps::describe_cpu_routes}},
      Field{&Options::seconds,
            {"seconds", "",
             "Approximate time in seconds to measure speeds and bandwidths, 1 to 30; the "
             "other checks take one or two seconds"},
            {.min = 1, .max = 30},
            {.value = "SECONDS"}},
      Field{&Options::quick, {"quick", "", "Same as --seconds 1, with less accurate figures"}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

using doctor::Level;
using doctor::Ranks;
using doctor::Report;

constexpr int kProblemStatus = 1;
constexpr double kStallSeconds = 15;  // longer than any rank's own measurement may take
constexpr const char* kLookThere = "check that host (dmesg, top), or exclude it";

constexpr job::StartCall kConnections{
    .name = "the connections of all ranks",
    .advice =
        "allow TCP connections between the hosts, and select a working interface: mpirun "
        "--mca btl_tcp_if_include IF --mca oob_tcp_if_include IF"};

/// The text of the watchdog's report without the prefix "[watchdog] " and without the advice at the
/// end.
std::string without_frame(std::string text) {
  const std::string advice = std::string("; ") + kLookThere;
  if (text.ends_with(advice)) text.resize(text.size() - advice.size());
  const std::size_t name = text.find("] ");
  return name == std::string::npos ? text : text.substr(name + 2);
}

/// One examination of all ranks.
class Examination {
 public:
  Examination(job::Session& session, const DoctorArguments& arguments)
      : arguments_(arguments), session_(session), ranks_(session), report_(ranks_.places()) {}

  /// Must be called first, by all ranks. From then on, a rank that hangs ends the examination, and
  /// the results so far are printed.
  void watch() {
    doctor::Outcome outcome{.check = "connections"};
    try {
      start_watchdog(session_.is_connected());
      outcome.summary = session_.size() == 1 ? "one rank" : "all ranks reach rank 0 over TCP";
    } catch (const Error& error) {
      start_watchdog(false);
      outcome.summary = "not all ranks reach rank 0 over TCP";
      outcome.add(
          {.level = Level::problem,
           .what = error.what(),
           .remedy =
               "allow TCP connections between the hosts on all ports: check routes and firewall"});
    }
    report_.add(std::move(outcome));
  }

  /// Runs all checks. Returns the exit status, the same on all ranks.
  int run() {
    try {
      examine();
    } catch (...) {
      show_check("");  // clears the progress line before the error is printed
      throw;
    }
    // Some results are known only to the chief.
    const bool problem =
        !ranks_.gather("report", report_.level() == Level::problem ? "problem" : "")
             .front()
             .empty();
    watchdog_.reset();
    show_check("");
    if (session_.is_chief()) print();
    return problem ? kProblemStatus : 0;
  }

 private:
  void examine() {
    if (!examine_versions()) return;
    examine_host();
    examine_folders();
    examine_network();
    examine_speed();
  }

  /// If rank 0 cannot watch the other ranks, each rank watches itself. The other ranks then wait
  /// longer, so that rank 0, which has the table, prints first.
  void start_watchdog(bool between_ranks) {
    constexpr double kForRankZero = 3;
    const std::vector<const allreduce::Activity*> replicas = {&ranks_.activity()};
    allreduce::WatchdogOptions options{
        .stall_timeout = kStallSeconds,
        .advice = kLookThere,
        .on_failure = [this](const allreduce::WatchdogReport& found) { abort_examination(found); }};
    if (!between_ranks && !session_.is_chief()) options.stall_timeout += kForRankZero;
    watchdog_ = between_ranks
                    ? std::make_unique<allreduce::Watchdog>(session_.ranks(), replicas, options)
                    : std::make_unique<allreduce::Watchdog>(replicas, options);
    ranks_.activity().set_phase(allreduce::Phase::compute);
  }

  [[noreturn]] void abort_examination(const allreduce::WatchdogReport& found) {
    const std::string check = now_.load();
    show_check("");
    if (found.prints && session_.is_chief()) {
      report_.add({.check = "progress",
                   .summary = fmt::format("the checks after {} did not run", check),
                   .findings = {{.level = Level::problem,
                                 .what = without_frame(found.text),
                                 .remedy = kLookThere}}});
      print();
    } else if (found.prints) {
      fmt::print(stderr,
                 "lockstep: error: [doctor] expected all ranks to respond; rank {}, host {}, is "
                 "waiting in {}: {}\n",
                 session_.rank(), ranks_.mine().host, check, printable(without_frame(found.text)));
    }
    std::fflush(nullptr);
    ::_exit(exit_status(ErrorCategory::communication));
  }

  /// Returns whether all ranks run the same version, so that the other checks can communicate.
  bool examine_versions() {
    show_check("versions");
    const auto versions = ranks_.measure<doctor::VersionFacts>(
        "versions", [] { return doctor::version_facts(program_versions()); });
    report_.add(doctor::judge_versions(versions));
    return doctor::is_one_program(versions);
  }

  void examine_host() {
    show_check("devices");
    const auto devices = ranks_.measure<doctor::DeviceFacts>("devices", doctor::measure_devices);
    report_.add(doctor::judge_devices(devices));
    has_gpus_ = !doctor::nodes_with_gpus(devices).empty();
    show_check("shared-memory");
    const auto memory = doctor::measure_memory(ranks_);
    const bool wanted = std::ranges::any_of(arguments_.routes, [](allreduce::Route route) {
      const allreduce::RouteInfo& info = allreduce::info_of(route);
      return info.ranks && info.medium != allreduce::Medium::messages;
    });
    report_.add(doctor::judge_shared_memory(memory, wanted, doctor::nodes_with_gpus(devices)));
    report_.add(doctor::judge_memory(memory));
    show_check("cores");
    const auto limits = ranks_.measure<doctor::LimitFacts>("open-files", doctor::measure_limits);
    report_.add(doctor::judge_open_files(limits));
    report_.add(doctor::judge_locked_memory(limits));
    report_.add(
        doctor::judge_cores(ranks_.measure<doctor::CoreFacts>("cores", doctor::measure_cores)));
  }

  void examine_folders() {
    show_check("data");
    doctor::Reports<doctor::DataFacts> data;
    if (!arguments_.data.empty())
      data = doctor::measure_data(ranks_, arguments_.data, arguments_.data_dir);
    report_.add(doctor::judge_data(data, arguments_.data));
    show_check("checkpoints");
    doctor::Reports<doctor::FolderFacts> folder;
    if (!arguments_.checkpoint_dir.empty())
      folder = doctor::measure_checkpoint_folder(ranks_, arguments_.checkpoint_dir);
    report_.add(doctor::judge_checkpoint_folder(folder, arguments_.checkpoint_dir));
    show_check("temporary-files");
    report_.add(doctor::judge_temporary_folder(doctor::measure_temporary_folder(ranks_)));
  }

  void examine_network() {
    show_check("network");
    network_ = doctor::measure_network(ranks_);
    report_.add(doctor::judge_network(network_));
    report_.add(doctor::judge_ports(network_));
    show_check("clocks");
    report_.add(doctor::judge_clocks(doctor::measure_clocks(ranks_)));
  }

  void examine_speed() {
    const double seconds = arguments_.measuring_seconds();
    show_check("matrix-product");
    const auto speed = doctor::measure_speed(ranks_, 0.2 * seconds);
    report_.add(doctor::judge_product(speed));
    report_.add(doctor::judge_copy(speed));
    show_check("replicas");
    report_.add(has_gpus_
                    ? doctor::Outcome{.check = "replicas",
                                      .summary = "they compute on GPUs",
                                      .skipped = true}
                    : doctor::judge_replicas(doctor::measure_replicas(ranks_, 0.15 * seconds)));
    show_check("links");
    const auto links = doctor::measure_links(ranks_, 0.1 * seconds);
    report_.add(doctor::judge_links(links, network_));
    show_check("routes");
    const auto readings = doctor::measure_routes(ranks_, arguments_.routes, 0.55 * seconds);
    const double wire = session_.nodes() > 1 ? doctor::slowest_link(links) : 0;
    report_.add(doctor::judge_routes(
        readings, {.copied_gigabytes = doctor::slowest_copy(speed), .wire_gigabytes = wire}));
  }

  /// Shows the current check on a terminal.
  void show_check(const char* check) {
    now_ = check;
    if (!session_.is_chief() || !is_watched(STDERR_FILENO)) return;
    fmt::print(stderr, "\r{}{}\x1b[K", *check == '\0' ? "" : "checking ", check);
  }

  void print() const {
    if (arguments_.json)
      fmt::print("{}\n", dump_json(report_.json(session_.seconds())));
    else
      fmt::print("{}", report_.table(session_.seconds()));
    std::fflush(stdout);
  }

  const DoctorArguments& arguments_;
  job::Session& session_;
  Ranks ranks_;
  Report report_;
  doctor::Reports<doctor::NetworkFacts> network_;
  bool has_gpus_ = false;  // on some host
  std::atomic<const char*> now_ = "";
  std::unique_ptr<allreduce::Watchdog> watchdog_;  // last: its thread uses the other members
};

int examine(const Invocation& invocation, const DoctorArguments& arguments) {
  const job::SessionOptions options{.quiet = true, .stall_timeout = 0, .start_timeout = 25};
  return run_session(invocation, options, [&](job::Session& session) {
    Examination examination(session, arguments);
    // The watchdog tries all addresses of rank 0, and waits some seconds for each one that does not
    // answer.
    invocation.start->watch(50);
    invocation.start->enter(kConnections);
    examination.watch();
    invocation.start->leave();
    return examination.run();
  });
}

}  // namespace

void add_doctor_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand("doctor",
                                             "Check this machine, or all ranks under mpirun, "
                                             "before a run: report problems and how to fix them");
  command->footer(
      "Exit status: 0 nothing is wrong (there may be warnings), 1 there is a problem, 2 the "
      "command line is wrong, 4 ranks did not connect or stopped responding.");
  const auto arguments = std::make_shared<DoctorArguments>();
  add_fields(*command, fields_of(*arguments));
  command->get_option("--quick")->excludes("--seconds");
  add_json_option(*command, arguments->json, "Print only one JSON object on standard output");
  command->callback([=, &status] { status = examine(invocation, *arguments); });
}

}  // namespace lockstep::inline v0::apps
