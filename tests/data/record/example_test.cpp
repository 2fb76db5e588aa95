#include "lockstep/data/record/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <google/protobuf/stubs/logging.h>

#include <limits>
#include <random>

#include "example.pb.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A message parsed by libprotobuf, as an Example.
Example from_oracle(const lockstep_oracle::Example& message) {
  Example example;
  for (const auto& [name, feature] : message.features().feature()) {
    Feature& value = example[name];
    if (feature.has_bytes_list()) {
      const auto& list = feature.bytes_list().value();
      value = BytesList(list.begin(), list.end());
    } else if (feature.has_float_list()) {
      const auto& list = feature.float_list().value();
      value = FloatList(list.begin(), list.end());
    } else if (feature.has_int64_list()) {
      const auto& list = feature.int64_list().value();
      value = Int64List(list.begin(), list.end());
    }
  }
  return example;
}

lockstep_oracle::Example to_oracle(const Example& example) {
  lockstep_oracle::Example message;
  for (const auto& [name, value] : example) {
    auto& feature = (*message.mutable_features()->mutable_feature())[name];
    if (const auto* bytes = std::get_if<BytesList>(&value)) {
      for (const std::string& element : *bytes) feature.mutable_bytes_list()->add_value(element);
      feature.mutable_bytes_list();
    } else if (const auto* floats = std::get_if<FloatList>(&value)) {
      for (const float element : *floats) feature.mutable_float_list()->add_value(element);
      feature.mutable_float_list();
    } else if (const auto* integers = std::get_if<Int64List>(&value)) {
      for (const std::int64_t element : *integers) feature.mutable_int64_list()->add_value(element);
      feature.mutable_int64_list();
    }
  }
  return message;
}

Example every_kind() {
  return {{"bytes", BytesList{"", std::string("\0\xff", 2), "text"}},
          {"empty bytes", BytesList{}},
          {"empty floats", FloatList{}},
          {"empty integers", Int64List{}},
          {"floats", FloatList{0.0f, -0.0f, 1.5f, std::numeric_limits<float>::infinity()}},
          {"integers", Int64List{0, 1, -1, std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max()}},
          {"no kind", {}},
          {"", Int64List{3}}};
}

TEST(Example, SerializesToTheKnownBytes) {
  const std::string known = from_hex("0a100a0e0a056c6162656c12051a030a0107");
  EXPECT_EQ(serialize_example({{"label", Int64List{7}}}), known);
  EXPECT_EQ(parse_example(known), (Example{{"label", Int64List{7}}}));
}

TEST(Example, RoundTripsEveryKind) {
  EXPECT_EQ(parse_example(serialize_example(every_kind())), every_kind());
}

TEST(Example, ProtobufParsesSerializedExamples) {
  lockstep_oracle::Example message;
  ASSERT_TRUE(message.ParseFromString(serialize_example(every_kind())));
  EXPECT_EQ(from_oracle(message), every_kind());
}

TEST(Example, ParsesExamplesOfProtobuf) {
  EXPECT_EQ(parse_example(to_oracle(every_kind()).SerializeAsString()), every_kind());
}

TEST(Example, AnEmptyMessageHasNoFeatures) { EXPECT_EQ(parse_example(""), Example{}); }

// Messages that serialize_example() does not write: f(number, payload) is a length-delimited field.
std::string f(int number, const std::string& payload) {
  std::string field;
  field.push_back(static_cast<char>(number << 3 | 2));
  for (std::size_t size = payload.size();; size >>= 7) {
    field.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
    if (size <= 0x7f) break;
  }
  return field + payload;
}
std::string entry(const std::string& name, const std::string& feature) {
  return f(1, f(1, name) + f(2, feature));
}

struct WireCase {
  const char* name;
  std::string message;
  Example meaning;
};

std::ostream& operator<<(std::ostream& out, const WireCase& test) { return out << test.name; }
std::string name_of_case(const ::testing::TestParamInfo<WireCase>& info) { return info.param.name; }

class ExampleOnTheWire : public ::testing::TestWithParam<WireCase> {};

