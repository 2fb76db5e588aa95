#include "apps/lockstep/plan/plan_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr double kMebibyteOfPlan = 1 << 20;
constexpr std::size_t kPlanWidth = 80;

/// With decimals only below 10.
std::string mebibytes_text(double bytes) {
  const double mebibytes = bytes / kMebibyteOfPlan;
  return mebibytes < 10 ? fmt::format("{:.2g}", mebibytes) : fmt::format("{:.0f}", mebibytes);
}

bool lacks_memory(const PlanReport& report, const Prediction& row) {
  return report.hardware.memory_bytes > 0 && row.memory_bytes > report.hardware.memory_bytes;
}

/// "0.25 h", "36 min", "12 d"
std::string duration_text(double hours) {
  if (hours < 1.0 / 60) return fmt::format("{:.3g} s", hours * 3600);
  if (hours < 1) return fmt::format("{:.3g} min", hours * 60);
  return hours < 100 ? fmt::format("{:.3g} h", hours) : fmt::format("{:.3g} d", hours / 24);
}

std::string row_text(const PlanReport& report, const Prediction& row) {
  std::string text =
      fmt::format("{:>8}{:>7.0f}{:<2}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>10.0f}{:>6.0f}%{:>8}",
                  row.replicas, row.per_replica_batch,
                  std::string(row.is_covered ? "" : "*") + (lacks_memory(report, row) ? "!" : ""),
                  1e3 * row.step(), 1e3 * (row.input + row.compute + row.update),
                  1e3 * (row.transfer + row.communication), 1e3 * row.waiting,
                  row.samples_per_second, 100 * row.efficiency, mebibytes_text(row.memory_bytes));
  return text + "\n";
}

/// "12 replicas: 2.1 h, cost 12.60 (6 hosts)"
std::string training_text(const PlanReport& report, int replicas) {
  const Prediction row = predict(report.calibration, report.hardware, report.options, replicas);
  std::string text = fmt::format("{}: {}", counted(replicas, "replica"), duration_text(row.hours));
  if (report.hardware.price > 0)
    text += fmt::format(", cost {:.2f} ({})", row.cost, counted(row.hosts, "host"));
  return text;
}

std::string limit_text(std::string_view limit) {
  if (limit == "communication") return "communication is the limit";
  if (limit == "compute") return "smaller batches are not computed faster";
  if (limit == "input") return "reading the data is the limit";
  return "waiting for the slowest is the limit";
}

/// `text` in lines of at most kPlanWidth bytes. The first line starts with `begin`, the others are
/// indented by its length.
std::string in_lines(std::string_view text, const std::string& begin = "") {
  std::string lines;
  std::string line = begin;
  bool is_empty = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (!is_empty && line.size() + 1 + word.size() > kPlanWidth) {
      lines += line + "\n";
      line = std::string(begin.size(), ' ');
      is_empty = true;
    }
    line.append(is_empty ? "" : " ").append(word);
    is_empty = false;
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return lines + line + "\n";
}

std::string verdict_text(const PlanReport& report) {
  const ScalingPlan& plan = report.plan;
  if (plan.most == 1) return {};
  if (plan.efficient_up_to == plan.most)
    return in_lines(fmt::format(
        "Scaling is efficient up to {} replicas (marginal efficiency of at least 50 %).",
        plan.most));
  std::string text = in_lines(fmt::format(
      "Scaling is efficient up to {}; beyond that, the marginal efficiency is below 50 %: "
      "{}.",
      counted(plan.efficient_up_to, "replica"), limit_text(plan.limit)));
  if (plan.link_for_all)
    text += fmt::format("Links of {} would make {} replicas efficient.\n",
                        bit_rate_text(*plan.link_for_all), plan.most);
  else
    text += fmt::format("No faster link would make {} replicas efficient.\n", plan.most);
  if (plan.batch_for_all)
    text += in_lines(fmt::format(
        "A global batch of {} would make {} replicas efficient{}.",
        report.options.global_batch * *plan.batch_for_all * (report.options.weak ? plan.most : 1),
        plan.most, plan.batch_is_covered ? "" : " (beyond the measured batches)"));
  return text;
}

