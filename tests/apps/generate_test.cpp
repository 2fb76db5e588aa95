// lockstep generate: continues text with the checkpoint of a training.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/lockstep/generate/generated_text.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/data/text/tokenizer.h"
#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

class Generate : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return scratch_.path() / name; }

  /// Trains a small network on the letters a to h, again and again.
  void train(const std::string& options = "") {
    std::ofstream text(path("letters"));
    for (int i = 0; i < 200; ++i) text << "abcdefgh";
    text.close();
    const Result result = run_lockstep(
        fmt::format("train --model gpt:1x16 --data text:{}:length=12,stride=1{} --global-batch 20 "
                    "--steps 400 --learning-rate 0.01 --quiet --checkpoint-dir {}",
                    path("letters"), options, path("run")));
    ASSERT_EQ(result.status, 0) << result.errors;
  }
  std::string generate(const std::string& options) const {
    return fmt::format("generate --checkpoint {} {}", path("run"), options);
  }

  checkpoint::ScratchDirectory scratch_;
};

TEST_F(Generate, ContinuesPromptAsTrained) {
  train();
  const Result greedy = run_lockstep(generate("--prompt cd --tokens 20 --temperature 0"));
  ASSERT_EQ(greedy.status, 0) << greedy.errors;
  EXPECT_EQ(greedy.output, "cdefghabcdefghabcdefgh\n") << "longer than the network reads at once";
  EXPECT_THAT(greedy.errors, HasSubstr("lockstep: generated 20 tokens in "));

  const Result quiet =
      run_lockstep(generate("--prompt ab --tokens 3 --top-k 1 --quiet --output " + path("text")));
  EXPECT_EQ(quiet.output + quiet.errors, "");
  EXPECT_EQ(checkpoint::contents_of(path("text")), "abcde");

  const Result json =
      run_lockstep(generate("--prompt abcdefghabcdefgha --tokens 5 --top-p 0 --json"));
  const nlohmann::json event = json.event("generate");
  EXPECT_EQ(json.events().size(), 1U);
  EXPECT_EQ(event["prompt"], "abcdefghabcdefgha");
  EXPECT_EQ(event["text"], "bcdef");
  EXPECT_EQ(event["tokens"], 5);
  EXPECT_EQ(event["stop"], "length");
  EXPECT_EQ(event["step"], 400);
  EXPECT_GT(event["tokens_per_second"].get<double>(), 0);
}

TEST_F(Generate, IsReproducibleOnAnyNumberOfThreads) {
  train();
  const auto drawn = [&](int seed, int threads) {
    std::vector<std::string> command = {"env", fmt::format("OMP_THREAD_LIMIT={}", threads),
                                        fmt::format("OMP_NUM_THREADS={}", threads)};
    const auto program = lockstep(
        generate(fmt::format("--prompt a --tokens 60 --temperature 8 --quiet --seed {}", seed)));
    command.insert(command.end(), program.begin(), program.end());
    return run(command).output;
  };
  const std::string text = drawn(1, 1);
  EXPECT_EQ(text.size(), 62U) << text;
  for (const int threads : {2, 4}) EXPECT_EQ(drawn(1, threads), text) << threads << " threads";
  EXPECT_NE(drawn(2, 1), text);
}

TEST_F(Generate, ReadsTokenizerFromCheckpoint) {
  std::ofstream vocabulary(path("vocab.txt"));
  for (const char* token : {"[UNK]", "[SEP]", "ab", "##cd", "##ef", "##gh"})
    vocabulary << token << '\n';
  vocabulary.close();
  std::ofstream text(path("words"));
  for (int i = 0; i < 40; ++i) text << "abcdefgh ";
  text.close();
  const Result training = run_lockstep(fmt::format(
      "train --model gpt:1x16 --data text:{}:length=8,stride=1,tokenizer={} --global-batch 20 "
      "--steps 100 --learning-rate 0.01 --quiet --checkpoint-dir {}",
      path("words"), path("vocab.txt"), path("run")));
  ASSERT_EQ(training.status, 0) << training.errors;
  const std::string command = generate("--prompt ab --tokens 3 --temperature 0");
  const std::string evaluate =
      fmt::format("evaluate --checkpoint {} --data text:{}", path("run"), path("words"));
  const Result before = run_lockstep(command);
  ASSERT_EQ(before.status, 0) << before.errors;
  EXPECT_EQ(before.errors.find("tokenizer"), std::string::npos) << before.errors;
  EXPECT_EQ(run_lockstep(evaluate).status, 0);

  std::filesystem::rename(path("vocab.txt"), path("elsewhere"));
  const std::string message = "using the tokenizer in the checkpoint: " + path("vocab.txt");
  const Result after = run_lockstep(command);
  ASSERT_EQ(after.status, 0) << after.errors;
  EXPECT_EQ(after.output, before.output);
  EXPECT_NE(run_lockstep(generate("--tokens 3 --temperature 0 --quiet")).output.front(), ' ')
      << "[SEP], which it begins with, is no word before the text";
  EXPECT_THAT(after.errors, HasSubstr(message + " is missing"));
  std::ofstream(path("vocab.txt")) << "[UNK]\n";
  const Result evaluated = run_lockstep(evaluate);
  EXPECT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_THAT(evaluated.errors, HasSubstr(message + " has changed"));
}

