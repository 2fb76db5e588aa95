// InputFile opens regular files only, and nothing that could block a reader.
#include "lockstep/base/file/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "tests/support/files.h"

namespace lockstep::inline v0 {
namespace {

TEST(InputFile, RejectsAFifoWithoutBlocking) {
  const files::TemporaryDirectory directory;
  const auto path = directory / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(files::data_error_of([&] { InputFile file(path); }),
            "[" + path.string() + "] expected a regular file, got a pipe or FIFO");
}

TEST(InputFile, RejectsDevicesAndSockets) {
  EXPECT_EQ(files::data_error_of([] { InputFile file("/dev/zero"); }),
            "[/dev/zero] expected a regular file, got a device");
  const files::TemporaryDirectory directory;
  const auto path = directory / "socket";
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(files::data_error_of([&] { InputFile file(path); }),
            "[" + path.string() + "] expected a file that can be read; No such device or address");
  ::close(listener);
}

TEST(InputFile, RejectsADirectory) {
  const files::TemporaryDirectory directory;
  EXPECT_EQ(files::data_error_of([&] { InputFile file(directory.path()); }),
            "[" + directory.path().string() + "] expected a file that can be read; Is a directory");
}

TEST(InputFile, FollowsALinkToAFile) {
  const files::TemporaryDirectory directory;
  files::write_bytes(directory / "file", "abc");
  std::filesystem::create_symlink("file", directory / "link");
  EXPECT_EQ(InputFile(directory / "link").stamp().size, 3);
}

}  // namespace
}  // namespace lockstep::inline v0
