#include "lockstep/net/token.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::net {
namespace {

using ::testing::HasSubstr;

constexpr const char* kText = "0123456789abcdef0123456789abcdef";

/// A directory of this test, removed at its end.
class SecretFile : public ::testing::Test {
 protected:
  SecretFile() { std::filesystem::create_directories(folder_); }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "secret") const { return (folder_ / name).string(); }
  void write(const std::string& text, mode_t mode) const {
    std::ofstream(path()) << text;
    ::chmod(path().c_str(), mode);
  }
  static std::string refusal_of(const std::string& file) {
    try {
      find_job_secret(file.c_str(), kText);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input);
      return error.what();
    }
    return "";
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      fmt::format("job-secret-{}-{}", getpid(),
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(SecretFile, IsReadWithoutTrailingNewline) {
  write(fmt::format("{}\n", kText), 0600);
  EXPECT_EQ(find_job_secret(path().c_str(), "another secret of 16 bytes")->text(), kText);
  std::filesystem::create_symlink("secret", path("link"));
  EXPECT_EQ(find_job_secret(path("link").c_str(), nullptr)->text(), kText);
}

TEST_F(SecretFile, IsAccessibleOnlyToItsOwner) {
  for (const mode_t mode : {0640, 0604, 0610, 0601, 0602}) {
    write(kText, mode);
    EXPECT_THAT(
        refusal_of(path()),
        HasSubstr(fmt::format("[LOCKSTEP_JOB_SECRET_FILE] expected a regular file that this user "
                              "owns and no other user can access (chmod 600); {} has mode {:03o}",
                              path(), mode)));
  }
  if (geteuid() != 0) return;
  write(kText, 0600);
  ASSERT_EQ(::chown(path().c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal_of(path()), HasSubstr("belongs to user 12345"));
}

TEST_F(SecretFile, IsARegularFile) {
  EXPECT_THAT(refusal_of(path("nowhere")), HasSubstr("cannot be read: No such file or directory"));
  EXPECT_THAT(refusal_of("/dev/zero"), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(path("fifo")), HasSubstr("is not a regular file"))
      << "without waiting for its other end";
}

TEST_F(SecretFile, HasALimitedSize) {
  write("short\n", 0600);
  EXPECT_THAT(refusal_of(path()), HasSubstr("expected a secret of at least 16 bytes, got 5"));
  write(std::string(5000, 'x'), 0600);
  EXPECT_THAT(refusal_of(path()), HasSubstr("has more than 4096 bytes"));
}

TEST(JobSecret, IsReadFromTheVariable) {
  EXPECT_EQ(find_job_secret(nullptr, kText)->text(), kText);
  EXPECT_FALSE(find_job_secret(nullptr, nullptr));
  // An empty secret may be the result of a missing `openssl`: it does not mean that no secret is
  // required.
  EXPECT_THROW(find_job_secret(nullptr, ""), Error);
}

TEST(JobSecret, IsRejectedIfShortAndNotPrinted) {
  try {
    find_job_secret(nullptr, "password");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[LOCKSTEP_JOB_SECRET] expected a secret of at least 16 bytes, got 8; create one "
                 "with `openssl rand -hex 16`");
  }
}

TEST(JobSecret, IsRandom) {
  EXPECT_EQ(JobSecret::draw().text().size(), 64U);
  EXPECT_NE(JobSecret::draw().text(), JobSecret::draw().text());
  EXPECT_TRUE(JobSecret::draw().is_secret());
  EXPECT_FALSE(JobSecret::none().is_secret());
}

// Test case 1 of RFC 4231.
TEST(JobSecret, MatchesTheHmacStandard) {
  const JobSecret key(std::string(20, '\x0b'), "test");
  std::string digits;
  for (const std::uint8_t byte : key.mac("Hi There")) digits += fmt::format("{:02x}", byte);
  EXPECT_EQ(digits, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

}  // namespace
}  // namespace lockstep::inline v0::net
