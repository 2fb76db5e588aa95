// Calibrations and descriptions of hardware as JSON files.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "apps/lockstep/plan/scaling.h"

namespace lockstep::inline v0::apps {

/// Returns the content of a file of `lockstep plan --save-calibration`.
nlohmann::ordered_json to_json(const Calibration& calibration);

/// Reads such a file. Throws Error (input) `[path] expected a calibration of lockstep plan, got …`
/// for other files, and for impossible values.
Calibration read_calibration(const std::filesystem::path& path);
/// Parses the text of a file called `where`.
Calibration parse_calibration(std::string_view text, std::string_view where);

/// Reads a description of hardware: an object with any of the members name, speed, or instead
/// flop_per_second and bytes_per_second (of a device; the smaller ratio to `calibration` applies),
/// link ("25Gbit"), latency ("20us"), replicas_per_host, host_bytes_per_second, transfer_cost,
/// memory ("16GiB") and price. Other values are taken from `base`. Throws Error (input), also for
/// an unknown member.
Hardware read_hardware(const std::filesystem::path& path, const Calibration& calibration,
                       const Hardware& base = {});
/// Parses the text of a file called `where`.
Hardware parse_hardware(std::string_view text, std::string_view where,
                        const Calibration& calibration, const Hardware& base = {});

/// Parses a bit rate in bit/s: "1Gbit", "100 Mbit/s", "2.5gbit", or "0.119GB/s" for a link with
/// this payload rate, as `lockstep doctor` prints. Throws Error (input) for `option`.
double parse_bit_rate(std::string_view option, std::string_view text);
/// Parses a duration in seconds: "50us", "0.2ms" or "1s". Throws Error (input) for `option`.
double parse_seconds(std::string_view option, std::string_view text);
/// Parses a size in bytes: "16GiB", "512MB" or "4096". Throws Error (input) for `option`.
double parse_bytes(std::string_view option, std::string_view text);

}  // namespace lockstep::inline v0::apps
