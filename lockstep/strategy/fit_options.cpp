#include "lockstep/strategy/fit_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "lockstep/base/bound_fields.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::strategy {

TraceOptions parse_trace(std::string_view text) {
  static constexpr std::string_view kSteps = ":steps=";
  TraceOptions options;
  const std::size_t steps = text.rfind(kSteps);
  options.file = text.substr(0, steps);
  const auto number = [](std::string_view digits, std::int64_t otherwise) {
    if (digits.empty()) return otherwise;
    const std::int64_t given = parse_number<std::int64_t>(digits).value_or(0);
    return given < 1 ? -1 : given;
  };
  if (steps != std::string_view::npos) {
    const std::string_view range = text.substr(steps + kSteps.size());
    const std::size_t dash = range.find('-');
    options.first_step = number(range.substr(0, dash), 1);
    options.last_step =
        dash == std::string_view::npos ? options.first_step : number(range.substr(dash + 1), 0);
    if (range.empty() || range == "-") options.first_step = -1;
  }
  if (options.file.empty() || options.file == "-" || options.first_step < 1 ||
      options.last_step < 0 || (options.last_step > 0 && options.last_step < options.first_step))
    throw Error(ErrorCategory::input, "trace",
                "expected FILE or FILE:steps=FIRST-LAST, with steps counted from 1",
                fmt::format("got \"{}\"", text));
  return options;
}

std::string to_string(const TraceOptions& options) {
  std::string text = options.file.string();
  const TraceOptions all;
  if (options.first_step == all.first_step && options.last_step == all.last_step) return text;
  text += fmt::format(":steps={}", options.first_step);
  if (options.last_step == 0) return text + "-";
  return options.last_step == options.first_step ? text
                                                 : fmt::format("{}-{}", text, options.last_step);
}

}  // namespace lockstep::strategy

namespace lockstep {

using PlanFields = Fields<strategy::CheckpointPlan>;
using FitFields = Fields<strategy::FitOptions>;

std::vector<std::string> PlanFields::print_resume(const Options& options) {
  return fields_detail::print(options.resume);
}

void PlanFields::parse_resume(Options& options, std::string_view name,
                              std::span<const std::string> values) {
  const std::string& text = values.back();
  const auto& names = kNamesOf<checkpoint::Resume>;
  std::error_code unreadable;
  if (!names.find(text) &&
      (text.find('/') != std::string::npos || std::filesystem::is_directory(text, unreadable)))
    refuse_value(name, "auto, never or require (--checkpoint-dir names the directory)", text);
  options.resume = names.parse(name, text);
}

std::vector<std::string> PlanFields::print_best(const Options& options) {
  return options.keep_best ? std::vector{options.keep_best->text()} : std::vector<std::string>{};
}

std::vector<std::string> FitFields::print_trace(const Options& options) {
  return options.trace.file.empty() ? std::vector<std::string>{}
                                    : std::vector{to_string(options.trace)};
}

void FitFields::parse_trace(Options& options, std::string_view /*name*/,
                            std::span<const std::string> values) {
  options.trace =
      values.back().empty() ? strategy::TraceOptions{} : strategy::parse_trace(values.back());
}

}  // namespace lockstep
