#include "lockstep/base/file/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "lockstep/base/file/input_file.h"
#include "lockstep/base/system/process.h"
#include "tests/support/files.h"

namespace lockstep::inline v0 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Reads a FIFO until its end.
class FifoReader {
 public:
  explicit FifoReader(std::filesystem::path path)
      : thread_([this, path] { text_ = files::read_bytes(path); }) {}
  std::string text() {
    thread_.join();
    return text_;
  }

 private:
  std::string text_;
  std::thread thread_;
};

/// Runs `function` in a process that is then killed, without running destructors.
template <typename Function>
void in_killed_process(Function function) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    function();
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(MakerOf, ParsesTheProcessInAName) {
  const std::string start = ".file.tmp-" + process_namespace();
  EXPECT_EQ(maker_of(start + "-123-456-0a").id, 123);
  EXPECT_EQ(maker_of(start + "-123-456-0a").start, 456U);
  for (const std::string& name : {std::string(".file.tmp-other-123-456-0a"), start + "-123-456",
                                  start + "-123-0a-0b", start + "-123", start, std::string()})
    EXPECT_EQ(maker_of(name).id, 0) << name;
  const ProcessIdentity mine = maker_of("-" + process_mark() + "-");
  EXPECT_EQ(mine.id, ::getpid());
  EXPECT_EQ(mine.start, this_process().start);
}

TEST(ProcessIdentity, DiffersFromALaterProcessWithTheSameId) {
  const ProcessIdentity mine = this_process();
  EXPECT_GT(mine.start, 0U);
  EXPECT_FALSE(is_process_gone(mine));
  EXPECT_TRUE(is_process_gone({mine.id, mine.start - 1})) << "its ID was assigned again";
  EXPECT_TRUE(is_process_gone({std::numeric_limits<pid_t>::max(), mine.start}));
  EXPECT_FALSE(is_process_gone({mine.id, 0})) << "of unknown start";
  EXPECT_FALSE(is_process_gone({}));
}

TEST(AtomicFile, IsWrittenInAnyOrderAndReadBeforePublishing) {
  const files::TemporaryDirectory directory;
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
  EXPECT_THAT(files::names_in(directory.path()), ElementsAre("file"));
  EXPECT_EQ(text(), "abcdef") << "who had it open still has";
  EXPECT_EQ(files::read_bytes(directory / "file"), "abcdef");
}

TEST(AtomicFile, SeparatesConcurrentWritersOfOneName) {
  const files::TemporaryDirectory directory;
  AtomicFile first(directory / "file", Durability::cached);
  {
    AtomicFile second(directory / "file", Durability::cached);
    second.write_at(0, "second");
    first.write_at(0, "first");
    second.commit();
    EXPECT_EQ(files::read_bytes(directory / "file"), "second");
  }
  first.commit();
  EXPECT_EQ(files::read_bytes(directory / "file"), "first");
  EXPECT_THAT(files::names_in(directory.path()), ElementsAre("file"));
}

TEST(AtomicFile, NamesAPathThatCannotBeCreated) {
  const files::TemporaryDirectory directory;
  EXPECT_EQ(files::data_error_of([&] { AtomicFile(directory / "none/file"); }),
            "[" + (directory / "none/file").string() +
                "] expected to write the file; No such file or directory");
}

TEST(AtomicFile, FollowsALinkAndReplacesItsTarget) {
  const files::TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "elsewhere");
  files::write_bytes(directory / "elsewhere/real", "old");
  std::filesystem::create_symlink("elsewhere/real", directory / "link");
  std::filesystem::create_symlink(directory / "link", directory / "link_to_link");
  write_file_atomically(directory / "link_to_link", "new");
  EXPECT_EQ(files::read_bytes(directory / "elsewhere/real"), "new");
  EXPECT_EQ(std::filesystem::read_symlink(directory / "link"), "elsewhere/real");
  EXPECT_EQ(std::filesystem::read_symlink(directory / "link_to_link"), directory / "link");
  EXPECT_THAT(files::names_in(directory / "elsewhere"), ElementsAre("real"));
}

