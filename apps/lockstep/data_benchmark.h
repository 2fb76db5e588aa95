// lockstep data benchmark.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

struct DataBenchmarkOptions {
  DataArguments data;
  OutputArguments output;
  double seconds = 2;  ///< of each rate
};

/// How fast batches come where some of the work is left out.
struct DataRate {
  std::string stage;  ///< synthetic, decoded, stored, warm or cold
  int threads = 1;
  std::int64_t records = 0;
  double seconds = 0;
  double bytes_per_record = 0;  ///< of a sample where nothing is read, else of a stored record

  double records_per_second() const { return static_cast<double>(records) / seconds; }
  double megabytes_per_second() const { return records_per_second() * bytes_per_record / 1e6; }
};

/// The part of the work that takes most of a record's time.
struct DataLimit {
  std::string_view stage;  ///< batching, copying, decoding, reading, or "reading and decoding" where they are not apart
  double share = 0;        ///< of the time of a record in warm files, 0 to 1
};

/// By the differences of a record's time between neighbouring rates of the same number of threads; `rates` has
/// synthetic, decoded, stored (where that was measured) and warm.
DataLimit find_limit(std::span<const DataRate> rates);

/// Measures the rates one after the other and prints each when it is known, then the limit. Throws Error.
void benchmark_data(const DataBenchmarkOptions& options);

}  // namespace lockstep::apps
