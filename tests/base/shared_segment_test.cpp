// Shared memory that another process opens by IDs, which may be stale or reused.
#include "lockstep/base/system/shared_segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const SharedSegment::Handle& handle) {
  try {
    SharedSegment::open(handle);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::communication);
    return error.what();
  }
  return "accepted";
}

TEST(SharedSegment, SharesMemoryWithTheProcessThatOpensIt) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{100'001},
        std::size_t{2} << 20, (std::size_t{4} << 20) + 1}) {
    const SharedSegment made = SharedSegment::create(bytes);
    const SharedSegment found = SharedSegment::open(made.handle());
    ASSERT_EQ(found.size(), made.size());
    for (std::size_t i = 0; i < made.size(); ++i) ASSERT_EQ(made.data()[i], std::byte{0}) << i;
    made.data()[made.size() - 1] = std::byte{7};
    EXPECT_EQ(found.data()[found.size() - 1], std::byte{7});
    EXPECT_EQ(SharedSegment::open(made.handle()).size(), made.size())
        << "what is written does not reach the label";
  }
}

TEST(SharedSegment, DoesNotTouchAnotherFileWithTheDescriptor) {
  char name[] = "/tmp/lockstep-segment-XXXXXX";
  const int file = ::mkostemp(name, O_CLOEXEC);
  ::unlink(name);
  const std::string content(8192, 'x');
  ASSERT_EQ(::write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  SharedSegment::Handle handle = SharedSegment::create(1).handle();
  handle.descriptor = file;
  EXPECT_THAT(refusal_of(handle), HasSubstr("; its file is not sealed memory"));
  std::string after(content.size(), ' ');
  ASSERT_EQ(::pread(file, after.data(), after.size(), 0), static_cast<ssize_t>(after.size()));
  EXPECT_EQ(after, content);
  ::close(file);
}

TEST(SharedSegment, RejectsOtherSealedMemory) {
  const int other = ::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(other, 4096), 0);
  SharedSegment::Handle handle = SharedSegment::create(1).handle();
  handle.descriptor = other;
  EXPECT_THAT(refusal_of(handle), HasSubstr("; its file is not sealed memory"));
  ASSERT_EQ(::fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THAT(refusal_of(handle), HasSubstr("; that process ID belongs to another process"));
  ::close(other);
}

TEST(SharedSegment, RejectsAnotherSegmentWithAReusedDescriptor) {
  const SharedSegment made = SharedSegment::create(64);
  SharedSegment::Handle stale = made.handle();
  --stale.serial;
  EXPECT_THAT(refusal_of(stale), HasSubstr("; that process ID belongs to another process"));
  SharedSegment::Handle guessed = made.handle();
  ++guessed.owner.nonce[1];
  EXPECT_THAT(refusal_of(guessed), HasSubstr("; that process ID belongs to another process"));
}

TEST(SharedSegment, RejectsAnotherPidNamespace) {
  const SharedSegment made = SharedSegment::create(64);
  SharedSegment::Handle other = made.handle();
  ++other.owner.pid_namespace;
  EXPECT_THAT(refusal_of(other),
              HasSubstr("] expected shared memory of process " + std::to_string(::getpid()) +
                        " on this host; it is in another PID namespace"));
}

TEST(SharedSegment, ExistsAsLongAsItsOwnerKeepsIt) {
  SharedSegment made = SharedSegment::create(64);
  const SharedSegment::Handle handle = made.handle();
  const SharedSegment found = SharedSegment::open(handle);
  EXPECT_EQ(found.handle().descriptor, -1) << "only the owner has one";
  EXPECT_TRUE(SharedSegment::exists(handle));
  made = SharedSegment();
  EXPECT_FALSE(SharedSegment::exists(handle));
  EXPECT_EQ(found.data()[0], std::byte{0}) << "the memory remains";
}

TEST(SharedSegment, CannotShrinkWhileMapped) {
  const SharedSegment made = SharedSegment::create(64);
  EXPECT_NE(::ftruncate(made.handle().descriptor, 0), 0);
  EXPECT_NE(::ftruncate(made.handle().descriptor, 1 << 20), 0);
}

}  // namespace
}  // namespace lockstep::inline v0
