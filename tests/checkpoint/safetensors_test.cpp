// Compares files with literal bytes and with a file of the reference library, and tests invalid
// files.
#include "lockstep/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string with_length(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return scratch_.path() / "tensors.safetensors"; }

  /// What opening a file of these bytes throws, after the path.
  std::string refusal_of_bytes(const std::string& bytes) {
    overwrite(file(), bytes);
    const std::string message = checkpoint_error([&] { SafetensorsFile opened(file()); });
    const std::string where = fmt::format("[{}] ", file().string());
    return message.starts_with(where) ? message.substr(where.size()) : message;
  }
  std::string refusal(const std::string& header, const std::string& data = "") {
    return refusal_of_bytes(with_length(header, data));
  }

  ScratchDirectory scratch_;
};

TEST_F(Safetensors, WritesTheFormatByteForByte) {
  const std::vector<float> values{1.0f, -2.0f};
  const std::vector<std::int64_t> counts{3};
  const std::vector<TensorView> tensors{{"w", {2, 1}, std::span<const float>(values)},
                                        {"n", {1}, std::span<const std::int64_t>(counts)}};

  const FileDigest digest = write_safetensors(file(), tensors, {{"step", "7"}});

  // Eight-byte elements first; the header is padded with spaces to a multiple of 8.
  std::string header =
      R"({"__metadata__":{"step":"7"},"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("w":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data("\x03\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\xc0", 16);
  EXPECT_EQ(contents_of(file()), with_length(header, data));
  EXPECT_EQ(digest, digest_file(file()));
  EXPECT_EQ(digest.bytes, 8 + header.size() + 16);
}

TEST_F(Safetensors, BytesDoNotDependOnTheOrderOfTensors) {
  const std::vector<float> values{1, 2, 3};
  const TensorView a{"a", {1}, std::span<const float>(values).subspan(0, 1)};
  const TensorView b{"b", {2}, std::span<const float>(values).subspan(1, 2)};

  const FileDigest first = write_safetensors(file(), std::vector{a, b});
  const FileDigest second = write_safetensors(file(), std::vector{b, a});

  EXPECT_EQ(first, second);
}

TEST_F(Safetensors, ReadsBackWhatWasWritten) {
  std::vector<float> large(700'000);  // more than one write
  std::iota(large.begin(), large.end(), 0.5f);
  const std::vector<float> scalar{-0.0f};
  const std::vector<std::int64_t> counts{1, std::numeric_limits<std::int64_t>::min()};
  const std::vector<TensorView> tensors{
      {"layer/kernel", {700, 1000}, std::span<const float>(large)},
      {"scalar", {}, std::span<const float>(scalar)},
      {"nothing", {3, 0}, std::span<const float>()},
      {"sch\xc3\xb6n \"quoted\"", {2}, std::span<const std::int64_t>(counts)}};
  const FileDigest digest = write_safetensors(file(), tensors, {{"epoch", "1"}});

  const SafetensorsFile opened(file());

  EXPECT_EQ(digest, digest_file(file()));
  EXPECT_EQ(opened.metadata(), (TensorMetadata{{"epoch", "1"}}));
  ASSERT_EQ(opened.tensors().size(), 4u);
  std::vector<float> read(large.size());
  opened.read(*opened.find("layer/kernel"), read);
  EXPECT_EQ(read, large);
  read.resize(1);
  opened.read(*opened.find("scalar"), read);
  EXPECT_EQ(std::signbit(read[0]), true);
  EXPECT_THAT(opened.find("nothing")->shape, ElementsAre(3, 0));
  std::vector<std::int64_t> integers(2);
  opened.read(*opened.find("sch\xc3\xb6n \"quoted\""), integers);
  EXPECT_EQ(integers, counts);
  EXPECT_EQ(opened.find("absent"), nullptr);
}

TEST_F(Safetensors, SupportsAFileWithoutTensors) {
  write_safetensors(file(), {});
  EXPECT_TRUE(SafetensorsFile(file()).tensors().empty());
}

TEST_F(Safetensors, ReadsAFileOfThePythonLibrary) {
  const SafetensorsFile opened(std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                               "tests/reference/mlp.safetensors");
  ASSERT_FALSE(opened.tensors().empty());
  std::uint64_t floats = 0;
  for (const SafetensorsFile::Entry& entry : opened.tensors()) {
    if (entry.type != "F32") continue;
    std::vector<float> values(entry.bytes / sizeof(float));
    opened.read(entry, values);
    floats += values.size();
  }
  EXPECT_GT(floats, 0u);
}

TEST_F(Safetensors, ThePythonLibraryReadsOurs) {
  const char* python = std::getenv("LOCKSTEP_VENV_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "LOCKSTEP_VENV_PYTHON names no Python interpreter with safetensors and numpy";
  const std::string check =
      fmt::format("{} -c 'import safetensors.numpy, numpy' 2>/dev/null", python);
  if (std::system(check.c_str()) != 0) GTEST_SKIP() << python << " has no safetensors and numpy";
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> counts{-7};
  write_safetensors(
      file(),
      std::vector<TensorView>{{"dense/kernel", {2, 3}, std::span<const float>(values)},
                              {"none", {0}, std::span<const float>()},
                              {"count", {}, std::span<const std::int64_t>(counts)}},
      {{"step", "7"}});

  overwrite(scratch_.path() / "read.py",
            "import sys, safetensors, safetensors.numpy\n"
            "t = safetensors.numpy.load_file(sys.argv[1])\n"
            "assert t['dense/kernel'].tolist() == [[1, 2, 3], [4, 5, 6]], t\n"
            "assert t['none'].shape == (0,) and t['count'].shape == () and t['count'] == -7, t\n"
            "assert safetensors.safe_open(sys.argv[1], 'np').metadata() == {'step': '7'}\n");
  EXPECT_EQ(std::system(fmt::format("{} {} {}", python, (scratch_.path() / "read.py").string(),
                                    file().string())
                            .c_str()),
            0);
}

TEST_F(Safetensors, NamesAMissingFile) {
  EXPECT_THAT(
      checkpoint_error([&] { SafetensorsFile opened(file()); }),
      HasSubstr(
          "tensors.safetensors] expected a file that can be read; No such file or directory"));
}

TEST_F(Safetensors, RejectsTruncatedFiles) {
  EXPECT_EQ(refusal_of_bytes("\x03"),
            "expected 8 bytes with the length of the header; the file has 1");
  EXPECT_EQ(refusal_of_bytes(""), "expected 8 bytes with the length of the header; the file has 0");
  EXPECT_EQ(refusal_of_bytes(with_length("{}      ", "").substr(0, 12)),
            "expected 8 bytes of header; the file ends after 4");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234567"),
            "expected 8 bytes of tensors; the file has 7");
}

TEST_F(Safetensors, HeaderLengthIsLimited) {
  std::string bytes(8, '\0');
  const std::uint64_t length = 100'000'001;
  std::memcpy(bytes.data(), &length, 8);
  EXPECT_EQ(refusal_of_bytes(bytes + "{}"),
            "expected a header of at most 100000000 bytes, got 100000001");
}

TEST_F(Safetensors, RejectsHeadersThatAreNotJson) {
  EXPECT_EQ(refusal(" {}"), "expected a header that begins with {, got \" \"");
  EXPECT_EQ(refusal(""), "expected a header that begins with {, got \"\"");
  EXPECT_THAT(refusal("{\"a\":"), StartsWith("expected JSON, got a syntax error at byte "));
  EXPECT_THAT(refusal("{} x"), StartsWith("expected JSON, got a syntax error at byte "));
  EXPECT_THAT(refusal("{\"\xff\":1}"), StartsWith("expected JSON, got a syntax error at byte "));
}

TEST_F(Safetensors, RejectsDuplicateNames) {
  const std::string entry = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(refusal(R"({"a":)" + entry + R"(,"a":)" + entry + "}"),
            "expected JSON, got the key \"a\" twice");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0],"shape":[1],"data_offsets":[0,0]}})"),
            "expected JSON, got the key \"shape\" twice");
}

