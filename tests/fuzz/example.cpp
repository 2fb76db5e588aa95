#include "lockstep/data/record/example.h"

#include <array>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/record/feature_view.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

void read_values(const data::FeatureView& feature) {
  switch (feature.kind()) {
    case data::FeatureKind::missing:
      return;
    case data::FeatureKind::bytes:
      feature.bytes_list();
      return;
    case data::FeatureKind::floats: {
      std::vector<float> values(feature.size());
      feature.copy_floats(values);
      return;
    }
    case data::FeatureKind::int64s:
      feature.single_int64();
      feature.int64s();
      return;
  }
}

}  // namespace

void read_untrusted(Bytes bytes) {
  using namespace lockstep::data;
  const std::string_view record = text_of(bytes);
  const std::array<std::string, 3> names = {"image", "label", "weight"};
  std::array<FeatureView, 3> features;
  find_features(record, names, features);
  for (const FeatureView& feature : features) read_values(feature);
  const ExampleReader reader({{"image", FeatureKind::bytes, std::nullopt, BytesList{}},
                              {"label", FeatureKind::int64s, 1, Int64List{-1}},
                              {"weight", FeatureKind::floats, std::nullopt, FloatList{}}});
  ExampleValues values;
  try {
    reader.read(record, values, [] { return std::string("record"); });
  } catch (const Error&) {  // a feature may be of another kind
  }
  static const SampleSpec spec = {
      .inputs = {{.name = "image", .type = ElementType::bytes, .shape = {-1}},
                 {.name = "label", .type = ElementType::int32, .shape = {-1, 2}, .classes = 7},
                 {.name = "weight", .shape = {-1}}}};
  static const ExampleDecoder decoder(spec, InputKind::floats, {names.begin(), names.end()});
  Batch one(spec);
  Sample sample = one.sample();
  if (!decoder.decode(record, sample)) one.pad();
  // Our own writer must reproduce what was read.
  const std::string written = serialize_example(parse_example(record));
  LOCKSTEP_CHECK(serialize_example(parse_example(written)) == written);
}

}  // namespace lockstep::inline v0::fuzz
