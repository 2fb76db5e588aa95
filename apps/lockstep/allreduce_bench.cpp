#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/process_setup.h"
#include "apps/lockstep/reduction_timing.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/terminal.h"
#include "lockstep/base/text.h"
#include "lockstep/device/device_list.h"
#include "lockstep/job/session.h"

namespace lockstep::apps {
namespace {

constexpr std::size_t kRouteWidth = 26;  // as wide as "in-process + shared-memory"

struct BenchArguments {
  ReductionPlan plan;
  std::size_t min_bytes = 1024;
  std::size_t max_bytes = std::size_t{64} << 20;
  int factor = 4;
  bool json = false;
  std::string devices = "auto";
};

/// The sizes to measure. Throws Error (input) if there are none.
std::vector<std::size_t> sizes(const BenchArguments& arguments) {
  require_at_least("--min-bytes", static_cast<std::int64_t>(arguments.min_bytes), 1);
  if (arguments.max_bytes < arguments.min_bytes)
    throw Error(
        ErrorCategory::input, "command line",
        fmt::format("expected --max-bytes to be at least --min-bytes, {}", arguments.min_bytes),
        fmt::format("got {}", arguments.max_bytes));
  if (arguments.max_bytes > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw Error(
        ErrorCategory::input, "command line",
        fmt::format("expected --max-bytes to be at most {}", std::numeric_limits<int>::max()),
        fmt::format("got {}", arguments.max_bytes));
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = arguments.min_bytes; bytes <= arguments.max_bytes;
       bytes *= static_cast<std::size_t>(arguments.factor))
    sizes.push_back(bytes);
  return sizes;
}

/// Size of the group, for the table header and for every line of JSON.
struct Group {
  int replicas = 0;
  int ranks = 0;
  int nodes = 0;
};

/// Bandwidth in GB/s (10^9 bytes): buffer size divided by time, and the minimum traffic of each
/// replica's link.
double algorithm_bandwidth(const ReductionTiming& timing) {
  constexpr double kBytesPerMicrosecond = 1e3;
  return static_cast<double>(timing.bytes) / timing.microseconds / kBytesPerMicrosecond;
}
double bus_bandwidth(const ReductionTiming& timing, int replicas) {
  return algorithm_bandwidth(timing) * 2 * (replicas - 1) / replicas;
}

std::string name_of(const ReductionTiming& timing) {
  const std::string asked = to_string(timing.route);
  const std::string both = fmt::format("{}: {}", asked, timing.carrier);
  return asked == timing.carrier || both.size() > kRouteWidth ? timing.carrier : both;
}

void print_head(const Group& group, const std::string& dtype) {
  fmt::print("all-reduce of {}, sum, in place: {} on {}, {}\n", dtype,
             counted(group.replicas, "replica"), counted(group.ranks, "rank"),
             counted(group.nodes, "node"));
  fmt::print("{:>10}  {:<{}}  {:>12}  {:>8}  {:>8}  {:>6}\n", "bytes", "route", kRouteWidth,
             "microseconds", "GB/s", "bus GB/s", "errors");
}

void print_row(const ReductionTiming& timing, const Group& group) {
  fmt::print("{:>10}  {:<{}}  {:>12.2f}  {:>8.3f}  {:>8.3f}  {:>6}\n", timing.bytes,
             name_of(timing), kRouteWidth, timing.microseconds, algorithm_bandwidth(timing),
             bus_bandwidth(timing, group.replicas),
             timing.errors ? std::to_string(*timing.errors) : "-");
}

void print_json(const ReductionTiming& timing, const Group& group, const std::string& dtype) {
  nlohmann::ordered_json row = {{"bytes", timing.bytes},
                                {"route", to_string(timing.route)},
                                {"carrier", timing.carrier},
                                {"dtype", dtype},
                                {"microseconds", timing.microseconds},
                                {"best_microseconds", timing.best_microseconds},
                                {"algorithm_gb_per_second", algorithm_bandwidth(timing)},
                                {"bus_gb_per_second", bus_bandwidth(timing, group.replicas)},
                                {"iterations", timing.iterations},
                                {"calls_per_iteration", timing.calls},
                                {"world_size", group.replicas},
                                {"ranks", group.ranks},
                                {"nodes", group.nodes}};
  if (timing.errors) row["errors"] = *timing.errors;
  fmt::print("{}\n", row.dump());
}

/// Prints progress and results on the chief.
ReductionListener make_listener(const BenchArguments& arguments, const Group& group) {
  const bool watched = is_watched(STDERR_FILENO);
  ReductionListener listener;
  listener.size_begins = [watched](std::size_t bytes) {
    if (watched) fmt::print(stderr, "\rmeasuring {} bytes\x1b[K", bytes);
  };
  listener.timed = [=, json = arguments.json,
                    dtype = arguments.plan.dtype](const ReductionTiming& timing) {
    if (watched) fmt::print(stderr, "\r\x1b[K");
    if (json)
      print_json(timing, group, dtype);
    else
      print_row(timing, group);
    std::fflush(stdout);
  };
  return listener;
}

int count_replicas(const std::string& list) {
  if (list == "auto") return 1;
  const std::vector<device::Device> devices = device::parse_devices(list);
  const auto gpu = std::ranges::find(devices, device::DeviceKind::gpu, &device::Device::kind);
  if (gpu != devices.end())
    throw Error(ErrorCategory::device, "devices",
                "expected cpu:0, once for each replica (only CPU routes are timed)",
                fmt::format("got {}", to_string(*gpu)));
  return static_cast<int>(devices.size());
}

int allreduce_bench(job::Session& session, const BenchArguments& arguments) {
  const int local = count_replicas(arguments.devices);
  Group group{.replicas = 0, .ranks = session.size(), .nodes = session.nodes()};
  for (const std::string& replicas : session.all_gather(std::to_string(local)))
    group.replicas += std::stoi(replicas);
  ReductionListener listener = make_listener(arguments, group);
  bool begun = false;
  listener.size_begins = [&, next = listener.size_begins](std::size_t bytes) {
    if (!begun && !arguments.json) print_head(group, arguments.plan.dtype);
    begun = true;
    next(bytes);
  };
  const std::int64_t errors = time_reductions(session, local, arguments.plan, listener);
  if (errors > 0)
    throw Error(ErrorCategory::communication, "allreduce-bench", "expected sums over all replicas",
                fmt::format("{} elements were wrong", errors));
  return 0;
}

}  // namespace

void add_allreduce_bench_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand("allreduce-bench",
                                             "Benchmark all-reduce over ranks or local replicas");
  const auto arguments = std::make_shared<BenchArguments>();
  command
      ->add_option("--min-bytes", arguments->min_bytes,
                   "Smallest buffer size in bytes, or with a unit such as 64KiB")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->default_str("1KiB");
  command
      ->add_option("--max-bytes", arguments->max_bytes,
                   "Largest buffer size in bytes, or with a unit such as 64MiB")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->default_str("64MiB");
  add_at_least(*command, "--factor", arguments->factor, 2,
               "Factor between one buffer size and the next")
      ->default_str(std::to_string(arguments->factor));
  const std::vector<std::string_view> types = element_type_names();
  add_one_of(*command, "--dtype", arguments->plan.dtype, types,
             "Data type of the elements: " + list_names(types))
      ->type_name("TYPE");
  add_parsed(*command, "--allreduce", arguments->plan.routes, parse_routes, "auto",
             "ROUTE[,ROUTE...] to measure, interleaved: " +
                 allreduce::describe_routes(&allreduce::RouteInfo::is_for_cpus) +
                 ". Each measurement starts with an untimed call to warm the caches")
      ->type_name("ROUTE[,ROUTE...]");
  add_at_least(*command, "--iterations", arguments->plan.iterations, 0,
               "Number of measurements per size and route; their median is reported. 0: as many as "
               "fit into half a second, 3 to 500")
      ->default_str("0");
  command->add_flag("--check", arguments->plan.check,
                    "Check every element of a first all-reduce, and count the wrong elements");
  add_json_option(*command, arguments->json,
                  "Print only JSON: one object per row on standard output");
  command
      ->add_option("--devices", arguments->devices,
                   "Devices of the replicas of each process: cpu:0,cpu:0 for two logical replicas; "
                   "auto is cpu:0")
      ->type_name("DEVICE[,DEVICE...]")
      ->capture_default_str();
  command->callback([=, &status] {
    arguments->plan.bytes = sizes(*arguments);
    status = run_session(invocation, {}, [&](job::Session& session) {
      return allreduce_bench(session, *arguments);
    });
  });
}

}  // namespace lockstep::apps
