// Calibrations and descriptions of hardware as files.
#include "apps/lockstep/plan/calibration_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "tests/apps/plan/calibrations.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "none";
}

std::string refusal_of_calibration(const std::string& text) {
  return refusal_of([&] { parse_calibration(text, "file.json"); });
}

std::string refusal_of_hardware(const std::string& text) {
  return refusal_of([&] { parse_hardware(text, "file.json", plain_calibration()); });
}

TEST(CalibrationFile, StoresAllMeasurements) {
  Calibration calibration = plain_calibration();
  calibration.cores = 0.45;
  calibration.transfer_seconds_per_byte = 1.4e-9;
  calibration.bytes_per_second = 7e9;
  calibration.flop_per_second = 9e10;
  calibration.timings[1].deviation = 0.125;
  calibration.timings[1].input_seconds = 0.25;
  calibration.timings[1].activation_bytes = 1e6;
  const std::string text = to_json(calibration).dump();
  const Calibration read = parse_calibration(text, "file.json");
  EXPECT_EQ(to_json(read).dump(), text);
  EXPECT_EQ(read.cores, 0.45);
  EXPECT_EQ(read.timings[1].deviation, 0.125);
  EXPECT_EQ(read.timings[1].lead_seconds, calibration.timings[1].lead_seconds);
  EXPECT_EQ(read.elements, calibration.elements);
}

TEST(CalibrationFile, RejectsOtherFiles) {
  constexpr const char* kExpected = "[file.json] expected a calibration of lockstep plan, got ";
  for (const char* text : {"[]", "{}", R"({"format":"another"})", "3"})
    EXPECT_THAT(refusal_of_calibration(text), StartsWith(kExpected)) << text;
  EXPECT_THAT(refusal_of_calibration("{"), StartsWith("[file.json] expected JSON"));
  EXPECT_EQ(refusal_of_calibration(R"({"format":"lockstep calibration","version":2})"),
            std::string(kExpected) + "version 2");
}

TEST(CalibrationFile, RejectsImpossibleValues) {
  const nlohmann::json good = nlohmann::json::parse(to_json(plain_calibration()).dump());
  const auto refusal_with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    return refusal_of_calibration(bad.dump());
  };
  const auto got = [](const std::string& actual) {
    return "[file.json] expected a calibration of lockstep plan, got " + actual;
  };
  EXPECT_EQ(refusal_of_calibration(good.dump()), "none");
  EXPECT_EQ(refusal_with("/records", -1), got("\"records\": -1"));
  EXPECT_EQ(refusal_with("/records", 1.5), got("\"records\": 1.5"));
  EXPECT_EQ(refusal_with("/records", "many"), got("\"records\": \"many\""));
  EXPECT_THAT(refusal_with("/cores", 1e300), StartsWith(got("\"cores\": 1")));
  EXPECT_EQ(refusal_with("/timings", nlohmann::json::array()), got("\"timings\": an array of 0"));
  EXPECT_EQ(refusal_with("/timings/0/seconds", 0), got("\"seconds\": 0"));
  EXPECT_EQ(refusal_with("/timings/0/lead_seconds", {1.0}), got("\"lead_seconds\": an array of 1"));
  EXPECT_EQ(refusal_with("/timings/0/samples", 8),
            got("timings that are not in the order of their samples"));
  EXPECT_EQ(refusal_with("/timings/0/update_seconds", 1e3),
            got("an update that is longer than its step"));
  EXPECT_EQ(refusal_with("/elements/0", 0), got("\"elements\": 0"));
  nlohmann::json without = good;
  without.erase("cores");
  EXPECT_EQ(refusal_of_calibration(without.dump()), got("one without \"cores\""));
}

TEST(CalibrationFile, ReportsAMissingFile) {
  EXPECT_THAT(refusal_of([] { read_calibration("/nonexistent/calibration.json"); }),
              StartsWith("[/nonexistent/calibration.json] expected"));
}

