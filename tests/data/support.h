// Helpers for tests of the data module.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/data/record/compression.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "tests/support/files.h"

namespace lockstep::inline v0::data {

using files::data_error_of;
using files::error_of;
using files::from_hex;
using files::input_error_of;
using files::names_in;
using files::read_bytes;
using files::ResourceLimit;
using files::TemporaryDirectory;
using files::write_bytes;

inline std::ostream& operator<<(std::ostream& out, Compression compression) {
  return out << kNamesOf<Compression>.name(compression);
}

inline void write_records(const std::filesystem::path& path,
                          const std::vector<std::string>& records,
                          Compression compression = Compression::none) {
  TFRecordWriter writer(path, compression);
  for (const std::string& record : records) writer.write(record);
  writer.close();
}

inline std::vector<std::string> read_records(const std::filesystem::path& path) {
  TFRecordReader reader(path);
  std::vector<std::string> records;
  for (std::string_view record; reader.next(record);) records.emplace_back(record);
  return records;
}

/// An image record whose pixels are all `pixel`.
inline std::string image_record(std::int64_t label, std::size_t pixels, unsigned char pixel) {
  return serialize_example({{"image", BytesList{std::string(pixels, static_cast<char>(pixel))}},
                            {"label", Int64List{label}}});
}

/// The elements of an array of a batch, to compare.
template <typename T>
std::vector<std::remove_const_t<T>> copy(std::span<T> values) {
  return {values.begin(), values.end()};
}

/// A record of a source and its memory.
struct ReadSample {
  Batch memory;

  std::vector<float> features() const { return copy(memory.features()); }
  std::vector<float> values() const { return copy(memory.values()); }
  std::int32_t label() const { return memory.labels().empty() ? -1 : memory.labels()[0]; }
};

inline ReadSample read(const RecordSource& source, std::int64_t record_id) {
  ReadSample result{Batch(source.spec())};
  Sample sample = result.memory.sample();
  source.read(record_id, sample);
  result.memory.pad();
  return result;
}

}  // namespace lockstep::inline v0::data