TEST_P(ExampleOnTheWire, MatchesProtobuf) {
  lockstep_oracle::Example message;
  ASSERT_TRUE(message.ParseFromString(GetParam().message));
  ASSERT_EQ(from_oracle(message), GetParam().meaning);
  EXPECT_EQ(parse_example(GetParam().message), GetParam().meaning);
}

std::vector<WireCase> wire_cases() {
  const std::string one = from_hex("0a0101");             // packed integers: 1
  const std::string two_unpacked = from_hex("08020803");  // 2, 3
  const std::string float_one = from_hex("0d0000803f");   // unpacked 1.0f
  const std::string float_packed = from_hex("0a0400000040");
  const std::string unknown =
      from_hex("2207") + "unknown" + from_hex("28ff013501020304390102030405060708");
  return {
      {"unpacked_integers", f(1, entry("a", f(3, two_unpacked))), {{"a", Int64List{2, 3}}}},
      {"packed_and_unpacked_integers",
       f(1, entry("a", f(3, one + two_unpacked + one))),
       {{"a", Int64List{1, 2, 3, 1}}}},
      {"packed_and_unpacked_floats",
       f(1, entry("a", f(2, float_one + float_packed))),
       {{"a", FloatList{1.0f, 2.0f}}}},
      {"last_of_one_name",
       f(1, entry("a", f(3, one)) + entry("b", f(3, one)) + entry("a", f(1, f(1, "x")))),
       {{"a", BytesList{"x"}}, {"b", Int64List{1}}}},
      {"last_of_one_name_has_no_kind", f(1, entry("a", f(3, one)) + entry("a", "")), {{"a", {}}}},
      {"two_features_messages",
       f(1, entry("a", f(3, one))) + f(1, entry("b", f(3, one))),
       {{"a", Int64List{1}}, {"b", Int64List{1}}}},
      {"value_before_key", f(1, f(1, f(2, f(3, one)) + f(1, "a"))), {{"a", Int64List{1}}}},
      {"no_key", f(1, f(1, f(2, f(3, one)))), {{"", Int64List{1}}}},
      {"no_value", f(1, f(1, f(1, "a"))), {{"a", {}}}},
      {"last_key_of_an_entry",
       f(1, f(1, f(1, "a") + f(1, "b") + f(2, f(3, one)))),
       {{"b", Int64List{1}}}},
      {"lists_of_one_kind_join",
       f(1, entry("a", f(3, one) + f(3, two_unpacked))),
       {{"a", Int64List{1, 2, 3}}}},
      {"a_later_kind_replaces",
       f(1, entry("a", f(3, one) + f(2, float_one) + f(3, two_unpacked))),
       {{"a", Int64List{2, 3}}}},
      {"values_of_an_entry_join",
       f(1, f(1, f(1, "a") + f(2, f(3, one)) + f(2, f(3, one)))),
       {{"a", Int64List{1, 1}}}},
      {"unknown_fields",
       unknown + f(1, unknown + f(1, f(1, "a") + unknown + f(2, unknown + f(3, unknown + one)))),
       {{"a", Int64List{1}}}},
      {"long_varint",
       f(1, entry("a", f(3, from_hex("08ffffffffffffffffff01")))),
       {{"a", Int64List{-1}}}},
  };
}

INSTANTIATE_TEST_SUITE_P(Example, ExampleOnTheWire, ::testing::ValuesIn(wire_cases()),
                         name_of_case);

TEST(Example, ATruncatedMessageIsMalformedOrMatchesProtobuf) {
  const google::protobuf::LogSilencer silent;
  const std::string whole = serialize_example(every_kind());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    lockstep_oracle::Example message;
    const std::string cut = whole.substr(0, length);
    if (message.ParseFromString(cut)) {
      EXPECT_EQ(parse_example(cut), from_oracle(message)) << length;
    } else {
      EXPECT_THROW(parse_example(cut), MalformedExample) << length;
    }
  }
}

