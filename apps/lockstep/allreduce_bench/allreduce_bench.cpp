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

#include "apps/lockstep/allreduce_bench/reduction_timing.h"
#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/process_setup.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/text.h"
#include "lockstep/device/device_list.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::apps {
namespace {

struct BenchArguments {
  ReductionPlan plan;
  std::string min_bytes = "1KiB";
  std::string max_bytes = "64MiB";
  int factor = 4;
  bool json = false;
  std::string devices = "auto";
};

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

/// What is measured.
template <>
struct Fields<apps::ReductionPlan> {
  using Options = apps::ReductionPlan;
  using Values = std::span<const std::string>;
  static constexpr std::tuple list{
      TextField<Options>{
          {"dtype", "", "Data type of the elements: {}"},
          [](Options& options, std::string_view name, Values values) {
            const auto names = apps::element_type_names();
            if (std::ranges::find(names, values.back()) == names.end())
              refuse_name(name, values.back(), names);
            options.dtype = values.back();
          },
          [](const Options& options) { return std::vector{options.dtype}; },
          {.value = "TYPE", .names = [] { return list_names(apps::element_type_names()); }}},
      TextField<Options>{
          {"allreduce", "",
           "ROUTE[,ROUTE...] to measure, interleaved: {}. Each measurement starts with an "
           "untimed call to warm the caches"},
          [](Options& options, std::string_view, Values values) {
            options.routes = apps::parse_routes(values.back());
          },
          [](const Options&) { return std::vector<std::string>{"auto"}; },
          {.value = "ROUTE[,ROUTE...]", .names = apps::describe_cpu_routes}},
      Field{&Options::iterations,
            {"iterations", "",
             "Number of measurements per size and route; their median is reported. 0: as many "
             "as fit into half a second, 3 to 500"},
            {.min = 0}},
      Field{&Options::check,
            {"check", "",
             "Check every element of a first all-reduce, and count the wrong elements"}}};
};

/// Options of `lockstep allreduce-bench`.
template <>
struct Fields<apps::BenchArguments> {
  using Options = apps::BenchArguments;
  static constexpr std::tuple list{
      Field{&Options::min_bytes,
            {"min_bytes", "", "Smallest buffer size in bytes, or with a unit such as 64KiB"},
            {},
            {.value = "BYTES"}},
      Field{&Options::max_bytes,
            {"max_bytes", "", "Largest buffer size in bytes, or with a unit such as 64MiB"},
            {},
            {.value = "BYTES"}},
      Field{&Options::factor,
            {"factor", "", "Factor between one buffer size and the next"},
            {.min = 2}},
      Part{&Options::plan},
      Field{&Options::devices,
            {"devices", "",
             "Devices of the replicas of each process: cpu:0,cpu:0 for two logical replicas; "
             "auto is cpu:0"},
            {},
            {.value = "DEVICE[,DEVICE...]"}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

constexpr std::size_t kRouteWidth = 26;  // as wide as "in-process + shared-memory"

/// The bytes that `text`, the value of option `name`, stands for. Throws Error (input).
std::size_t parse_size(const char* name, const std::string& text) {
  std::string bytes = text;
  try {
    CLI::AsSizeValue(false)(bytes);  // replaces a unit
  } catch (const CLI::ValidationError&) {
    refuse_value(name, "to be a number of bytes, such as 65536 or 64KiB", text);
  }
  return static_cast<std::size_t>(fields_detail::parse_within<std::int64_t>(
      name, bytes, 1, std::numeric_limits<std::int32_t>::max()));
}

/// The sizes to measure. Throws Error (input) if there are none.
std::vector<std::size_t> sizes(const BenchArguments& arguments) {
  const std::size_t smallest = parse_size("--min-bytes", arguments.min_bytes);
  const std::size_t largest = parse_size("--max-bytes", arguments.max_bytes);
  if (largest < smallest)
    throw Error(ErrorCategory::input, "command line",
                fmt::format("expected --max-bytes to be at least --min-bytes, {}", smallest),
                fmt::format("got {}", largest));
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = smallest; bytes <= largest;
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
  fmt::print("{}\n", dump_json(row));
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
  add_fields(*command, fields_of(*arguments));
  add_json_option(*command, arguments->json,
                  "Print only JSON: one object per row on standard output");
  command->callback([=, &status] {
    arguments->plan.bytes = sizes(*arguments);
    status = run_session(invocation, {}, [&](job::Session& session) {
      return allreduce_bench(session, *arguments);
    });
  });
}

}  // namespace lockstep::inline v0::apps
