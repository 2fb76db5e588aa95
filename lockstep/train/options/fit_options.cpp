#include "lockstep/train/options/fit_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"

namespace lockstep::inline v0 {

using PlanFields = Fields<train::CheckpointPlan>;
using FitFields = Fields<train::FitOptions>;

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

std::vector<std::string> FitFields::print_validation(const Options& options) {
  if (!options.validation) return {};
  return {options.validation->description()};
}

std::vector<std::string> FitFields::print_trace(const Options& options) {
  return options.trace.file.empty() ? std::vector<std::string>{}
                                    : std::vector{to_string(options.trace)};
}

void FitFields::parse_trace(Options& options, std::string_view /*name*/,
                            std::span<const std::string> values) {
  options.trace = values.back().empty() ? train::TraceOptions{} : train::parse_trace(values.back());
}

}  // namespace lockstep::inline v0
