#include "lockstep/base/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0 {
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

TEST(ParseJson, ParsesLikeTheLibrary) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e3", R"("a\u00e9")", "[]", "{}",
        "[[1,[2]],{},[{}],3]", R"({"a":{"b":[1,{"c":null}]},"d":"e","f":[[],[]]})"})
    EXPECT_EQ(parse_json(text, ErrorCategory::input, "here"), nlohmann::json::parse(text)) << text;
}

TEST(ParseJson, RejectsInvalidJson) {
  EXPECT_EQ(refusal_of(R"({"a": })"),
            "[here] expected JSON, got a syntax error at byte 7 (line 1, column 7)");
  EXPECT_THAT(refusal_of(""), HasSubstr("a syntax error"));
  EXPECT_THAT(refusal_of("1 2"), HasSubstr("a syntax error"));
  EXPECT_THAT(refusal_of("\"\xff\""), HasSubstr("a syntax error"));
  EXPECT_THAT(refusal_of("<!DOCTYPE html>"), HasSubstr("expected JSON, got an HTML page"));
  EXPECT_EQ(refusal_of(R"({"a":1,"b":2,"a":3})"), "[here] expected JSON, got the key \"a\" twice");
}

TEST(ParseJson, RejectsNestingThatWouldExhaustTheStack) {
  const std::size_t depth = 1'000'000;
  EXPECT_EQ(refusal_of(std::string(depth, '[') + std::string(depth, ']')),
            "[here] expected JSON, got more than 64 levels of arrays and objects");
  EXPECT_EQ(refusal_of(std::string(64, '[') + std::string(64, ']')), "accepted");
  EXPECT_EQ(refusal_of("[[{}]]", {.depth = 2}),
            "[here] expected JSON, got more than 2 levels of arrays and objects");
}

TEST(ParseJson, RejectsTooManyValuesAndBytes) {
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

template <typename T>
std::string reason_of(const nlohmann::json& value) {
  try {
    json_member<T>({{"key", value}}, "key");
  } catch (const std::invalid_argument& reason) {
    return reason.what();
  }
  return "accepted";
}

TEST(JsonMember, NamesKeyValueAndExpectedKind) {
  EXPECT_EQ(json_member<int>({{"key", -3}}, "key"), -3);
  EXPECT_EQ(json_member<double>({{"key", 3}}, "key"), 3.0);
  EXPECT_EQ(json_member<std::vector<std::string>>({{"key", {"a"}}}, "key").front(), "a");
  EXPECT_EQ(json_member({{"other", 1}}, "key", 5), 5);
  EXPECT_EQ(reason_of<int>("a"), "its \"key\" is \"a\", not an integer");
  EXPECT_EQ(reason_of<int>(1.5), "its \"key\" is 1.5, not an integer");
  EXPECT_EQ(reason_of<int>(true), "its \"key\" is true, not an integer");
  EXPECT_EQ(reason_of<int>(std::int64_t{1} << 40), "its \"key\" is 1099511627776, not an integer");
  EXPECT_EQ(reason_of<std::uint64_t>(-1), "its \"key\" is -1, not an integer of 0 or more");
  EXPECT_EQ(reason_of<std::uint64_t>(UINT64_MAX), "accepted");
  EXPECT_EQ(reason_of<std::int64_t>(UINT64_MAX),
            "its \"key\" is 18446744073709551615, not an integer");
  EXPECT_EQ(reason_of<bool>(1), "its \"key\" is 1, not true or false");
  EXPECT_EQ(reason_of<double>(nullptr), "its \"key\" is null, not a number");
  EXPECT_EQ(reason_of<std::string>(nlohmann::json::object()),
            "its \"key\" is an object of 0 keys, not a string");
  EXPECT_EQ(reason_of<std::vector<std::int64_t>>({1, 2.5}),
            "its \"key\" is an array of 2, not a list of integers");
  EXPECT_EQ((reason_of<std::array<double, 2>>(nlohmann::json::array({1}))),
            "its \"key\" is an array of 1, not a list of numbers");
  EXPECT_EQ(reason_of<nlohmann::json::object_t>(3), "its \"key\" is 3, not an object");
  EXPECT_EQ(reason_of<nlohmann::json::array_t>("a"), "its \"key\" is \"a\", not a list");
  EXPECT_THROW(json_member(nlohmann::json(7), "key", 5), std::invalid_argument);
}

TEST(DumpJson, EscapesAllControlCharacters) {
  const nlohmann::json value = {{"\x7f", "\x1b[m\xc2\x9b\xc2\xa0\xc3\xa9\x7f\x7f"}};
  const std::string text = dump_json(value);
  EXPECT_EQ(text, "{\"\\u007f\":\"\\u001b[m\\u009b\xc2\xa0\xc3\xa9\\u007f\\u007f\"}");
  EXPECT_EQ(nlohmann::json::parse(text), value);
  EXPECT_EQ(dump_json(nlohmann::json("\xc2\xa9")), "\"\xc2\xa9\"");
}

TEST(DumpJson, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump_json(nlohmann::json{{"path", "d\xff/t"}}), "{\"path\":\"d\xEF\xBF\xBD/t\"}");
  EXPECT_EQ(dump_json(nlohmann::ordered_json{{"b", 1}, {"a", 2}}), R"({"b":1,"a":2})");
}

}  // namespace
}  // namespace lockstep::inline v0