TEST_F(Safetensors, RejectsMembersOfTheWrongKind) {
  const std::string needed = "expected dtype, shape and data_offsets of \"a\", got ";
  EXPECT_EQ(refusal(R"({"a":7})"), needed + "7");
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[0]}})"), StartsWith(needed));
  EXPECT_THAT(refusal(R"({"a":{"dtype":32,"shape":[0],"data_offsets":[0,0]}})"),
              StartsWith(needed));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})"),
              StartsWith(needed));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,0]}})"),
              StartsWith(needed));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0]}})"),
              StartsWith(needed));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})"),
      StartsWith(needed));
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F31","shape":[0],"data_offsets":[0,0]}})"),
            "expected a known type for \"a\", got \"F31\"");
  EXPECT_EQ(refusal(R"({"__metadata__":{"step":7}})"),
            "expected strings by name in __metadata__, got an object of 1 key");
}

TEST_F(Safetensors, RejectsNestedHeadersWithoutRecursion) {
  const std::string open(200'000, '[');
  const std::string close(200'000, ']');
  const std::string limit = "expected JSON, got more than 8 levels of arrays and objects";
  EXPECT_EQ(refusal("{\"a\":" + open + close + "}"), limit);
  EXPECT_EQ(refusal("{\"__metadata__\":" + open + close + "}"), limit);
  EXPECT_EQ(refusal("{\"a\":[[[[[[[1]]]]]]]}"),
            "expected dtype, shape and data_offsets of \"a\", got an array of 1");
}

TEST_F(Safetensors, RejectsAHeaderWithMoreValuesThanTensorsCanHave) {
  std::string values = "[]";
  for (int i = 0; i < 100'000; ++i) values += ",[]";
  EXPECT_THAT(refusal("{\"a\":[" + values + "]}"), StartsWith("expected JSON, got more than 54"));
}

TEST_F(Safetensors, AcceptsManySmallTensorsWithManyExtents) {
  std::string header = "{";
  for (int i = 0; i < 20'000; ++i)
    header += fmt::format(R"({}"{:x}":{{"dtype":"F32","shape":[1,1,1,1],"data_offsets":[{},{}]}})",
                          i == 0 ? "" : ",", i, 4 * i, 4 * i + 4);
  overwrite(file(), with_length(header + "}", std::string(80'000, '\0')));
  EXPECT_EQ(SafetensorsFile(file()).tensors().size(), 20'000u);
}

TEST_F(Safetensors, SizesMustFitShapes) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
            "expected 8 bytes of \"a\", F32 [2]; its data_offsets are [0, 4]");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234"),
            "expected 4 bytes of \"a\", F32 [1]; its data_offsets are [4, 0]");
  EXPECT_EQ(
      refusal(
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,0]}})"),
      "expected a shape of \"a\" that fits in a file, got [4611686018427387904, "
      "4611686018427387904]");
}

TEST_F(Safetensors, TensorsCoverTheDataWithoutGapOrOverlap) {
  const auto two = [](int begin_b, int end_b) {
    return fmt::format(
        R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},"b":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}}}})",
        begin_b, end_b);
  };
  EXPECT_EQ(
      refusal(two(8, 12), "123456789012"),
      "expected \"b\" at byte 4 of the data, where the tensor before it ends; it begins at 8");
  EXPECT_EQ(
      refusal(two(2, 6), "123456"),
      "expected \"b\" at byte 4 of the data, where the tensor before it ends; it begins at 2");
  EXPECT_EQ(refusal(two(4, 8), "123456789"), "expected 8 bytes of tensors; the file has 9");
  overwrite(file(), with_length(two(4, 8), "12345678"));
  EXPECT_EQ(SafetensorsFile(file()).tensors().size(), 2u);
}

