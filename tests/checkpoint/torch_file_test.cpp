// The bytes of files of torch.save; tests/onnx/export_test.py reads one as Python does.
#include "lockstep/checkpoint/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

class TorchFile : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return scratch_.path() / "weights.pt"; }
  std::string written() {
    const std::vector<float> kernel{1, 2, 3, 4, 5, 6};
    const std::vector<std::int64_t> count{7};
    const std::vector<TensorView> tensors{{"conv.weight", {3, 2}, std::span<const float>(kernel)},
                                          {"bn.batches", {}, std::span<const std::int64_t>(count)}};
    const std::uint64_t bytes = write_torch_file(file(), tensors);
    std::string contents = contents_of(file());
    EXPECT_EQ(bytes, contents.size());
    return contents;
  }

  ScratchDirectory scratch_;
};

TEST_F(TorchFile, DescribesTensorsInAPickle) {
  const std::string contents = written();
  const std::string first =
      "X\x0b\0\0\0conv.weightctorch._utils\n_rebuild_tensor_v2\n(("
      "X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
      "0X\x03\0\0\0cpuJ\x06\0\0\0tQJ\0\0\0\0(J\x03\0\0\0J\x02\0\0\0t(J\x02\0\0\0J\x01\0\0\0t\x89"
      "ccollections\nOrderedDict\n)RtR"s;
  EXPECT_THAT(contents, HasSubstr("\x80\x02}("s + first + "X\x0a\0\0\0bn.batches"s));
  EXPECT_THAT(contents, HasSubstr("LongStorage\nX\x01\0\0\0"
                                  "1X\x03\0\0\0cpuJ\x01\0\0\0tQJ\0\0\0\0(t(t\x89"s));
}

TEST_F(TorchFile, AlignsArraysForMapping) {
  const std::string contents = written();
  EXPECT_EQ(contents.substr(0, 4), "PK\x03\x04");
  const std::vector<float> kernel{1, 2, 3, 4, 5, 6};
  const std::string bytes(reinterpret_cast<const char*>(kernel.data()), 24);
  const std::size_t begin = contents.find(bytes);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(begin % 64, 0u);
}

TEST_F(TorchFile, IsReproducible) {
  const std::string first = written();
  EXPECT_EQ(written(), first);
}

TEST_F(TorchFile, NamesAFileThatCannotBeWritten) {
  EXPECT_THAT(checkpoint_error([&] { write_torch_file(scratch_.path() / "none" / "w.pt", {}); }),
              HasSubstr("w.pt"));
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
