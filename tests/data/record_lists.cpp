// The program that round_trip.py compares with other implementations.
//
//   record_lists print FILE       prints the records of a TFRecord file, a line of JSON each, with
//                                 the kind and the values of each feature
//   record_lists write FILE KIND  reads such lines from standard input and writes them as records,
//                                 compressed by KIND (none, gzip, zlib)
//
// Bytes are written as hexadecimal digits, floats as their 32 bits in an integer.
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"

namespace {

using namespace lockstep::data;
using Json = nlohmann::json;

std::string to_hex(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

Json to_json(const Feature& feature) {
  Json values = Json::array();
  if (const auto* bytes = std::get_if<BytesList>(&feature)) {
    for (const std::string& value : *bytes) values.push_back(to_hex(value));
  } else if (const auto* floats = std::get_if<FloatList>(&feature)) {
    for (const float value : *floats) values.push_back(std::bit_cast<std::uint32_t>(value));
  } else if (const auto* integers = std::get_if<Int64List>(&feature)) {
    values = *integers;
  }
  return {{"kind", feature_kind_name(static_cast<FeatureKind>(feature.index()))},
          {"values", std::move(values)}};
}

Feature to_feature(const Json& json) {
  const std::string kind = json.at("kind");
  const Json& values = json.at("values");
  if (kind == "int64") return values.get<Int64List>();
  if (kind == "float") {
    FloatList floats;
    for (const std::uint32_t bits : values) floats.push_back(std::bit_cast<float>(bits));
    return floats;
  }
  if (kind != "bytes") return {};
  BytesList bytes;
  for (const std::string digits : values) bytes.push_back(from_hex(digits));
  return bytes;
}

void print(const std::string& file) {
  TFRecordReader reader(file);
  for (std::string_view record; reader.next(record);) {
    Json line = Json::object();
    for (const auto& [name, feature] : parse_example(record)) line[name] = to_json(feature);
    fmt::print("{}\n", line.dump());
  }
}

void write(const std::string& file, const std::string& compression) {
  TFRecordWriter writer(file, lockstep::kNamesOf<Compression>.parse("compression", compression));
  for (std::string line; std::getline(std::cin, line);) {
    Example example;
    const Json features = Json::parse(line);
    for (const auto& [name, feature] : features.items()) example[name] = to_feature(feature);
    writer.write(serialize_example(example));
  }
  writer.close();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "print" && argc == 3) return print(argv[2]), 0;
    if (verb == "write" && argc == 4) return write(argv[2], argv[3]), 0;
    std::cerr << "record_lists print FILE | write FILE none|gzip|zlib\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
