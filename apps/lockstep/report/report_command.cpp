#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/lockstep/command_line/field_options.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/report/page.h"
#include "apps/lockstep/report/run_log.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::filesystem::path output = "report.html";
  report::PageOptions page;
};

std::vector<double> parse_prices(const std::string& list) {
  std::vector<double> prices;
  for (const std::string& text : split_specs("--price", list)) {
    const auto price = parse_number<double>(text);
    if (!price || !(*price >= 0) || *price > 1e9)
      throw Error(ErrorCategory::input, "--price",
                  "expected prices from 0 to 1e9, separated by commas",
                  fmt::format("got \"{}\"", list));
    prices.push_back(*price);
  }
  return prices;
}

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

/// Options of `lockstep report`.
template <>
struct Fields<apps::ReportArguments> {
  using Options = apps::ReportArguments;
  using Values = std::span<const std::string>;
  static constexpr std::tuple list{
      Field{&Options::output, {"output", "", "HTML file to write"}, {}, {.value = "FILE"}},
      TextField<Options>{
          {"target", "",
           "Metric at the end of epochs by which runs are compared, and the value to reach, such "
           "as "
           "validation_accuracy=0.9 (default: the best value that all runs have reached)"},
          [](Options& options, std::string_view, Values values) {
            options.page.goal = apps::report::parse_goal(values.back());
          },
          [](const Options&) { return std::vector<std::string>(); },
          {.value = "METRIC[=X]"}},
      TextField<Options>{
          {"price", "",
           "Price of one host per hour, or that of each run, for the cost of the trainings"},
          [](Options& options, std::string_view, Values values) {
            options.page.prices = apps::parse_prices(values.back());
          },
          [](const Options&) { return std::vector<std::string>(); },
          {.value = "X[,X...]"}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

/// Runs of the same name get that of their path.
void name_apart(std::vector<report::RunLog>& runs) {
  std::map<std::string, int> count;
  for (const report::RunLog& run : runs) ++count[run.name];
  for (report::RunLog& run : runs)
    if (count[run.name] > 1) run.name = encode_bytes(run.path.string());
}

void write_report(const ReportArguments& arguments) {
  std::vector<report::RunLog> runs;
  for (const std::string& path : arguments.runs)
    std::ranges::move(report::read_runs(path), std::back_inserter(runs));
  const std::size_t count = runs.size();
  if (count > report::kMaxRuns)
    throw Error(ErrorCategory::input, "report",
                fmt::format("expected at most {} runs", report::kMaxRuns),
                fmt::format("got {}", count));
  if (const std::size_t prices = arguments.page.prices.size(); prices > 1 && prices != count)
    throw Error(ErrorCategory::input, "--price",
                fmt::format("expected one price, or one of each of the {} runs", count),
                fmt::format("got {}", prices));
  for (const report::RunLog& run : runs)
    if (std::error_code none; std::filesystem::equivalent(run.path, arguments.output, none))
      throw Error(ErrorCategory::input, "--output", "expected another file than the logs",
                  fmt::format("got the log {}", run.path.string()));
  name_apart(runs);
  const std::string page = report::report_page(runs, arguments.page);
  const std::filesystem::path output = arguments.output;
  remove_abandoned_temporaries(output.parent_path(), output.filename().native());
  write_file_atomically(output, page, Durability::cached);
  fmt::print("report of {} in {} ({} kB)\n", counted(static_cast<std::int64_t>(count), "run"),
             printable(output.native()), (page.size() + 999) / 1000);
}

}  // namespace

void add_report_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "report",
      "Write a page about trainings: curves, times, replicas, events, configuration\n\n"
      "Example:\n"
      "  lockstep train --model cnn --data fashion-mnist --events run.jsonl\n"
      "  lockstep report run.jsonl --output report.html\n");
  const auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("RUN", arguments->runs,
                   "Events of a training (--events, --json), also of one that still runs; or a "
                   "directory with such files. Several runs are compared")
      ->type_name("")
      ->required();
  add_fields(*command, fields_of(*arguments));
  command->callback([arguments] { write_report(*arguments); });
}

}  // namespace lockstep::inline v0::apps