TEST(Example, ADamagedMessageIsMalformedOrMatchesProtobuf) {
  const google::protobuf::LogSilencer silent;
  std::mt19937 random(7);
  const std::string whole = serialize_example(every_kind());
  int both_read = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string damaged = whole;
    for (int change = 0; change < 1 + trial % 3; ++change)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    lockstep_oracle::Example message;
    const bool oracle_reads = message.ParseFromString(damaged);
    try {
      const Example example = parse_example(damaged);
      if (oracle_reads && example.find("floats") != example.end()) {
        // Compared as messages, for which a NaN equals itself.
        EXPECT_EQ(serialize_example(example), serialize_example(from_oracle(message)))
            << "trial " << trial;
        ++both_read;
      }
    } catch (const MalformedExample&) {
    }
  }
  EXPECT_GT(both_read, 1000);
}

TEST(Example, PackedFloatsMustBeWhole) {
  EXPECT_THAT(data_error_of([] { parse_example(f(1, entry("a", f(2, from_hex("0a03000000"))))); }),
              HasSubstr("[tf.train.Example] expected a message in the protobuf wire format; packed "
                        "floats in 3 bytes"));
}

TEST(FeatureView, FindsFeaturesByName) {
  const std::string record = serialize_example(every_kind());
  const std::vector<std::string> names = {"integers", "nothing", "bytes", "floats", "no kind"};
  std::vector<FeatureView> features(names.size());
  find_features(record, names, features);
  EXPECT_EQ(features[0].kind(), FeatureKind::int64s);
  EXPECT_EQ(features[0].size(), 5u);
  EXPECT_EQ(features[0].single_int64(), std::nullopt);
  EXPECT_EQ(features[1].kind(), FeatureKind::missing);
  EXPECT_EQ(features[1].size(), 0u);
  EXPECT_EQ(features[2].bytes(2), "text");
  EXPECT_THROW(features[2].bytes(3), CheckFailure);
  std::vector<float> floats(4);
  features[3].copy_floats(floats);
  EXPECT_THAT(floats, ElementsAre(0.0f, 0.0f, 1.5f, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(features[4].kind(), FeatureKind::missing);
}

TEST(FeatureView, CanBeReused) {
  const std::vector<std::string> names = {"a"};
  std::vector<FeatureView> features(1);
  const std::string with = serialize_example({{"a", Int64List{4}}});
  const std::string without = serialize_example({{"b", Int64List{4}}});
  find_features(with, names, features);
  EXPECT_EQ(features[0].single_int64(), 4);
  find_features(without, names, features);
  EXPECT_EQ(features[0].kind(), FeatureKind::missing);
}

TEST(FeatureView, ReturnsTheOnlyText) {
  const auto only_text = [](const std::string& value) {
    const std::vector<std::string> names = {"a"};
    std::vector<FeatureView> features(1);
    const std::string record = f(1, entry("a", value));
    find_features(record, names, features);
    const auto text = features[0].single_bytes();
    return text ? std::optional<std::string>(*text) : std::nullopt;
  };
  const std::string one = f(1, f(1, "text"));
  const std::string none = f(1, "");
  const std::string number = f(3, from_hex("0802"));
  EXPECT_EQ(only_text(one), "text");
  EXPECT_EQ(only_text(none), std::nullopt);
  EXPECT_EQ(only_text(f(1, f(1, "text") + f(1, "more"))), std::nullopt);
  EXPECT_EQ(only_text(number), std::nullopt);
  // Lists of the same kind are joined; lists before one of another kind are ignored.
  EXPECT_EQ(only_text(one + none), "text");
  EXPECT_EQ(only_text(one + one), std::nullopt);
  EXPECT_EQ(only_text(one + number), std::nullopt);
  EXPECT_EQ(only_text(number + one), "text");
  EXPECT_EQ(only_text(one + number + one), "text");
}

TEST(FeatureView, ParsesValuesLazily) {
  const std::string record =
      f(1, entry("a", f(3, from_hex("0aff"))) + entry("b", f(3, from_hex("0802"))));
  const std::vector<std::string> names = {"a", "b"};
  std::vector<FeatureView> features(2);
  find_features(record, names, features);
  EXPECT_EQ(features[1].single_int64(), 2);
  EXPECT_THROW(features[0].size(), MalformedExample);
}

}  // namespace
}  // namespace lockstep::inline v0::data
