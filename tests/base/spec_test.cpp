#include "lockstep/base/fields/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// "key=a|b" for each item.
std::vector<std::string> items_of(const Spec& spec) {
  std::vector<std::string> texts;
  for (const SpecItem& item : spec.items())
    texts.push_back(fmt::format("{}={}", item.key, fmt::join(item.values, "|")));
  return texts;
}

template <typename Action>
std::string spec_error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

TEST(Spec, HasAKindPositionalValuesAndKeys) {
  struct Case {
    const char* text;
    const char* head;
    std::vector<std::string> items;
  };
  const Case cases[] = {
      {"mlp", "mlp", {}},
      {"mlp:10,20", "mlp", {"=10", "=20"}},
      {"gpt:4x128,dropout=0.1", "gpt", {"=4x128", "dropout=0.1"}},
      {"csv:drop=a+b c", "csv", {"drop=a|b c"}},
      {"csv:label='x,y'", "csv", {"label=x,y"}},
      {"csv:label=\"it's\"", "csv", {"label=it's"}},
      {"csv:label=it's", "csv", {"label=it's"}},
      {"csv:label='it''s'+'a=b:c'", "csv", {"label=it's|a=b:c"}},
      {"csv:label=''", "csv", {"label="}},
      {"'a:b':max", "a:b", {"=max"}},
      {"f:x=1e+5", "f", {"x=1e|5"}},
  };
  for (const Case& one : cases) {
    const Spec spec = Spec::parse("here", one.text);
    EXPECT_EQ(spec.head(), one.head) << one.text;
    EXPECT_EQ(items_of(spec), one.items) << one.text;
  }
}

