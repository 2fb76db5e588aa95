#include "data/record/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/record/input_file.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

TEST(AtomicFile, IsWrittenInAnyOrderAndReadBeforeItHasItsName) {
  const TemporaryDirectory directory;
  AtomicFile file(directory / "file", Durability::cached);
  file.write_at(3, "def");
  const InputFile reader(file.temporary());
  file.write_at(0, "abc");
  EXPECT_FALSE(std::filesystem::exists(directory / "file"));
  const auto text = [&] {
    std::string bytes(9, ' ');
    bytes.resize(reader.read_at(0, bytes.data(), bytes.size()));
    return bytes;
  };
  EXPECT_EQ(text(), "abcdef");
  file.commit();
  EXPECT_THAT(names_in(directory.path()), ElementsAre("file"));
  EXPECT_EQ(text(), "abcdef") << "who had it open still has";
  EXPECT_EQ(read_bytes(directory / "file"), "abcdef");
}

TEST(AtomicFile, OnesOfTheSameNameDoNotMeet) {
  const TemporaryDirectory directory;
  AtomicFile first(directory / "file", Durability::cached);
  {
    AtomicFile second(directory / "file", Durability::cached);
    second.write_at(0, "second");
    first.write_at(0, "first");
    second.commit();
    EXPECT_EQ(read_bytes(directory / "file"), "second");
  }
  first.commit();
  EXPECT_EQ(read_bytes(directory / "file"), "first");
  EXPECT_THAT(names_in(directory.path()), ElementsAre("file"));
}

TEST(AtomicFile, SaysWhereItCannotBeMade) {
  const TemporaryDirectory directory;
  EXPECT_EQ(data_error_of([&] { AtomicFile(directory / "none/file"); }),
            "[" + (directory / "none/file").string() + "] needed to write the file; No such file or directory");
}

}  // namespace
}  // namespace lockstep::data