TEST_F(Generate, WritesUtf8EvenFromBytes) {
  train(",tokenizer=bytes");
  const Result result =
      run_lockstep(generate("--prompt \xC3\xA9 --tokens 40 --temperature 50 --seed 3 --json"));
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto text = result.event("generate")["text"].get<std::string>();
  EXPECT_THAT(text, HasSubstr("\xEF\xBF\xBD")) << "of 256 bytes that are almost equally probable";
  std::string rest = text;
  EXPECT_EQ(extract_characters(rest), text);
}

TEST_F(Generate, WritesLinePerSource) {
  std::ofstream words(path("words.csv"));
  words << "word,reversed\n";
  for (const std::string first : {"", "a", "b", "c"})
    for (const std::string second : {"", "a", "b", "c"})
      for (const std::string third : {"a", "b", "c"})
        if (!second.empty() || first.empty())
          words << first << second << third << "," << third << second << first << "\n";
  words.close();
  const Result trained = run_lockstep(
      fmt::format("train --model seq2seq:1x32 --data text:{}:source=word,target=reversed,length=3,"
                  "target-length=4 --global-batch 39 --steps 300 --learning-rate 0.01 --quiet "
                  "--checkpoint-dir {}",
                  path("words.csv"), path("run")));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  std::ofstream(path("sources")) << "abc\nab\r\ncca\nabcab\n";
  const std::string expected = "cba\nba\nacc\ncba\n";
  const Result found = run_lockstep(generate("--beams 3 --source-file " + path("sources")));
  EXPECT_EQ(found.output, expected);
  EXPECT_THAT(found.errors, HasSubstr("lockstep: generated 4 texts of 11 tokens in "));
  EXPECT_THAT(found.errors, HasSubstr("; 1 longer source cut"));
  EXPECT_EQ(run_lockstep(generate("--temperature 0 --quiet --source-file " + path("sources") +
                                  " --output " + path("text")))
                .output,
            "");
  EXPECT_EQ(checkpoint::contents_of(path("text")), expected);

  const nlohmann::json event =
      run_lockstep(generate("--source bca --prompt a --beams 2 --json")).event("generate");
  EXPECT_EQ(event["source"], "bca");
  EXPECT_EQ(event["text"], "cb") << "after the prompt";
  EXPECT_EQ(event["stop"], "end");
  EXPECT_EQ(event["source_is_cut"], false);

  std::ofstream(path("sources")) << "abc\n\n";
  for (const auto& [options, message] :
       {std::pair<std::string, std::string>{
            "--source-file " + path("sources"),
            "sources: line 2] expected a text of at least one token; the text is empty"},
        {"--source abx", "[source] expected characters of the training text"},
        {"--source a --prompt abcab",
         "[prompt] expected fewer than 4 tokens, as many as the network reads, got 5"},
        {"",
         "[source] expected --source TEXT or --source-file FILE for a model of pairs of "
         "texts, got neither"}}) {
    const Result refused = run_lockstep(generate(options));
    EXPECT_EQ(refused.status, 2) << options;
    EXPECT_THAT(refused.errors, HasSubstr(message));
  }
  std::vector<std::string> piped = {"sh", "-c", "printf 'abc\\n\\n' | \"$0\" \"$@\""};
  const auto program = lockstep(generate("--source-file -"));
  piped.insert(piped.end(), program.begin(), program.end());
  EXPECT_THAT(run(piped).errors, HasSubstr("[standard input: line 2] expected a text of at least"));
}

TEST_F(Generate, FindsMostProbableTextWithBeams) {
  train();
  const Result result = run_lockstep(generate("--prompt cd --tokens 6 --beams 3 --json"));
  ASSERT_EQ(result.status, 0) << result.errors;
  const nlohmann::json event = result.event("generate");
  EXPECT_EQ(event["text"], "efghab");
  EXPECT_EQ(event["tokens"], 6);
  EXPECT_LT(event["log_probability"].get<double>(), 0);
  EXPECT_EQ(event["score"], event["log_probability"]) << "without a length penalty";
  EXPECT_EQ(run_lockstep(generate("--prompt cd --tokens 6 --beams 1 --quiet")).output,
            "cdefghab\n");
}