TEST_F(Safetensors, RejectsReadingAsAnotherTypeOrSize) {
  const std::vector<float> values{1, 2};
  write_safetensors(file(), std::vector<TensorView>{{"a", {2}, std::span<const float>(values)}});
  const SafetensorsFile opened(file());
  std::vector<float> three(3);
  std::vector<std::int64_t> one(1);
  EXPECT_THAT(checkpoint_error([&] { opened.read(*opened.find("a"), three); }),
              HasSubstr("expected 12 bytes of F32 under \"a\"; it has 8 of F32"));
  EXPECT_THAT(checkpoint_error([&] { opened.read(*opened.find("a"), one); }),
              HasSubstr("expected 8 bytes of I64 under \"a\"; it has 8 of F32"));
}

TEST_F(Safetensors, AFullDiskLeavesNothing) {
  const std::vector<float> values(10'000);
  const std::vector<TensorView> tensors{{"a", {10'000}, std::span<const float>(values)}};
  const FileSizeLimit limit(4096);
  EXPECT_THAT(checkpoint_error([&] { write_safetensors(file(), tensors); }),
              HasSubstr("tensors.safetensors] expected to write the file; File too large"));
  EXPECT_TRUE(names_in(scratch_.path()).empty());
}

TEST_F(Safetensors, ChecksThatValuesFitTheShape) {
  const std::vector<float> values{1, 2};
  EXPECT_THROW(write_safetensors(
                   file(), std::vector<TensorView>{{"a", {3}, std::span<const float>(values)}}),
               CheckFailure);
  const TensorView twice{"a", {2}, std::span<const float>(values)};
  EXPECT_THROW(write_safetensors(file(), std::vector{twice, twice}), CheckFailure);
}

TEST_F(Safetensors, ALinkUnderTheNameIsNeitherFollowedNorReplaced) {
  const std::filesystem::path victim = scratch_.path() / "victim";
  overwrite(victim, "precious");
  std::filesystem::create_symlink(victim, file());
  EXPECT_FALSE(
      checkpoint_error([&] { write_safetensors(file(), std::vector<TensorView>{}); }).empty());
  EXPECT_TRUE(std::filesystem::is_symlink(file()));
  EXPECT_EQ(contents_of(victim), "precious");
}

TEST(Hex16, IsSixteenLowerCaseDigits) {
  EXPECT_EQ(hex16(0xabc), "0000000000000abc");
  EXPECT_EQ(parse_hex16("0000000000000abc"), 0xabcu);
  EXPECT_EQ(parse_hex16("0000000000000ABC"), std::nullopt);
  EXPECT_EQ(parse_hex16("abc"), std::nullopt);
  EXPECT_EQ(hex16(Hasher().value()),
            "2d06800538d394c2");  // xxh3-64 of nothing, from the algorithm's own test vectors
}

TEST(Hasher, DoesNotDependOnChunkSizes) {
  Hasher whole;
  Hasher pieces;
  std::string bytes(5000, 'x');
  whole.add(bytes);
  for (std::size_t at = 0; at < bytes.size(); at += 7)
    pieces.add(std::string_view(bytes).substr(at, 7));
  EXPECT_EQ(whole.value(), pieces.value());
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
