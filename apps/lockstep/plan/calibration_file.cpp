#include "apps/lockstep/plan/calibration_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr const char* kFormat = "lockstep calibration";
constexpr int kVersion = 1;
constexpr std::size_t kMaxTimings = 1000;
constexpr double kMaxQuantity = 1e18;

/// Reads the members of a JSON object one by one.
class Members {
 public:
  Members(const nlohmann::json& object, std::string_view where, const char* expected)
      : object_(object), where_(where), expected_(expected) {
    if (!object.is_object()) refuse(describe_json(object));
  }

  [[noreturn]] void refuse(const std::string& actual) const {
    throw Error(ErrorCategory::input, where_, expected_, "got " + actual);
  }
  bool has(const char* key) const { return object_.contains(key); }
  const nlohmann::json& value(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("one without \"{}\"", key));
    return *found;
  }
  double number(const char* key, double least = 0, double most = kMaxQuantity) const {
    return checked(key, value(key), least, most);
  }
  std::int64_t count(const char* key, std::int64_t least = 0) const {
    return counted_value(key, value(key), least);
  }
  std::string text(const char* key) const {
    const nlohmann::json& found = value(key);
    if (!found.is_string()) refuse(fmt::format("\"{}\": {}", key, describe_json(found)));
    return found.get<std::string>();
  }
  const nlohmann::json& array(const char* key, std::size_t least, std::size_t most) const {
    const nlohmann::json& found = value(key);
    if (!found.is_array() || found.size() < least || found.size() > most)
      refuse(fmt::format("\"{}\": {}", key, describe_json(found)));
    return found;
  }
  double checked(const char* key, const nlohmann::json& found, double least, double most) const {
    const double number = found.is_number() ? found.get<double>() : -1;
    if (!found.is_number() || !(number >= least && number <= most))
      refuse(fmt::format("\"{}\": {}", key, describe_json(found)));
    return number;
  }
  std::int64_t counted_value(const char* key, const nlohmann::json& found,
                             std::int64_t least) const {
    constexpr double kMaxCounted = 1e15;
    const double number = checked(key, found, static_cast<double>(least), kMaxCounted);
    if (number != std::floor(number)) refuse(fmt::format("\"{}\": {}", key, describe_json(found)));
    return static_cast<std::int64_t>(number);
  }

 private:
  const nlohmann::json& object_;
  std::string_view where_;
  const char* expected_;
};

constexpr const char* kExpectedCalibration = "expected a calibration of lockstep plan";

BatchTiming timing_of(const nlohmann::json& object, std::string_view where,
                      std::size_t parameters) {
  const Members members(object, where, kExpectedCalibration);
  BatchTiming timing{.samples = members.count("samples", 1),
                     .seconds = members.number("seconds", 1e-9),
                     .deviation = members.number("deviation"),
                     .input_seconds = members.number("input_seconds"),
                     .update_seconds = members.number("update_seconds"),
                     .lead_seconds = {},
                     .activation_bytes = members.number("activation_bytes")};
  for (const nlohmann::json& lead : members.array("lead_seconds", parameters, parameters))
    timing.lead_seconds.push_back(members.checked("lead_seconds", lead, 0, kMaxQuantity));
  if (timing.update_seconds > timing.seconds)
    members.refuse("an update that is longer than its step");
  return timing;
}

