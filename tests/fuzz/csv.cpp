#include "data/source/csv_source.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

void read_untrusted(Bytes bytes) {
  const MemoryFile file(bytes);
  const data::CsvSource source(file.path());
  std::vector<float> features(static_cast<std::size_t>(source.spec().feature_count()));
  data::Sample sample;
  sample.features = features;
  for (std::int64_t i = 0; i < source.size(); ++i) source.read(i, sample);
}

}  // namespace lockstep::fuzz