TEST(AtomicFile, CreatesTheTargetOfADanglingLink) {
  const files::TemporaryDirectory directory;
  std::filesystem::create_symlink("later", directory / "link");
  write_file_atomically(directory / "link", "new");
  EXPECT_EQ(files::read_bytes(directory / "later"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  std::filesystem::create_symlink("loop", directory / "loop");
  EXPECT_THAT(files::data_error_of([&] { AtomicFile(directory / "loop"); }),
              HasSubstr("Too many levels of symbolic links"));
}

// Same rule as the kernel's fs.protected_symlinks, which may be off.
TEST(AtomicFile, RejectsAForeignLinkInAWorldWritableDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make the link of another user";
  const files::TemporaryDirectory directory;
  const auto shared = directory / "shared";
  std::filesystem::create_directory(shared);
  files::write_bytes(directory / "target", "before");
  std::filesystem::create_symlink("../target", shared / "log.csv");
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  write_file_atomically(shared / "log.csv", "of this user");
  EXPECT_EQ(files::read_bytes(directory / "target"), "of this user");
  ASSERT_EQ(::lchown((shared / "log.csv").c_str(), 12345, 12345), 0);
  EXPECT_EQ(files::data_error_of([&] { write_file_atomically(shared / "log.csv", "x"); }),
            "[" + (shared / "log.csv").string() +
                "] expected a file to write, got a link that another user made in a directory that "
                "all users may write");
  EXPECT_EQ(files::read_bytes(directory / "target"), "of this user");
  ASSERT_EQ(::chmod(shared.c_str(), 0755), 0);
  write_file_atomically(shared / "log.csv", "there only this user made names");
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  ASSERT_EQ(::chown(shared.c_str(), 12345, 12345), 0);
  write_file_atomically(shared / "log.csv", "of the directory's owner");
  EXPECT_EQ(files::read_bytes(directory / "target"), "of the directory's owner");
}

TEST(AtomicFile, WritesToAFifo) {
  const files::TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  FifoReader reader(directory / "fifo");
  {
    AtomicFile file(directory / "fifo");
    EXPECT_TRUE(file.temporary().empty());
    file.write("abc");
    file.write("def");
    file.commit();
  }
  EXPECT_EQ(reader.text(), "abcdef");
  EXPECT_TRUE(std::filesystem::is_fifo(directory / "fifo"));
  EXPECT_THAT(files::names_in(directory.path()), ElementsAre("fifo"));
}

TEST(AtomicFile, WritesToADeviceAndKeepsItsNode) {
  const files::TemporaryDirectory directory;
  const auto null = directory / "null";
  constexpr dev_t kNull = (1 << 8) + 3;
  if (::mknod(null.c_str(), S_IFCHR | 0666, kNull) != 0)
    GTEST_SKIP() << "mknod: " << std::strerror(errno);
  write_file_atomically(null, "abc");
  EXPECT_TRUE(std::filesystem::is_character_file(null));
  std::filesystem::create_symlink("null", directory / "link");
  write_file_atomically(directory / "link", "abc");
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_TRUE(std::filesystem::is_character_file(null));
  EXPECT_THAT(files::names_in(directory.path()), ElementsAre("link", "null"));
}

TEST(AtomicFile, DoesNotReplaceDevices) {
  write_file_atomically("/dev/null", "abc");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THAT(files::data_error_of([] { write_file_atomically("/dev/full", "abc"); }),
              HasSubstr("[/dev/full] expected to write the file; No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(AtomicFile, WritesToAnUnnamedOpenFile) {
  const files::TemporaryDirectory directory;
  const int descriptor = ::open(directory.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) GTEST_SKIP() << "O_TMPFILE: " << std::strerror(errno);
  write_file_atomically("/proc/self/fd/" + std::to_string(descriptor), "abc");
  std::string text(4, ' ');
  text.resize(static_cast<std::size_t>(::pread(descriptor, text.data(), text.size(), 0)));
  ::close(descriptor);
  EXPECT_EQ(text, "abc");
  EXPECT_THAT(files::names_in(directory.path()), ElementsAre());
}

TEST(AtomicFile, RejectsADirectory) {
  const files::TemporaryDirectory directory;
  EXPECT_EQ(files::data_error_of([&] { AtomicFile(directory.path()); }),
            "[" + directory.path().string() + "] expected to write the file; Is a directory");
}

TEST(AtomicFile, RejectsLinksAndFifosIfRegularOnly) {
  const files::TemporaryDirectory directory;
  files::write_bytes(directory / "victim", "old");
  std::filesystem::create_symlink("victim", directory / "link");
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "fifo"})
    EXPECT_EQ(files::data_error_of([&] {
                AtomicFile(directory / name, Durability::cached, ErrorCategory::data,
                           Existing::regular_only);
              }),
              "[" + (directory / name).string() +
                  "] expected a regular file, got a link or a special file");
  EXPECT_EQ(files::read_bytes(directory / "victim"), "old");
  AtomicFile file(directory / "victim", Durability::cached, ErrorCategory::data,
                  Existing::regular_only);
  file.write("new");
  file.commit();
  EXPECT_EQ(files::read_bytes(directory / "victim"), "new");
}

TEST(AtomicFile, HasUnpredictableTemporaryNames) {
  const files::TemporaryDirectory directory;
  const AtomicFile first(directory / "file");
  const AtomicFile second(directory / "file");
  EXPECT_THAT(first.temporary().filename().string(), StartsWith(".file.tmp-"));
  const std::string random =
      first.temporary().string().substr(first.temporary().string().size() - 16);
  EXPECT_NE(random, second.temporary().string().substr(second.temporary().string().size() - 16));
  const AtomicFile long_name(directory / std::string(250, 'x'));
  EXPECT_LE(long_name.temporary().filename().string().size(), 255u);
}

TEST(AtomicFile, RespectsTheUmask) {
  const files::TemporaryDirectory directory;
  const mode_t before = ::umask(027);
  write_file_atomically(directory / "file", "abc");
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(directory / "file").permissions(),
            std::filesystem::perms(0640));
}

TEST(AbandonedTemporaries, AreRemovedAfterAProcessWasKilled) {
  const files::TemporaryDirectory directory;
  in_killed_process([&] {
    auto* const file = new AtomicFile(directory / "file");
    file->write("half");
    new AtomicFile(directory / "other");
  });
  AtomicFile living(directory / "file");
  files::write_bytes(directory / ".file.tmp-0123456789abcdef-f0000000-1-0123456789abcdef",
                     "of another host");
  files::write_bytes(directory / ".file.tmp-77-0", "of another program");
  files::write_bytes(directory / fmt::format(".file.tmp-{}-{}-{}-0", process_namespace(),
                                             ::getpid(), this_process().start - 1),
                     "of an ended process whose ID this one has now");
  ASSERT_EQ(files::names_in(directory.path()).size(), 6u);
  remove_abandoned_temporaries(directory.path(), "file");
  EXPECT_EQ(files::names_in(directory.path()).size(), 4u)
      << "that of the other name is not asked for";
  remove_abandoned_temporaries(directory.path());
  EXPECT_THAT(
      files::names_in(directory.path()),
      ::testing::UnorderedElementsAre(living.temporary().filename().string(), ".file.tmp-77-0",
                                      ".file.tmp-0123456789abcdef-f0000000-1-0123456789abcdef"));
  living.commit();
  remove_abandoned_temporaries(directory / "none");
}

}  // namespace
}  // namespace lockstep::inline v0
