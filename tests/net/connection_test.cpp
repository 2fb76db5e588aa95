// Frames in a byte stream, and connections that transfer them.
#include "lockstep/net/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::net {
namespace {

using std::chrono::milliseconds;

enum class Kind : std::uint8_t { letter = 'L', sign = 'S' };
constexpr FrameLimits kLimits{.kinds = "LS", .body = 100000, .queued = 1 << 20};

TEST(Frame, RoundTripsForAnySplitOfTheStream) {
  const std::string longest(kLimits.body, 'x');
  const std::string stream = encode({Kind::letter, "orted -x"}) + encode(Kind::sign) +
                             encode({Kind::letter, std::string("a\0b", 3)}) +
                             encode({Kind::letter, longest});
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    FrameReader reader(kLimits);
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.add(std::string_view(stream).substr(at, piece));
      while (auto frame = reader.next()) frames.push_back(std::move(*frame));
    }
    ASSERT_EQ(frames.size(), 4U) << piece;
    EXPECT_TRUE(frames[0].is(Kind::letter));
    EXPECT_EQ(frames[0].body, "orted -x");
    EXPECT_EQ(frames[1].kind<Kind>(), Kind::sign);
    EXPECT_EQ(frames[1].body, "");
    EXPECT_EQ(frames[2].body, std::string("a\0b", 3));
    EXPECT_EQ(frames[3].body, longest);
    EXPECT_FALSE(reader.is_broken());
  }
}

// If all bytes were moved for each frame, this would take minutes.
TEST(Frame, IsReadFromALongStreamInLinearTime) {
  constexpr int kFrames = 1'000'000;
  std::string stream;
  for (int i = 0; i < kFrames; ++i) stream += encode(Kind::sign);
  FrameReader reader(kLimits);
  reader.add(stream);
  int frames = 0;
  while (reader.next()) ++frames;
  EXPECT_EQ(frames, kFrames);
}

TEST(Frame, RejectsInvalidBytes) {
  for (const std::string& words : {std::string("GET / HTTP/1.1\r\n\r\n"),
                                   std::string("\0\0\0\0?", 5), std::string("\xFF\xFF\xFF\xFFL"),
                                   encode({Kind::letter, std::string(kLimits.body + 1, 'x')})}) {
    FrameReader reader(kLimits);
    reader.add(words);
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_TRUE(reader.is_broken()) << words.substr(0, 20);
    reader.add(encode(Kind::sign));
    EXPECT_FALSE(reader.next().has_value()) << "nothing is read after that";
  }
}

class Connections : public ::testing::Test {
 protected:
  Connections() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw std::runtime_error("no sockets");
    here_ = Connection(FileDescriptor(ends[0]), kLimits);
    there_ = Connection(FileDescriptor(ends[1]), kLimits);
  }

  Connection here_;
  Connection there_;
};

TEST_F(Connections, CarryFramesBothWaysAndDetectTheEnd) {
  here_.send({Kind::letter, "one"});
  here_.send(Kind::sign);
  const auto frames = there_.receive();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].body, "one");
  there_.send({Kind::letter, "last"});
  there_.close("");
  const auto last = here_.receive();
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].body, "last");
  EXPECT_TRUE(here_.receive().empty());
  EXPECT_FALSE(here_.is_open());
  EXPECT_EQ(here_.reason(), "its connection closed");
}

TEST_F(Connections, SendTheRestWhenThePeerReads) {
  const std::string body(kLimits.body, 'x');
  for (int i = 0; i < 8; ++i) here_.send({Kind::letter, body});
  EXPECT_FALSE(here_.is_flushed());
  std::size_t frames = 0;
  for (int i = 0; i < 1000 && frames < 8; ++i) {
    frames += there_.receive().size();
    EXPECT_TRUE(here_.receive().empty());
  }
  EXPECT_EQ(frames, 8U);
  EXPECT_TRUE(here_.is_flushed());
}

TEST_F(Connections, LimitQueuedBytesForAPeerThatDoesNotRead) {
  const std::string body(kLimits.body, 'x');
  for (int i = 0; i < 100 && here_.is_open(); ++i) here_.send({Kind::letter, body});
  EXPECT_FALSE(here_.is_open());
  EXPECT_EQ(here_.reason(), "it does not read what is sent to it");
}

TEST_F(Connections, EndWithAnInvalidMessage) {
  const std::string noise = "GET / HTTP/1.1\r\n";
  ASSERT_GT(::send(here_.socket().get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(there_.receive().empty());
  EXPECT_EQ(there_.reason(), "it sent an invalid message");
}

TEST_F(Connections, RejectABodyOverTheLimit) {
  EXPECT_THROW(here_.send({Kind::letter, std::string(kLimits.body + 1, 'x')}), CheckFailure);
}

TEST_F(Connections, WaitUntilTheLastFrameIsRead) {
  std::thread reads([&] {
    while (there_.is_open()) there_.receive();
  });
  send_last_frame({&here_}, {Kind::letter, "bye"}, milliseconds(20000));
  EXPECT_FALSE(here_.is_open());
  reads.join();
}

TEST_F(Connections, WaitForAPeerOnlyUntilTheLimit) {
  send_last_frame({&here_}, Kind::sign, milliseconds(20));
  EXPECT_TRUE(here_.is_open());
}

}  // namespace
}  // namespace lockstep::inline v0::net
