// A list of fields, and what is derived from it.
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"

namespace lockstep::inline v0 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Shade { red, blue };

struct Inner {
  int count = 3;
};

struct Described {
  bool is_on = false;
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  float rate = 0.5F;
  double share = 0;
  Shade color = Shade::red;
  std::string name = {};
  std::filesystem::path file = {};
  std::optional<float> decay = {};
  std::vector<std::string> patterns = {};
  std::string twice = "a";
  Inner inner = {};
};

}  // namespace

template <>
inline constexpr auto kNamesOf<Shade> =
    enum_names<Shade>({{Shade::red, "red"}, {Shade::blue, "blue"}, {Shade::red, "rot"}});

template <>
struct Fields<Inner> {
  static constexpr std::tuple list{Field{&Inner::count, {"count", {}, {}, Role::agree}}};
};

template <>
struct Fields<Described> {
  static constexpr std::tuple list{
      Field{&Described::is_on, {"is_on", {}, "Whether it is on"}},
      Field{&Described::steps,
            {"steps", {}, {}, Role::resume_warn, "number of steps"},
            {.min = 0, .max = 100}},
      Field{&Described::seed, {"seed", {}, {}, Role::resume_exact}},
      Field{&Described::rate, {"rate", {}, "Rate"}, {.min = 0}},
      Field{
          &Described::share, {"share", {}, "Share"}, {.min = 0, .max = 1}, {.needs = "color=blue"}},
      Field{&Described::color, {"color", {}, "Shade"}},
      Field{&Described::name, {"name", {}, "Name"}},
      Field{&Described::file, {"file", {}, "File"}, {}, {.needs = "name"}},
      Field{&Described::decay, {"decay", {}, "Decay"}, {{.min = 0}}},
      Field{&Described::patterns, {"patterns", {}, "Patterns"}},
      TextField<Described>{
          {"twice", {}, "A text that is stored twice"},
          [](Described& object, std::string_view /*name*/, std::span<const std::string> values) {
            object.twice = values.back() + values.back();
          },
          [](const Described& object) { return std::vector{object.twice}; }},
      Part{&Described::inner}};
};