TEST(Spec, RejectsInvalidSyntax) {
  const std::pair<const char*, const char*> cases[] = {
      {"mlp:", "expected a value before and after each colon and comma, got \"mlp:\""},
      {"mlp:1,,2", "expected a value before and after each colon and comma"},
      {"mlp:1,", "expected a value before and after each colon and comma"},
      {"csv:label=", "expected label=VALUE; label='' is the empty one, got \"label=\""},
      {"csv:label=a,label=b", "expected label= once, got \"label=a\" and \"label=b\""},
      {"csv:label=a:b",
       "expected commas between values, and quotes around one with : or =, as in "
       "label='a:b', got \"label=a:b\""},
      {"csv:label=a=b,drop=c", "got \"label=a=b\""},
      {"s:8x8:4", "expected commas between values"},
      {"csv:label='a", "expected ' at the end of a quoted value, got 'a"},
      {"csv:label='a'b", "expected one of , : = + after a quoted value"},
      {"'a'b:c", "expected one of , : = + after a quoted value"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_THAT(spec_error_of([&] { Spec::parse("here", text); }),
                ::testing::AllOf(StartsWith("[here] "), HasSubstr(message)))
        << text;
}

TEST(Spec, ReadsTypedValues) {
  Spec spec = Spec::parse("here", "f:max,4x5,n=3,x=1e+2,words=a+b,name='p+q',on=yes");
  int n = 0;
  float x = 0;
  std::optional<double> absent;
  std::vector<std::string> words;
  std::string name;
  bool on = false;
  constexpr auto kNames = enum_names<bool>({{true, "yes"}, {false, "no"}});
  EXPECT_TRUE(spec.take("max"));
  EXPECT_FALSE(spec.take("min"));
  EXPECT_EQ(parse_extents(*spec.next("SIZES")), (std::vector<std::int64_t>{4, 5}));
  EXPECT_FALSE(spec.next("SIZES"));
  EXPECT_TRUE(spec.read("n", n, 1, 3));
  EXPECT_TRUE(spec.read("x", x, 0));
  EXPECT_FALSE(spec.read("absent", absent));
  EXPECT_TRUE(spec.read("words", words));
  EXPECT_TRUE(spec.read("name", name));
  EXPECT_TRUE(spec.read("on", on, kNames));
  spec.finish();
  EXPECT_EQ(n, 3);
  EXPECT_EQ(x, 100);
  EXPECT_FALSE(absent);
  EXPECT_THAT(words, ElementsAre("a", "b"));
  EXPECT_EQ(name, "p+q");
  EXPECT_TRUE(on);
}

TEST(Spec, RejectsUnknownValuesAndKeys) {
  const auto refusal = [](const char* text) {
    return spec_error_of([&] {
      Spec spec = Spec::parse("here", text);
      int patience = 0;
      double rate = 0;
      bool on = false;
      constexpr auto kNames = enum_names<bool>({{true, "yes"}, {false, "no"}});
      spec.take("max");
      spec.read("patience", patience, 1, 9);
      spec.read("rate", rate, 0);
      spec.read("on", on, kNames);
      spec.finish();
    });
  };
  EXPECT_EQ(refusal("f:patience=0"),
            "[here] expected patience to be a whole number from 1 to 9, got \"patience=0\"");
  EXPECT_EQ(refusal("f:patience=2.5"),
            "[here] expected patience to be a whole number from 1 to 9, got \"patience=2.5\"");
  EXPECT_EQ(refusal("f:rate=nan"),
            "[here] expected rate to be a number of at least 0, got \"rate=nan\"");
  EXPECT_EQ(refusal("f:on=ye"), "[here: on] expected yes or no, got \"ye\" (did you mean yes?)");
  EXPECT_EQ(refusal("f:patince=3"),
            "[here] expected max, patience=, rate= or on= as settings of f, got \"patince\" (did "
            "you mean patience?)");
  EXPECT_EQ(refusal("f:maxx"),
            "[here] expected max, patience=, rate= or on= as settings of f, got \"maxx\" (did you "
            "mean max?)");
  EXPECT_THAT(refusal("f:rate=1,2"), HasSubstr("got \"2\" (a list is written rate=1+2)"));
  EXPECT_EQ(spec_error_of([] { Spec::parse("here", "cnn:x").finish(); }),
            "[here] expected cnn without settings, got \"x\"");
}

TEST(Spec, EndsAPatternBeforeTheFirstKey) {
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {"fc/*:lr=1", {"fc/*", "lr=1"}},
      {"kernel:0*:lr=1", {"kernel:0*", "lr=1"}},
      {"t.json:steps=1-2", {"t.json", "steps=1-2"}},
      {"a:b.json", {"a:b.json", ""}},
      {"'a:lr=1':lr=2", {"a:lr=1", "lr=2"}},
  };
  for (const auto& [text, parts] : cases) {
    const Spec spec = Spec::of_pattern("here", text);
    EXPECT_EQ(spec.head(), parts.first) << text;
    EXPECT_EQ(fmt::format("{}", fmt::join(items_of(spec), ",")), parts.second) << text;
  }
}

class SpecPath : public ::testing::Test {
 protected:
  SpecPath() { std::filesystem::create_directories(directory_ / "run:1"); }
  ~SpecPath() override { std::filesystem::remove_all(directory_); }

  void touch(const char* name) const { std::ofstream(directory_ / name) << "x"; }
  /// The path relative to the directory, and the items.
  std::pair<std::string, std::vector<std::string>> read(const std::string& text) const {
    const Spec spec = Spec::of_path("here", (directory_ / text).string(), {"train", "test"});
    return {spec.head().substr(directory_.string().size() + 1), items_of(spec)};
  }

  const std::filesystem::path directory_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("lockstep_spec_{}", ::getpid());
};

using Parts = std::pair<std::string, std::vector<std::string>>;

TEST_F(SpecPath, IsTheLongestExistingOne) {
  for (const char* name : {"a.csv", "a", "a:b.csv", "a:label=b", "my?data.csv", "p*.csv", "x.txt"})
    touch(name);
  EXPECT_EQ(read("a.csv"), (Parts{"a.csv", {}}));
  EXPECT_EQ(read("a.csv:label=b"), (Parts{"a.csv", {"label=b"}}));
  EXPECT_EQ(read("a:b.csv"), (Parts{"a:b.csv", {}}));
  EXPECT_EQ(read("a:b.csv:label=c"), (Parts{"a:b.csv", {"label=c"}}));
  EXPECT_EQ(read("a:label=b"), (Parts{"a:label=b", {}}));
  EXPECT_EQ(read("a:label=b:label=c"), (Parts{"a:label=b", {"label=c"}}));
  EXPECT_EQ(read("a:label=c"), (Parts{"a", {"label=c"}}));
  EXPECT_EQ(read("my?data.csv:label=c"), (Parts{"my?data.csv", {"label=c"}}));
  EXPECT_EQ(read("p*.csv"), (Parts{"p*.csv", {}}));
  EXPECT_EQ(read("run:1:train"), (Parts{"run:1", {"=train"}}));
  EXPECT_EQ(read("run:1"), (Parts{"run:1", {}}));
}

TEST_F(SpecPath, MayBeAPatternThatMatchesAFile) {
  touch("x:1.txt");
  EXPECT_EQ(read("x:*.txt:length=8"), (Parts{"x:*.txt", {"length=8"}}));
  EXPECT_EQ(read("x:?.txt"), (Parts{"x:?.txt", {}}));
}

TEST_F(SpecPath, EndsBeforeAKeyIfThereIsNoFile) {
  EXPECT_EQ(read("no.csv:label=b"), (Parts{"no.csv", {"label=b"}}));
  EXPECT_EQ(read("no:train"), (Parts{"no", {"=train"}}));
  EXPECT_EQ(read("no:b.csv"), (Parts{"no:b.csv", {}}));
  EXPECT_EQ(read("C:\\data\\x.csv:label=b"), (Parts{"C:\\data\\x.csv", {"label=b"}}));
  const Spec quoted = Spec::of_path("here", "'a:b=c.csv':label=d");
  EXPECT_EQ(quoted.head(), "a:b=c.csv");
  EXPECT_EQ(items_of(quoted), (std::vector<std::string>{"label=d"}));
}

TEST_F(SpecPath, StatesTheSpellingForOtherSeparators) {
  touch("a.csv");
  const std::string path = (directory_ / "a.csv").string();
  EXPECT_EQ(spec_error_of([&] { Spec::of_path("here", path + "?label=a&drop=b,c"); }),
            fmt::format("[here] expected options after a colon, with commas between them: "
                        "{0}:label=a,drop=b+c, got \"{0}?label=a&drop=b,c\"",
                        path));
  EXPECT_EQ(spec_error_of([&] { Spec::of_path("here", path + ",label=a,drop=b"); }),
            fmt::format("[here] expected options after a colon, with commas between them: "
                        "{0}:label=a,drop=b, got \"{0},label=a,drop=b\"",
                        path));
  EXPECT_EQ(Spec::of_path("here", "no.csv,label=a").head(), "no.csv,label=a");
}

TEST(Spec, SplitsListsUnlessAKeyFollows) {
  EXPECT_THAT(split_specs("here", "auc,f1:average=macro,beta=2,price:mae"),
              ElementsAre("auc", "f1:average=macro,beta=2", "price:mae"));
  EXPECT_THAT(split_specs("here", "a:b='x,y',c"), ElementsAre("a:b='x,y'", "c"));
  EXPECT_THAT(split_specs("here", "a,"), ElementsAre("a", ""));
  EXPECT_EQ(cut_spec("here", "price=mse:weight=2", '=')->first, "price");
  EXPECT_EQ(cut_spec("here", "price=mse:weight=2", '=')->second, "mse:weight=2");
  EXPECT_EQ(cut_spec("here", "'a=b'=mse", '=')->first, "a=b");
  EXPECT_FALSE(cut_spec("here", "huber:delta=2", '='));
  EXPECT_FALSE(cut_spec("here", "mse", '='));
}

TEST(Spec, RoundTrips) {
  std::mt19937 random(7);
  const auto text = [&] {
    constexpr std::string_view kLetters = "ab ,:=+'\"?&;(|\\*\xc3\xa9";
    std::string word;
    for (std::size_t length = random() % 6; word.size() < length;)
      word += kLetters[random() % kLetters.size()];
    return word;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string head = text();
    std::string written = quote_spec(head);
    std::vector<std::vector<std::string>> lists;
    for (std::size_t i = random() % 4; i > 0; --i) {
      std::vector<std::string> values;
      for (std::size_t j = 1 + random() % 3; j > 0; --j) values.push_back(text());
      const std::string key = random() % 2 == 0 ? "" : fmt::format("k{}=", i);
      written += fmt::format("{}{}{}", lists.empty() ? ":" : ",", key, quote_spec(values));
      lists.push_back(values);
    }
    const Spec spec = Spec::parse("here", written);
    EXPECT_EQ(spec.head(), head) << written;
    ASSERT_EQ(spec.items().size(), lists.size()) << written;
    for (std::size_t i = 0; i < lists.size(); ++i)
      EXPECT_EQ(spec.items()[i].values, lists[i]) << written;
  }
}

TEST(Spec, ReadsManyKeys) {
  std::string text = "csv:drop=c0";
  for (int i = 1; i < 80; ++i) text += fmt::format("+c{}", i);
  std::vector<std::string> columns;
  Spec spec = Spec::parse("here", text);
  spec.read("drop", columns);
  EXPECT_EQ(columns.size(), 80U);
  EXPECT_EQ(columns.back(), "c79");
}

}  // namespace
}  // namespace lockstep::inline v0
