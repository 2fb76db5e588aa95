#include "lockstep/data/record/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "example.pb.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Messages serialized by protobuf.
class ExampleReaderTest : public ::testing::Test {
 protected:
  lockstep_oracle::Feature& feature(const std::string& name) {
    return (*message_.mutable_features()->mutable_feature())[name];
  }
  void read(const ExampleReader& reader) {
    record_ = message_.SerializeAsString();
    read_bytes(reader, record_);
  }
  void read_bytes(const ExampleReader& reader, std::string_view record) {
    reader.read(record, values_, [] { return std::string("a.tfrecord: record 7 at byte 90"); });
  }
  std::string error(const FeatureRequest& request) {
    return data_error_of([&] { read(ExampleReader({request})); });
  }

  lockstep_oracle::Example message_;
  std::string record_;
  ExampleValues values_;
};

TEST_F(ExampleReaderTest, ReadsRequestedFeaturesOfEveryKind) {
  feature("image").mutable_bytes_list()->add_value("pixels");
  feature("label").mutable_int64_list()->add_value(-7);
  for (const float value : {0.5f, 1.5f, 2.5f})
    feature("box").mutable_float_list()->add_value(value);
  for (const char* value : {"a", "", "c"}) feature("words").mutable_bytes_list()->add_value(value);
  feature("not asked for").mutable_bytes_list()->add_value("x");
  const ExampleReader reader({{"label", FeatureKind::int64s},
                              {"words", FeatureKind::bytes, std::nullopt},
                              {"box", FeatureKind::floats, 3},
                              {"image", FeatureKind::bytes}});
  for (int again = 0; again < 2; ++again) {
    read(reader);
    EXPECT_THAT(values_.int64s(0), ElementsAre(-7));
    EXPECT_THAT(values_.bytes(1), ElementsAre("a", "", "c"));
    EXPECT_THAT(values_.floats(2), ElementsAre(0.5f, 1.5f, 2.5f));
    EXPECT_THAT(values_.bytes(3), ElementsAre("pixels"));
    EXPECT_FALSE(values_.is_missing(3));
  }
}

TEST_F(ExampleReaderTest, OfAnyLengthMayBeEmpty) {
  feature("box").mutable_float_list();
  read(ExampleReader({{"box", FeatureKind::floats, std::nullopt}}));
  EXPECT_THAT(values_.floats(0), IsEmpty());
  EXPECT_FALSE(values_.is_missing(0));
}

TEST_F(ExampleReaderTest, UsesDefaultsForMissingFeatures) {
  const ExampleReader reader({{"label", FeatureKind::int64s, 1, Int64List{-1}},
                              {"box", FeatureKind::floats, std::nullopt, FloatList{}},
                              {"weight", FeatureKind::floats, 2, FloatList{1, 2}},
                              {"text", FeatureKind::bytes, 1, BytesList{"none"}}});
  feature("text");  // named, without a kind
  read(reader);
  EXPECT_THAT(values_.int64s(0), ElementsAre(-1));
  EXPECT_THAT(values_.floats(1), IsEmpty());
  EXPECT_THAT(values_.floats(2), ElementsAre(1, 2));
  EXPECT_THAT(values_.bytes(3), ElementsAre("none"));
  EXPECT_TRUE(values_.is_missing(0) && values_.is_missing(3));
  feature("label").mutable_int64_list()->add_value(5);
  read(reader);
  EXPECT_THAT(values_.int64s(0), ElementsAre(5));
  EXPECT_FALSE(values_.is_missing(0));
  message_.Clear();
  read(reader);
  EXPECT_THAT(values_.int64s(0), ElementsAre(-1));
}

TEST_F(ExampleReaderTest, TheLastOfEqualNamesCounts) {
  std::string both;
  for (const std::int64_t label : {1, 2}) {
    message_.Clear();
    feature("label").mutable_int64_list()->add_value(label);
    both += message_.SerializeAsString();
  }
  read_bytes(ExampleReader({{"label", FeatureKind::int64s}}), both);
  EXPECT_THAT(values_.int64s(0), ElementsAre(2));
}

TEST_F(ExampleReaderTest, ReadsPackedAndUnpackedNumbers) {
  // The integer 4 alone, then 5 and 6 packed, in "n"; the floats 1 and 2 packed, then 3 alone, in
  // "x".
  const std::string record = from_hex(
      "0a270a0d0a016e12081a0608040a0205060a160a01781211120f0a080000803f000000400d00004040");
  ASSERT_TRUE(message_.ParseFromString(record));
  ASSERT_EQ(feature("n").int64_list().value_size(), 3);
  ASSERT_EQ(feature("x").float_list().value_size(), 3);
  read_bytes(ExampleReader({{"x", FeatureKind::floats, 3}, {"n", FeatureKind::int64s, 3}}), record);
  EXPECT_THAT(values_.floats(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(values_.int64s(1), ElementsAre(4, 5, 6));
}

TEST_F(ExampleReaderTest, NamesRecordAndFeatureWhereOneIsMissing) {
  feature("image").mutable_bytes_list()->add_value("x");
  EXPECT_EQ(error({"label", FeatureKind::int64s}),
            "[a.tfrecord: record 7 at byte 90] expected 1 value of kind int64 in the feature "
            "label; the record has the features image (bytes)");
}

TEST_F(ExampleReaderTest, NamesRecordAndFeatureWhereKindOrLengthAreWrong) {
  feature("label").mutable_float_list()->add_value(1);
  EXPECT_EQ(error({"label", FeatureKind::int64s}),
            "[a.tfrecord: record 7 at byte 90] expected 1 value of kind int64 in the feature "
            "label; it has 1 value of kind float");
  EXPECT_EQ(error({"label", FeatureKind::floats, 3}),
            "[a.tfrecord: record 7 at byte 90] expected 3 values of kind float in the feature "
            "label; it has 1 value of kind float");
  EXPECT_EQ(error({"label", FeatureKind::bytes, std::nullopt, BytesList{}}),
            "[a.tfrecord: record 7 at byte 90] expected values of kind bytes in the feature label; "
            "it has 1 value of kind float");
}

TEST_F(ExampleReaderTest, ARecordThatIsNoExampleIsNamed) {
  EXPECT_THAT(data_error_of([&] {
                read_bytes(ExampleReader({{"label", FeatureKind::int64s}}), "\x0a\x7f");
              }),
              HasSubstr("[a.tfrecord: record 7 at byte 90] expected a tf.train.Example; "));
}

TEST(ExampleReader, RejectsInvalidRequests) {
  EXPECT_EQ(input_error_of([] {
              ExampleReader({{"a", FeatureKind::missing}});
            }),
            "[example reader] expected the kind of the feature a, got none");
  EXPECT_EQ(input_error_of([] {
              ExampleReader({{"a", FeatureKind::bytes}, {"a", FeatureKind::floats}});
            }),
            "[example reader] expected each feature once, got a twice");
  EXPECT_EQ(input_error_of([] {
              ExampleReader({{"a", FeatureKind::floats, 2, FloatList{1}}});
            }),
            "[example reader] expected 2 values of kind float in the feature a, also as the value "
            "of records without it; its default is 1 value of kind float");
  EXPECT_THAT(input_error_of([] {
                ExampleReader({{"a", FeatureKind::floats, 1, Int64List{1}}});
              }),
              HasSubstr("its default is 1 value of kind int64"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