std::string file_text(const std::filesystem::path& path) {
  const InputFile file(path, ErrorCategory::input);
  constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;
  std::string text(static_cast<std::size_t>(std::min(file.stamp().size, kMaxBytes + 1)), '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  return text;
}

struct QuantityUnit {
  std::string_view name;  // in lower case, where case does not matter
  double factor;
};

/// Parses a positive number with one of `units`.
double parse_quantity(std::string_view option, std::string_view text,
                      std::span<const QuantityUnit> units, std::string_view expected) {
  std::size_t end = 0;
  while (end < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
    ++end;
  std::string exact;
  std::string lower;
  for (const char letter : text.substr(end)) {
    if (letter == ' ') continue;
    exact += letter;
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  const auto number = parse_number<double>(text.substr(0, end));
  const auto found = std::ranges::find_if(
      units, [&](const QuantityUnit& unit) { return unit.name == exact || unit.name == lower; });
  if (!number || !(*number > 0) || found == units.end() ||
      !(*number * found->factor < kMaxQuantity))
    throw Error(ErrorCategory::input, option, expected, fmt::format("got \"{}\"", text));
  return *number * found->factor;
}

}  // namespace

double parse_bit_rate(std::string_view option, std::string_view text) {
  static constexpr std::array<QuantityUnit, 11> kUnits{{{"bit", 1},
                                                        {"kbit", 1e3},
                                                        {"mbit", 1e6},
                                                        {"gbit", 1e9},
                                                        {"tbit", 1e12},
                                                        {"kbit/s", 1e3},
                                                        {"mbit/s", 1e6},
                                                        {"gbit/s", 1e9},
                                                        {"tbit/s", 1e12},
                                                        {"MB/s", 8e6 / kPayload},
                                                        {"GB/s", 8e9 / kPayload}}};
  return parse_quantity(
      option, text, kUnits,
      "expected the speed of a link, such as 1Gbit, 100Mbit, or 0.119GB/s of payload");
}

double parse_seconds(std::string_view option, std::string_view text) {
  static constexpr std::array<QuantityUnit, 4> kUnits{
      {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};
  return parse_quantity(option, text, kUnits, "expected a time, such as 50us or 0.2ms");
}

double parse_bytes(std::string_view option, std::string_view text) {
  static constexpr std::array<QuantityUnit, 8> kUnits{{{"", 1},
                                                       {"b", 1},
                                                       {"kib", 1024},
                                                       {"mib", 1 << 20},
                                                       {"gib", 1 << 30},
                                                       {"tib", 1024.0 * (1 << 30)},
                                                       {"mb", 1e6},
                                                       {"gb", 1e9}}};
  return parse_quantity(option, text, kUnits, "expected a size, such as 16GiB");
}

nlohmann::ordered_json to_json(const Calibration& calibration) {
  nlohmann::ordered_json timings = nlohmann::ordered_json::array();
  for (const BatchTiming& timing : calibration.timings)
    timings.push_back({{"samples", timing.samples},
                       {"seconds", timing.seconds},
                       {"deviation", timing.deviation},
                       {"input_seconds", timing.input_seconds},
                       {"update_seconds", timing.update_seconds},
                       {"activation_bytes", timing.activation_bytes},
                       {"lead_seconds", timing.lead_seconds}});
  return {{"format", kFormat},
          {"version", kVersion},
          {"model", calibration.model},
          {"data", calibration.data},
          {"machine", calibration.machine},
          {"precision", calibration.precision},
          {"records", calibration.records},
          {"cores", calibration.cores},
          {"busy_cores", calibration.busy_cores},
          {"transfer_seconds_per_byte", calibration.transfer_seconds_per_byte},
          {"bytes_per_second", calibration.bytes_per_second},
          {"flop_per_second", calibration.flop_per_second},
          {"parameter_bytes", calibration.parameter_bytes},
          {"gradient_bytes", calibration.gradient_bytes},
          {"slot_bytes", calibration.slot_bytes},
          {"elements", calibration.elements},
          {"timings", std::move(timings)}};
}

Calibration parse_calibration(std::string_view text, std::string_view where) {
  constexpr std::size_t kMaxParameters = 1'000'000;
  const nlohmann::json json = parse_json(text, ErrorCategory::input, where);
  const Members members(json, where, kExpectedCalibration);
  if (!members.has("format") || members.value("format") != kFormat)
    members.refuse("another JSON object");
  if (members.value("version") != kVersion)
    members.refuse("version " + describe_json(members.value("version")));
  Calibration calibration{.model = members.text("model"),
                          .data = members.text("data"),
                          .machine = members.text("machine"),
                          .precision = members.text("precision"),
                          .elements = {},
                          .parameter_bytes = members.number("parameter_bytes"),
                          .gradient_bytes = members.number("gradient_bytes"),
                          .slot_bytes = members.number("slot_bytes"),
                          .records = members.count("records"),
                          .cores = members.number("cores"),
                          .busy_cores = members.number("busy_cores"),
                          .transfer_seconds_per_byte = members.number("transfer_seconds_per_byte"),
                          .bytes_per_second = members.number("bytes_per_second"),
                          .flop_per_second = members.number("flop_per_second"),
                          .timings = {}};
  for (const nlohmann::json& count : members.array("elements", 1, kMaxParameters))
    calibration.elements.push_back(members.counted_value("elements", count, 1));
  for (const nlohmann::json& object : members.array("timings", 1, kMaxTimings)) {
    BatchTiming timing = timing_of(object, where, calibration.elements.size());
    if (!calibration.timings.empty() && timing.samples <= calibration.timings.back().samples)
      members.refuse("timings that are not in the order of their samples");
    calibration.timings.push_back(std::move(timing));
  }
  return calibration;
}

Calibration read_calibration(const std::filesystem::path& path) {
  return parse_calibration(file_text(path), path.string());
}

Hardware parse_hardware(std::string_view text, std::string_view where,
                        const Calibration& calibration, const Hardware& base) {
  static constexpr std::array<std::string_view, 11> kMembers{
      "name",   "speed", "flop_per_second",       "bytes_per_second",  "link",         "latency",
      "memory", "price", "host_bytes_per_second", "replicas_per_host", "transfer_cost"};
  const nlohmann::json json = parse_json(text, ErrorCategory::input, where);
  const Members members(json, where, "expected a description of hardware");
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(kMembers, key) == kMembers.end())
      throw Error(ErrorCategory::input, where, "expected the members " + list_names(kMembers),
                  got_name(key, kMembers));
  Hardware hardware = base;
  hardware.name = members.has("name") ? members.text("name") : std::string(where);
  if (members.has("speed")) hardware.speed = members.number("speed", 1e-6, 1e6);
  double ratio = std::numeric_limits<double>::max();
  for (const auto& [key, measured] :
       {std::pair("flop_per_second", calibration.flop_per_second),
        std::pair("bytes_per_second", calibration.bytes_per_second)}) {
    if (!members.has(key)) continue;
    if (members.has("speed")) members.refuse(fmt::format("both \"speed\" and \"{}\"", key));
    if (!(measured > 0))
      members.refuse(fmt::format("\"{}\", which the calibration has not measured", key));
    ratio = std::min(ratio, members.number(key, 1) / measured);
  }
  if (ratio < std::numeric_limits<double>::max()) hardware.speed = ratio;
  const std::string name(where);
  if (members.has("link")) hardware.bits_per_second = parse_bit_rate(name, members.text("link"));
  if (members.has("latency"))
    hardware.latency_seconds = parse_seconds(name, members.text("latency"));
  if (members.has("memory")) hardware.memory_bytes = parse_bytes(name, members.text("memory"));
  if (members.has("price")) hardware.price = members.number("price");
  if (members.has("host_bytes_per_second"))
    hardware.host_bytes_per_second = members.number("host_bytes_per_second", 1);
  if (members.has("transfer_cost"))
    hardware.transfer_cost = members.number("transfer_cost", 0, 1e3);
  if (members.has("replicas_per_host"))
    hardware.replicas_per_host =
        static_cast<int>(std::min<std::int64_t>(members.count("replicas_per_host", 1), 1 << 20));
  return hardware;
}

Hardware read_hardware(const std::filesystem::path& path, const Calibration& calibration,
                       const Hardware& base) {
  return parse_hardware(file_text(path), path.string(), calibration, base);
}

}  // namespace lockstep::inline v0::apps
