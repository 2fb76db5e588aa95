// Indices of several safetensors files: whole ones, and each kind of damage.
#include "lockstep/checkpoint/safetensors_index.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using ::testing::HasSubstr;

class SafetensorsIndex : public ::testing::Test {
 protected:
  SafetensorsIndex() {
    write("a.safetensors", "first", 2);
    write("b.safetensors", "second", 3);
  }

  std::filesystem::path index() const { return scratch_.path() / "model.safetensors.index.json"; }

  void write(const std::string& file, const std::string& tensor, std::size_t count) {
    const std::vector<float> values(count, 1.0F);
    write_safetensors(
        scratch_.path() / file,
        std::vector<TensorView>{
            {tensor, {static_cast<std::int64_t>(count)}, std::span<const float>(values)}});
  }
  std::string refusal_of(const std::string& text) {
    overwrite(index(), text);
    return checkpoint_error([&] { open_shards(index()); });
  }

  ScratchDirectory scratch_;
};

TEST_F(SafetensorsIndex, OpensEachFileOnce) {
  for (const char* metadata :
       {R"("metadata": {"total_size": 20}, )", R"("metadata": {"total_size": 20.0}, )",
        R"("metadata": {}, )", ""}) {
    overwrite(index(), fmt::format(R"({{{}"weight_map": {{"second": "b.safetensors",)"
                                   R"("first": "a.safetensors"}}}})",
                                   metadata));
    const std::vector<SafetensorsFile> files = open_shards(index());
    ASSERT_EQ(files.size(), 2U) << metadata;
    EXPECT_EQ(files[0].path(), scratch_.path() / "a.safetensors");
    std::vector<float> values(3);
    files[1].read(*files[1].find("second"), values);
    EXPECT_THAT(values, ::testing::Each(1.0F));
  }
}

TEST_F(SafetensorsIndex, RefusesEachKindOfDamage) {
  const std::string path = "[" + index().string() + "] ";
  const std::string whole =
      R"("weight_map": {"first": "a.safetensors", "second": "b.safetensors"})";
  const auto file_of_second = [](const std::string& file) {
    return R"({"weight_map": {"first": "a.safetensors", "second": )" + file + "}}";
  };
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{" + whole, path + "expected JSON"},
           {"[]", path + "expected the file of each tensor in \"weight_map\", got an array of 0"},
           {"{}", path + "expected the file of each tensor in \"weight_map\", got an object of 0"},
           {R"({"weight_map": {}})", "in \"weight_map\", got an object of 0"},
           {R"({"weight_map": ["a.safetensors"]})", "in \"weight_map\", got an array of 1"},
           {file_of_second("7"), path + "expected the name of a .safetensors file in the folder of "
                                        "the index for \"second\", got 7"},
           {file_of_second(R"("../b.safetensors")"), "got \"../b.safetensors\""},
           {file_of_second(R"("/etc/b.safetensors")"), "got \"/etc/b.safetensors\""},
           {file_of_second(R"("x\\b.safetensors")"), "folder of the index"},
           {file_of_second(R"("b.safetensors\u0000.safetensors")"), "folder of the index"},
           {file_of_second(R"("..")"), "got \"..\""},
           {file_of_second(R"("")"), "got \"\""},
           {file_of_second(R"(".safetensors")"), "got \".safetensors\""},
           {file_of_second(R"("b.bin")"), "got \"b.bin\""},
           {file_of_second(R"("c.safetensors")"), "c.safetensors] "},
           {file_of_second(R"("a.safetensors")"),
            "a.safetensors] expected the tensor \"second\", as model.safetensors.index.json says; "
            "it is not among the 1 tensors of the file"},
           {R"({"weight_map": {"second": "a.safetensors"}})",
            path + "expected all tensors of a.safetensors in \"weight_map\"; it has no "
                   "\"first\" of that file"},
           {R"({"metadata": {"total_size": 24}, )" + whole + "}",
            path + "expected a total_size of 20, the bytes of all tensors in its files; if the "
                   "files are known to be complete, remove it from the index, got 24"},
           {R"({"metadata": {"total_size": "20"}, )" + whole + "}", "total_size of 20"},
       })
    EXPECT_THAT(refusal_of(text), HasSubstr(expected)) << text;
  std::string many = R"({"weight_map": {)";
  for (int i = 0; i < 513; ++i)
    many += fmt::format(R"({}"t{}": "f{}.safetensors")", i == 0 ? "" : ", ", i, i);
  EXPECT_THAT(refusal_of(many + "}}"), HasSubstr("expected at most 512 files, got 513"));
  EXPECT_THAT(checkpoint_error([&] { open_shards(scratch_.path() / "none.index.json"); }),
              HasSubstr("none.index.json] "));
}

TEST_F(SafetensorsIndex, RefusesAFileThatIsCutOff) {
  const std::filesystem::path second = scratch_.path() / "b.safetensors";
  std::filesystem::resize_file(second, std::filesystem::file_size(second) - 4);
  EXPECT_THAT(
      refusal_of(R"({"weight_map": {"first": "a.safetensors", "second": "b.safetensors"}})"),
      HasSubstr("b.safetensors] expected 12 bytes of tensors"));
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
