#include "lockstep/job/trace_options.h"

#include <fmt/format.h>

#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::job {

TraceOptions parse_trace(std::string_view text) {
  Spec spec = Spec::of_pattern("trace", text);
  TraceOptions options{.file = spec.head()};
  std::string range;
  spec.read("steps", range);
  spec.finish();
  const auto number = [](std::string_view digits, std::int64_t otherwise) {
    if (digits.empty()) return otherwise;
    const std::int64_t step = parse_number<std::int64_t>(digits).value_or(0);
    return step < 1 ? -1 : step;
  };
  if (const std::size_t dash = range.find('-'); !range.empty()) {
    options.first_step = range == "-" ? -1 : number(range.substr(0, dash), 1);
    options.last_step =
        dash == std::string::npos ? options.first_step : number(range.substr(dash + 1), 0);
  }
  if (options.file.empty() || options.file == "-" || options.first_step < 1 ||
      options.last_step < 0 || (options.last_step > 0 && options.last_step < options.first_step))
    spec.refuse("", "expected FILE or FILE:steps=FIRST-LAST, with steps counted from 1");
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

}  // namespace lockstep::inline v0::job