nlohmann::ordered_json row_json(const PlanReport& report, const Prediction& row) {
  nlohmann::ordered_json object = {{"replicas", row.replicas},
                                   {"hosts", row.hosts},
                                   {"global_batch", row.global_batch},
                                   {"per_replica_batch", row.per_replica_batch},
                                   {"measured_batch", row.is_covered},
                                   {"step_seconds", row.step()},
                                   {"breakdown",
                                    {{"input", row.input},
                                     {"compute", row.compute},
                                     {"transfer", row.transfer},
                                     {"communication", row.communication},
                                     {"waiting", row.waiting},
                                     {"update", row.update}}},
                                   {"link_seconds", row.link_seconds},
                                   {"samples_per_second", row.samples_per_second},
                                   {"efficiency", row.efficiency},
                                   {"memory_bytes", row.memory_bytes}};
  if (report.hardware.memory_bytes > 0) object["fits"] = !lacks_memory(report, row);
  if (report.options.samples > 0) object["hours"] = row.hours;
  if (report.options.samples > 0 && report.hardware.price > 0) object["cost"] = row.cost;
  return object;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  const ScalingPlan& plan = report.plan;
  std::string text = fmt::format("{} on {}, global batch {}{}\n", report.calibration.model,
                                 report.calibration.data, report.options.global_batch,
                                 report.options.weak ? " times the replicas" : "");
  text += fmt::format("links of {}, {}\n\n", bit_rate_text(report.hardware.bits_per_second),
                      report.hardware.name);
  text += "replicas  batch    step ms  compute  exposed  waiting samples/s  effi.     MiB\n";
  bool lacks = false;
  for (const Prediction& row : plan.rows) {
    text += row_text(report, row);
    lacks = lacks || lacks_memory(report, row);
  }
  if (lacks)
    text += fmt::format("! needs more than the {} MiB of a replica\n",
                        mebibytes_text(report.hardware.memory_bytes));
  text += "\n" + verdict_text(report);
  if (report.options.samples > 0) {
    text += "The whole training takes, with\n";
    for (const int count : std::set<int>{1, plan.efficient_up_to, plan.fastest, plan.cheapest})
      text += fmt::format(
          "  {}{}{}\n", training_text(report, count), count == plan.fastest ? ", the fastest" : "",
          count == plan.cheapest && report.hardware.price > 0 ? ", the cheapest" : "");
  }
  text += "\nAssumptions\n";
  for (const std::string& assumption :
       assumptions(report.calibration, report.hardware, report.options, plan))
    text += in_lines(assumption, "- ");
  return text;
}

nlohmann::ordered_json plan_json(const PlanReport& report) {
  const ScalingPlan& plan = report.plan;
  const std::int64_t batch = report.options.global_batch * (report.options.weak ? plan.most : 1);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Prediction& row : plan.rows) rows.push_back(row_json(report, row));
  nlohmann::ordered_json object = {
      {"event", "plan"},
      {"model", report.calibration.model},
      {"data", report.calibration.data},
      {"machine", report.calibration.machine},
      {"hardware", report.hardware.name},
      {"scaling", report.options.weak ? "weak" : "strong"},
      {"link_bits_per_second", report.hardware.bits_per_second},
      {"latency_seconds", report.hardware.latency_seconds},
      {"transfer_seconds_per_byte",
       report.calibration.transfer_seconds_per_byte * report.hardware.transfer_cost},
      {"rows", std::move(rows)},
      {"most", plan.most},
      {"pays_up_to", plan.efficient_up_to},
      {"fastest", plan.fastest},
      {"cheapest", plan.cheapest}};
  if (!plan.limit.empty()) object["limit"] = plan.limit;
  if (plan.link_for_all) object["link_for_all"] = *plan.link_for_all;
  if (plan.batch_for_all) {
    object["global_batch_for_all"] = batch * *plan.batch_for_all;
    object["measured_batch_for_all"] = plan.batch_is_covered;
  }
  object["assumptions"] = assumptions(report.calibration, report.hardware, report.options, plan);
  return object;
}

std::vector<int> parse_replica_counts(const std::string& list) {
  constexpr int kMaxReplicas = 4096;
  const auto refuse = [&] {
    throw Error(ErrorCategory::input, "replicas",
                fmt::format("expected numbers from 1 to {}, such as 1,2,4-8", kMaxReplicas),
                fmt::format("got \"{}\"", list));
  };
  std::set<int> counts;
  for (const std::string& text : split_specs("replicas", list)) {
    const std::string_view part = text;
    const std::size_t dash = std::min(part.find('-'), part.size());
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last = dash == part.size() ? first : parse_number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 1 || *last < *first || *last > kMaxReplicas) refuse();
    for (int count = *first; count <= *last; ++count) counts.insert(count);
  }
  return {counts.begin(), counts.end()};
}

}  // namespace lockstep::inline v0::apps
