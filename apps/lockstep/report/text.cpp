#include "apps/lockstep/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace lockstep::inline v0::apps::report {

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char byte : text) {
    switch (byte) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        if (byte != '\0') escaped += byte;
    }
  }
  return escaped;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.3g}", value);
  for (const auto& [factor, suffix] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}})
    if (size >= factor) return fmt::format("{:.4g}{}", value / factor, suffix);
  if (size < 1000) return fmt::format("{:.4g}", value);
  const auto whole = static_cast<std::int64_t>(std::llround(size));
  if (whole >= 1'000'000) return value < 0 ? "-1M" : "1M";
  return fmt::format("{}{},{:03}", value < 0 ? "-" : "", whole / 1000, whole % 1000);
}

std::string time_text(double seconds) {
  if (!(seconds > 0)) return "0 s";
  if (seconds < 1e-3) return fmt::format("{:.3g} µs", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e12)));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86'400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86'400, whole / 3600 % 24);
}

std::string time_text(double seconds, const TimeUnit& unit) {
  return fmt::format("{:.2f} {}", std::max(0.0, seconds) / unit.seconds, unit.symbol);
}

TimeUnit unit_for(double seconds) {
  if (seconds < 1e-3) return {"microseconds", "µs", 1e-6};
  if (seconds < 1) return {"milliseconds", "ms", 1e-3};
  if (seconds < 180) return {"seconds", "s", 1};
  if (seconds < 3 * 3600.0) return {"minutes", "min", 60};
  return {"hours", "h", 3600};
}

}  // namespace lockstep::inline v0::apps::report
