#include "lockstep/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, ErrorCategory::data, "here", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::data);
    return error.what();
  }
  return "accepted";
}

TEST(ParseJson, GivesWhatTheLibraryGives) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e3", R"("a\u00e9")", "[]", "{}",
        "[[1,[2]],{},[{}],3]", R"({"a":{"b":[1,{"c":null}]},"d":"e","f":[[],[]]})"})
    EXPECT_EQ(parse_json(text, ErrorCategory::input, "here"), nlohmann::json::parse(text)) << text;
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  EXPECT_EQ(refusal_of(R"({"a": })"),
            "[here] expected JSON, got a syntax error at byte 7 (line 1, column 7)");
  EXPECT_THAT(refusal_of(""), HasSubstr("a syntax error"));
  EXPECT_THAT(refusal_of("1 2"), HasSubstr("a syntax error"));
  EXPECT_THAT(refusal_of("\"\xff\""), HasSubstr("a syntax error"));
  EXPECT_EQ(refusal_of(R"({"a":1,"b":2,"a":3})"), "[here] expected JSON, got the key \"a\" twice");
}

TEST(ParseJson, RefusesNestingThatWouldExhaustTheStack) {
  const std::size_t depth = 1'000'000;
  EXPECT_EQ(refusal_of(std::string(depth, '[') + std::string(depth, ']')),
            "[here] expected JSON, got more than 64 levels of arrays and objects");
  EXPECT_EQ(refusal_of(std::string(64, '[') + std::string(64, ']')), "accepted");
  EXPECT_EQ(refusal_of("[[{}]]", {.depth = 2}),
            "[here] expected JSON, got more than 2 levels of arrays and objects");
}

TEST(ParseJson, RefusesMoreValuesAndBytesThanAllowed) {
  EXPECT_EQ(refusal_of("[1,2,3]", {.values = 4}), "accepted");
  EXPECT_EQ(refusal_of("[1,2,3]", {.values = 3}), "[here] expected JSON, got more than 3 values");
  EXPECT_EQ(refusal_of("[1,2,3]", {.bytes = 6}), "[here] expected JSON, got 7 bytes, more than 6");
}

TEST(DescribeJson, IsShortForAnyValue) {
  EXPECT_EQ(describe_json(1.5), "1.5");
  EXPECT_EQ(describe_json("text"), "\"text\"");
  EXPECT_EQ(describe_json(nlohmann::json::array({1, 2, 3})), "an array of 3");
  EXPECT_EQ(describe_json({{"a", 1}}), "an object of 1 key");
  EXPECT_LT(describe_json(std::string(1000, 'x')).size(), 50U);
  EXPECT_EQ(describe_json("a\xff"), "\"a\xEF\xBF\xBD\"");
}

TEST(DumpJson, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump_json(nlohmann::json{{"path", "d\xff/t"}}), "{\"path\":\"d\xEF\xBF\xBD/t\"}");
  EXPECT_EQ(dump_json(nlohmann::ordered_json{{"b", 1}, {"a", 2}}), R"({"b":1,"a":2})");
}

}  // namespace
}  // namespace lockstep