TEST(HardwareFile, DescribesOtherMachines) {
  const Hardware hardware = parse_hardware(
      R"({"name":"large","speed":2,"link":"25Gbit","latency":"20us","replicas_per_host":4,
          "memory":"16GiB","price":3.5,"host_bytes_per_second":5e10,"transfer_cost":0.5})",
      "file.json", plain_calibration());
  EXPECT_EQ(hardware.name, "large");
  EXPECT_EQ(hardware.speed, 2);
  EXPECT_EQ(hardware.bits_per_second, 25e9);
  EXPECT_DOUBLE_EQ(hardware.latency_seconds, 20e-6);
  EXPECT_EQ(hardware.replicas_per_host, 4);
  EXPECT_EQ(hardware.memory_bytes, 17179869184.0);
  EXPECT_EQ(hardware.price, 3.5);
  EXPECT_EQ(hardware.host_bytes_per_second, 5e10);
  EXPECT_EQ(hardware.transfer_cost, 0.5);
}

TEST(HardwareFile, ComparesSpeedsWithThoseOfTheCalibration) {
  Calibration calibration = plain_calibration();
  calibration.flop_per_second = 1e11;
  calibration.bytes_per_second = 1e10;
  const auto speed_of = [&](const char* text) {
    return parse_hardware(text, "file.json", calibration).speed;
  };
  EXPECT_DOUBLE_EQ(speed_of(R"({"flop_per_second":4e11})"), 4);
  EXPECT_DOUBLE_EQ(speed_of(R"({"flop_per_second":4e11,"bytes_per_second":3e10})"), 3);
  EXPECT_EQ(speed_of("{}"), 1);
}

TEST(HardwareFile, DefaultsToTheBase) {
  const Hardware hardware =
      parse_hardware("{}", "file.json", plain_calibration(), {.bits_per_second = 5e8});
  EXPECT_EQ(hardware.bits_per_second, 5e8);
  EXPECT_EQ(hardware.name, "file.json");
}

TEST(HardwareFile, RejectsUnknownMembers) {
  EXPECT_THAT(refusal_of_hardware(R"({"sped":2})"),
              HasSubstr("got \"sped\" (did you mean speed?)"));
  EXPECT_EQ(refusal_of_hardware("[1]"),
            "[file.json] expected a description of hardware, got an array of 1");
  EXPECT_EQ(refusal_of_hardware(R"({"speed":0})"),
            "[file.json] expected a description of hardware, got \"speed\": 0");
  EXPECT_THAT(refusal_of_hardware(R"({"link":"fast"})"),
              StartsWith("[file.json] expected the speed of a link, such as 1Gbit"));
  EXPECT_EQ(refusal_of_hardware(R"({"flop_per_second":1e12})"),
            "[file.json] expected a description of hardware, got \"flop_per_second\", which the "
            "calibration has not measured");
}

TEST(Quantities, HaveUnits) {
  EXPECT_EQ(parse_bit_rate("link", "1Gbit"), 1e9);
  EXPECT_EQ(parse_bit_rate("link", "100 Mbit/s"), 1e8);
  EXPECT_EQ(parse_bit_rate("link", "2.5gbit"), 2.5e9);
  EXPECT_NEAR(parse_bit_rate("link", "0.119375GB/s"), 1e9, 1);
  EXPECT_DOUBLE_EQ(parse_seconds("latency", "50us"), 50e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("latency", "0.2 ms"), 0.2e-3);
  EXPECT_EQ(parse_bytes("memory", "4096"), 4096);
  EXPECT_EQ(parse_bytes("memory", "2MB"), 2e6);
}

TEST(Quantities, RequireUnits) {
  for (const char* text : {"", "1", "Gbit", "-1Gbit", "0Gbit", "1Gb/s", "1e9bit", "nanGbit",
                           "1Gbit2", "1.2.3Gbit", "99999999999999999999999Gbit"})
    EXPECT_EQ(refusal_of([&] { parse_bit_rate("link", text); }),
              std::string("[link] expected the speed of a link, such as 1Gbit, 100Mbit, or "
                          "0.119GB/s of payload, got \"") +
                  text + "\"");
  EXPECT_THAT(refusal_of([] { parse_seconds("latency", "50"); }),
              StartsWith("[latency] expected a time, such as 50us or 0.2ms, got"));
  EXPECT_THAT(refusal_of([] { parse_bytes("memory", "1 elephant"); }),
              StartsWith("[memory] expected a size, such as 16GiB, got"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