namespace {

template <typename Body>
std::string error_of_fields(const Body& body) try {
  body();
  return "none";
} catch (const Error& error) {
  return error.what();
}

BoundField field(const std::vector<BoundField>& fields, std::string_view key) {
  for (const BoundField& one : fields)
    if (one.text->key == key) return one;
  ADD_FAILURE() << key;
  return {};
}

std::string parsed(std::string_view key, std::vector<std::string> values) {
  Described object;
  const BoundField one = field(fields_of(object), key);
  one.parse(one.option(), values);
  return one.print();
}

TEST(Fields, ReadAndPrintEachType) {
  struct Case {
    const char* key;
    std::vector<std::string> texts;
    const char* printed;
  };
  for (const Case& one : {Case{"is_on", {"true"}, "true"},
                          {"steps", {"7", "9"}, "9"},
                          {"seed", {"18446744073709551615"}, "18446744073709551615"},
                          {"rate", {"0.1"}, "0.1"},
                          {"share", {"1e-3"}, "0.001"},
                          {"color", {"rot"}, "red"},
                          {"name", {"a,b"}, "a,b"},
                          {"file", {"x/y"}, "x/y"},
                          {"decay", {"0"}, "0"},
                          {"decay", {""}, ""},
                          {"patterns", {"a,b", "c"}, "a,b,c"},
                          {"patterns", {""}, ""},
                          {"twice", {"b"}, "bb"},
                          {"count", {"-4"}, "-4"}})
    EXPECT_EQ(parsed(one.key, one.texts), one.printed) << one.key;
}

TEST(Fields, RejectInvalidValues) {
  struct Case {
    const char* key;
    const char* text;
    const char* error;
  };
  for (const Case& one :
       {Case{"is_on", "yes", "expected --is-on to be true or false, got \"yes\""},
        {"steps", "1.5", "expected --steps to be a whole number, written in digits, got \"1.5\""},
        {"steps", "101", "expected --steps to be from 0 to 100, got 101"},
        {"seed", "-1", "expected --seed to be a whole number from 0 to 2^64 - 1, got \"-1\""},
        {"rate", "-0.5", "expected --rate to be at least 0, got -0.5"},
        {"rate", "inf", "expected --rate to be a number, got \"inf\""},
        {"share", "nan", "expected --share to be a number, got \"nan\""},
        {"share", "2", "expected --share to be from 0 to 1, got 2"},
        {"color", "blu", "[color] expected red or blue, got \"blu\" (did you mean blue?)"},
        {"decay", "-1", "expected --decay to be at least 0, got -1"},
        {"count", "4294967296",
         "expected --count to be from -2147483648 to 2147483647, got 4294967296"}})
    EXPECT_THAT(error_of_fields([&] { parsed(one.key, {one.text}); }), HasSubstr(one.error));
}

TEST(Fields, HaveKindRangeAndDefault) {
  Described object{.steps = 5};
  const std::vector<BoundField> fields = fields_of(std::as_const(object));
  EXPECT_EQ(field(fields, "steps").kind, FieldKind::integer);
  EXPECT_EQ(field(fields, "steps").min, "0");
  EXPECT_EQ(field(fields, "steps").max, "100");
  EXPECT_THAT(field(fields, "steps").standard, ElementsAre("0"));
  EXPECT_FALSE(field(fields, "steps").is_standard());
  EXPECT_EQ(std::get<double>(field(fields, "steps").value()), 5);
  EXPECT_EQ(field(fields, "rate").max, "");
  EXPECT_THAT(field(fields, "color").choices, ElementsAre("red", "blue"));
  EXPECT_EQ(std::get<std::string>(field(fields, "color").value()), "red");
  EXPECT_EQ(field(fields, "decay").kind, FieldKind::number);
  EXPECT_EQ(field(fields, "patterns").kind, FieldKind::list);
  EXPECT_FALSE(std::get<bool>(field(fields, "is_on").value()));
  EXPECT_EQ(field(fields, "steps").label(), "number of steps");
  EXPECT_EQ(field(fields, "is_on").option(), "--is-on");
}

TEST(Fields, AreComparedByTheirRole) {
  const Described object;
  const std::vector<BoundField> fields = fields_of(object);
  EXPECT_EQ(lines_of(fields), "number of steps: 0\nseed: 1\ncount: 3\n");
  EXPECT_EQ(lines_of(fields, Role::resume_exact), "seed: 1\n");
}

TEST(Fields, CheckNeeds) {
  Described object{.share = 0.5};
  EXPECT_THAT(error_of_fields([&] { check_needs(fields_of(object)); }),
              HasSubstr("expected --color blue with --share, got red"));
  object.color = Shade::blue;
  check_needs(fields_of(object));
  object.file = "x";
  EXPECT_THAT(error_of_fields([&] { check_needs(fields_of(object)); }),
              HasSubstr("expected --name with --file; it was not given"));
  object.name = "n";
  check_needs(fields_of(object));
}

TEST(Fields, AreCheckedWithoutACommandLine) {
  Described object{.steps = 101};
  const auto error = [&] {
    return error_of_fields([&] { check_fields("here", fields_of(std::as_const(object))); });
  };
  EXPECT_EQ(error(), "[here] expected steps to be from 0 to 100, got 101");
  object = {.rate = -1};
  EXPECT_EQ(error(), "[here] expected rate to be at least 0, got -1");
  object = {.share = 0.5};
  EXPECT_EQ(error(), "[here] expected color blue with share, got red");
  object.color = Shade::blue;
  EXPECT_EQ(error(), "none");
}

}  // namespace
}  // namespace lockstep::inline v0
