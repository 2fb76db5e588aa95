#include "apps/lockstep/launch/link.h"

#include <gtest/gtest.h>

namespace lockstep::apps::launch {
namespace {

TEST(Frame, ComesOutAsItWentInHoweverTheStreamIsCut) {
  const std::string long_text(100000, 'x');
  const std::string stream = encode({FrameKind::run, "orted -x"}) + encode({FrameKind::welcome}) +
                             encode({FrameKind::output, std::string("a\0b", 3)}) +
                             encode({FrameKind::errors, long_text});
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.add(std::string_view(stream).substr(at, piece));
      while (auto frame = reader.next()) frames.push_back(std::move(*frame));
    }
    ASSERT_EQ(frames.size(), 4U) << piece;
    EXPECT_EQ(frames[0].kind, FrameKind::run);
    EXPECT_EQ(frames[0].text, "orted -x");
    EXPECT_EQ(frames[1].kind, FrameKind::welcome);
    EXPECT_EQ(frames[1].text, "");
    EXPECT_EQ(frames[2].text, std::string("a\0b", 3));
    EXPECT_EQ(frames[3].text, long_text);
    EXPECT_FALSE(reader.is_broken());
  }
}

// With all bytes moved for each frame these would take minutes.
TEST(Frame, ComesOutOfALongStreamInTime) {
  constexpr int kFrames = 1'000'000;
  std::string stream;
  for (int i = 0; i < kFrames; ++i) stream += encode({FrameKind::started});
  FrameReader reader;
  reader.add(stream);
  int frames = 0;
  while (reader.next()) ++frames;
  EXPECT_EQ(frames, kFrames);
}

TEST(Frame, IsNotWhatStrangersSend) {
  for (const std::string& words : {std::string("GET / HTTP/1.1\r\n"), std::string("\0\0\0\0?", 5),
                                   std::string("\xFF\xFF\xFF\xFF"
                                               "A")}) {
    FrameReader reader;
    reader.add(words);
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_TRUE(reader.is_broken()) << words;
    reader.add(encode({FrameKind::welcome}));
    EXPECT_FALSE(reader.next().has_value()) << "nothing comes after that";
  }
}

}  // namespace
}  // namespace lockstep::apps::launch
