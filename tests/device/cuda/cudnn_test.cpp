// The simulated cuDNN: the calls that it rejects, like the library. The tests of models compare its
// results with the CPU.
#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/device/cuda/handles.h"

namespace lockstep::inline v0::device::cuda {
namespace {

using ::testing::HasSubstr;

constexpr float kOne = 1;
constexpr float kZero = 0;
constexpr std::size_t kSpace = 10'000;

// Two images of 7x6 with three channels, four filters of 3x2, padded by one in steps of two.
class Convolution {
 public:
  explicit Convolution(int output_height = 4) {
    cudnnCreate(&handle);
    cudnnSetStream(handle, stream.get());
    cudnnCreateTensorDescriptor(&x_shape);
    cudnnCreateTensorDescriptor(&y_shape);
    cudnnCreateFilterDescriptor(&w_shape);
    cudnnCreateConvolutionDescriptor(&conv);
    cudnnSetTensor4dDescriptor(x_shape, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 3, 7, 6);
    cudnnSetTensor4dDescriptor(y_shape, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 4, output_height,
                               4);
    cudnnSetFilter4dDescriptor(w_shape, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 4, 3, 3, 2);
    cudnnSetConvolution2dDescriptor(conv, 1, 1, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION,
                                    CUDNN_DATA_FLOAT);
    for (const Elements<float>* values : {&x, &w, &y}) std::ranges::fill(values->span(), 1.0F);
  }
  ~Convolution() {
    cudaStreamSynchronize(stream.get());
    cudnnDestroyConvolutionDescriptor(conv);
    cudnnDestroyFilterDescriptor(w_shape);
    cudnnDestroyTensorDescriptor(y_shape);
    cudnnDestroyTensorDescriptor(x_shape);
    cudnnDestroy(handle);
  }
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  cudnnStatus_t forward(const float* from, std::size_t bytes, int algorithm = 1) const {
    return cudnnConvolutionForward(handle, &kOne, x_shape, from, w_shape, w.get(), conv,
                                   static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), space.get(),
                                   bytes, &kZero, y_shape, y.get());
  }

  StreamHandle stream = make_stream();
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x_shape = nullptr;
  cudnnTensorDescriptor_t y_shape = nullptr;
  cudnnFilterDescriptor_t w_shape = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  Elements<float> x{2 * 7 * 6 * 3 + 4};
  Elements<float> w{4 * 3 * 2 * 3};
  Elements<float> y{2 * 5 * 4 * 4};
  Elements<std::byte> space{kSpace};
};

std::string last_reason() {
  char reason[200];
  cudnnGetLastErrorString(reason, sizeof(reason));
  return reason;
}

TEST(Cudnn, FindsAlgorithmsWithTimesAndSpoilsTheResult) {
  const Convolution at;
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 5> found{};
  int count = 0;
  const auto find = [&](std::size_t bytes) {
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(
        at.handle, at.x_shape, at.x.get(), at.y_shape, at.y.get(), at.conv, at.w_shape, at.w.get(),
        5, &count, found.data(), at.space.get(), bytes);
  };
  ASSERT_EQ(find(kSpace), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(count, 2);
  EXPECT_LT(found[0].time, found[1].time);
  EXPECT_EQ(found[0].determinism, CUDNN_NON_DETERMINISTIC);
  EXPECT_EQ(found[1].determinism, CUDNN_DETERMINISTIC);
  EXPECT_EQ(found[1].status, CUDNN_STATUS_SUCCESS);
  EXPECT_NE(at.w[0], 1.0F);
  ASSERT_EQ(find(found[1].memory - 1), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(found[1].status, CUDNN_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cudaStreamBeginCapture(at.stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(find(kSpace), CUDNN_STATUS_EXECUTION_FAILED);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(at.stream.get(), &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST(Cudnn, RejectsInvalidArguments) {
  const Convolution wrong(5);
  EXPECT_EQ(wrong.forward(wrong.x.get(), kSpace), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(last_reason(), "an output [2, 4, 5, 4] where [2, 4, 4, 4] comes out");
  const Convolution at;
  EXPECT_EQ(at.forward(at.x.get(), kSpace, 7), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(at.forward(at.x.get(), kSpace), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(at.forward(at.x.get(), 100), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_reason(), HasSubstr("a workspace of 100 bytes"));
  EXPECT_EQ(at.forward(at.x.get() + 1, kSpace), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  cudnnSetTensor4dDescriptor(at.y_shape, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 2, 4, 4, 4);
  EXPECT_EQ(at.forward(at.x.get(), kSpace), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED), "CUDNN_STATUS_NOT_SUPPORTED");
}

TEST(CudnnDeathTest, EndsTheProgramForHostMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Convolution at;
  alignas(16) static float on_host[1000] = {};
  EXPECT_DEATH(at.forward(on_host, kSpace), "cuDNN was given .*, which is not on a GPU");
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
