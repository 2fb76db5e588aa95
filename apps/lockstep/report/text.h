// Human-readable numbers and times, and text for HTML.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::inline v0::apps::report {

/// `text` for HTML, between tags or quotes.
std::string escape_html(std::string_view text);

/// Up to four digits: "0.4259", "1,234", "12.3k".
std::string short_number(double value);
/// "350 ms", "12.3 s", "4 min 10 s", "1 h 23 min". Negative rounding errors count as 0.
std::string time_text(double seconds);

/// A unit in which times up to `seconds` are easy to read: "minutes", 60.
struct TimeUnit {
  std::string_view name;
  std::string_view symbol;
  double seconds = 1;
};
TimeUnit unit_for(double seconds);
/// A time in this unit with two decimals: "0.12 ms".
std::string time_text(double seconds, const TimeUnit& unit);

}  // namespace lockstep::inline v0::apps::report