TEST_F(Generate, RejectsSourceForModelWithoutPairs) {
  train();
  const Result result = run_lockstep(generate("--source abc"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              HasSubstr("[source] expected a model of pairs of texts (--data "
                        "text:FILE:source=A,target=B); it was trained on texts without sources"));
}

TEST_F(Generate, RejectsUnreadablePrompts) {
  train();
  for (const auto& [prompt, message] :
       {std::pair{"--prompt abxy",
                  "[prompt] expected characters of the training text (tokenizer=bytes reads any "
                  "text), got U+0078 at offset 2"},
        std::pair{"",
                  "[prompt] expected --prompt TEXT, because the tokenizer (chars) has no token "
                  "between texts to begin with, got no text"}}) {
    const Result result = run_lockstep(generate(prompt));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr(message));
    EXPECT_EQ(result.output, "");
  }
  const Result image = run_lockstep(generate("--image a.png"));
  EXPECT_EQ(image.status, 2);
  EXPECT_THAT(
      image.errors,
      HasSubstr("[image] expected a model of captions (--data text:FILE:image=A,target=B); it "
                "was trained on texts without images"));
  const Result several = run_lockstep(generate("--prompt a --devices cpu:0,cpu:0"));
  EXPECT_EQ(several.status, 2);
  EXPECT_THAT(several.errors,
              HasSubstr("[devices] expected one device, such as gpu:0, got \"cpu:0,cpu:0\""));
}

TEST_F(Generate, RejectsOtherModels) {
  ASSERT_EQ(
      run_lockstep("train --model linear --quiet --checkpoint-dir " + path("run") + kData).status,
      0);
  const Result result = run_lockstep(generate("--prompt a"));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors,
              HasSubstr("expected a model that was trained on text (--data text:FILES); it was "
                        "trained on other data"));
}

TEST(ExtractCharacters, KeepsIncompleteCharacter) {
  const std::string unknown = "\xEF\xBF\xBD";
  for (const auto& [bytes, text, rest] : {
           std::tuple<std::string, std::string, std::string>{"abc", "abc", ""},
           {"a\xC3", "a", "\xC3"},
           {"\xC3\xA9x", "\xC3\xA9x", ""},
           {"\xE2\x82", "", "\xE2\x82"},
           {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", ""},
           {"\xF0\x9F\x98", "", "\xF0\x9F\x98"},
           {"\xFFz", unknown + "z", ""},
           {"\xE2(", unknown + "(", ""},
           {"\xC0\x80", unknown + unknown, ""},                // overlong form of U+0000
           {"\xED\xA0\x80", unknown + unknown + unknown, ""},  // a surrogate
           {"\xF4\x90", unknown + unknown, ""},                // above U+10FFFF
       }) {
    std::string left = bytes;
    EXPECT_EQ(extract_characters(left), text) << bytes;
    EXPECT_EQ(left, rest) << bytes;
  }
}

TEST(GeneratedText, OmitsTokensBeyondVocabulary) {
  GeneratedText text(std::make_shared<data::BytesTokenizer>(), std::nullopt);
  EXPECT_EQ(text.add(256), "");
  EXPECT_EQ(text.add('y'), "y");
  EXPECT_EQ(text.add(257), "");
  EXPECT_EQ(text.add('z'), "z");
}

TEST(GeneratedText, CompletesCharactersOfSeveralTokens) {
  GeneratedText text(std::make_shared<data::BytesTokenizer>(), 'x');
  EXPECT_EQ(text.add(0xC3), "");
  EXPECT_EQ(text.add(0xA9), "\xC3\xA9");
  EXPECT_EQ(text.add('y'), "y");
  EXPECT_EQ(text.add(0xE2), "");
  EXPECT_EQ(text.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(text.finish(), "");
}

TEST(GeneratedText, IsTheTextOfAllTokens) {
  // Whether a SentencePiece token begins with a space depends on its predecessors.
  for (const auto& [name, space] :
       {std::pair{"unigram", 6}, {"bpe", 526}, {"bare", 125}}) {  // the space alone is likely
    const auto tokenizer = data::TextSchema::for_tokenizer(
                               fmt::format(LOCKSTEP_SOURCE_DIR "/tests/reference/sentencepiece_{}"
                                                               ".model",
                                           name))
                               .open();
    const std::int64_t kinds = tokenizer->vocabulary_size();
    for (std::uint32_t seed = 1; seed <= 50; ++seed) {
      std::minstd_rand random(seed);
      std::vector<std::int32_t> tokens(30);
      for (std::int32_t& token : tokens) {
        const auto number = static_cast<std::int64_t>(random()) % (2 * kinds);
        token = number < kinds ? static_cast<std::int32_t>(number) : space;
      }
      GeneratedText pieces(tokenizer, std::nullopt);
      std::string text;
      for (const std::int32_t token : tokens) text += pieces.add(token);
      text += pieces.finish();
      std::string whole = tokenizer->decode(tokens);
      const std::string expected = extract_characters(whole);
      EXPECT_EQ(text, whole.empty() ? expected : expected + "\xEF\xBF\xBD") << name << ' ' << seed;
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
