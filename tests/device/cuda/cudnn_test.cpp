// The pretended cuDNN: convolutions equal to sums written out, and refusals like the library's.
#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/elements.h"

namespace lockstep::device::cuda {
namespace {

using ::testing::HasSubstr;

struct Sizes {
  int n = 2;
  int c = 3;
  int h = 7;
  int w = 6;
  int k = 4;
  int r = 3;
  int s = 2;
  int pad = 1;
  int stride = 2;
  int dilation = 1;
  int groups = 1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;

  int p() const { return (h + 2 * pad - ((r - 1) * dilation + 1)) / stride + 1; }
  int q() const { return (w + 2 * pad - ((s - 1) * dilation + 1)) / stride + 1; }
};

cudaDataType cuda_type(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return CUDA_R_32F;
  return type == CUDNN_DATA_HALF ? CUDA_R_16F : CUDA_R_16BF;
}

// Small integers, which every type holds and every order adds up to the same sum.
class Values {
 public:
  Values(std::size_t count, cudnnDataType_t type, unsigned seed)
      : type_(cuda_type(type)), count_(count), memory_(count * pretend::width_of(type_)) {
    std::minstd_rand dice(seed);
    for (std::size_t i = 0; i < count; ++i) set(i, static_cast<float>(static_cast<int>(dice() % 5) - 2));
  }
  float operator[](std::ptrdiff_t i) const { return pretend::load(type_, memory_.get(), i); }
  void set(std::size_t i, float value) { pretend::store(type_, memory_.get(), static_cast<std::ptrdiff_t>(i), value); }
  void* data() const { return memory_.get(); }
  std::size_t count() const { return count_; }

 private:
  cudaDataType type_;
  std::size_t count_;
  Elements<std::byte> memory_;
};

class Convolution {
 public:
  explicit Convolution(const Sizes& sizes, int more_outputs = 0) : sizes_(sizes) {
    cudnnCreate(&handle);
    cudnnSetStream(handle, stream.get());
    cudnnCreateTensorDescriptor(&x);
    cudnnCreateTensorDescriptor(&y);
    cudnnCreateFilterDescriptor(&w);
    cudnnCreateConvolutionDescriptor(&conv);
    cudnnSetTensor4dDescriptor(x, sizes.format, sizes.type, sizes.n, sizes.c, sizes.h, sizes.w);
    cudnnSetTensor4dDescriptor(y, sizes.format, sizes.type, sizes.n, sizes.k, sizes.p() + more_outputs, sizes.q());
    cudnnSetFilter4dDescriptor(w, sizes.type, sizes.format, sizes.k, sizes.c / sizes.groups, sizes.r, sizes.s);
    cudnnSetConvolution2dDescriptor(conv, sizes.pad, sizes.pad, sizes.stride, sizes.stride, sizes.dilation,
                                    sizes.dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    cudnnSetConvolutionGroupCount(conv, sizes.groups);
  }
  ~Convolution() {
    cudaStreamSynchronize(stream.get());
    cudnnDestroyConvolutionDescriptor(conv);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyTensorDescriptor(y);
    cudnnDestroyTensorDescriptor(x);
    cudnnDestroy(handle);
  }
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  std::size_t x_count() const { return static_cast<std::size_t>(sizes_.n * sizes_.c * sizes_.h * sizes_.w); }
  std::size_t y_count() const { return static_cast<std::size_t>(sizes_.n * sizes_.k * sizes_.p() * sizes_.q()); }
  std::size_t w_count() const {
    return static_cast<std::size_t>(sizes_.k * sizes_.c / sizes_.groups * sizes_.r * sizes_.s);
  }

  // each(place in x, place in y, place in the filters) of all products of a convolution.
  template <typename Each>
  void for_each_product(Each each) const {
    const Sizes& z = sizes_;
    const int of_group = z.c / z.groups;
    const auto place = [&](int n, int c, int h, int w_, int cs, int hs, int ws) {
      return z.format == CUDNN_TENSOR_NHWC ? ((n * hs + h) * ws + w_) * cs + c : ((n * cs + c) * hs + h) * ws + w_;
    };
    for (int n = 0; n < z.n; ++n)
      for (int k = 0; k < z.k; ++k)
        for (int p = 0; p < z.p(); ++p)
          for (int q = 0; q < z.q(); ++q)
            for (int c = 0; c < of_group; ++c)
              for (int r = 0; r < z.r; ++r)
                for (int s = 0; s < z.s; ++s) {
                  const int h = p * z.stride - z.pad + r * z.dilation;
                  const int width = q * z.stride - z.pad + s * z.dilation;
                  if (h < 0 || h >= z.h || width < 0 || width >= z.w) continue;
                  const int channel = k / (z.k / z.groups) * of_group + c;
                  each(place(n, channel, h, width, z.c, z.h, z.w), place(n, k, p, q, z.k, z.p(), z.q()),
                       place(k, c, r, s, of_group, z.r, z.s));
                }
  }

  StreamHandle stream = make_stream();
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr;
  cudnnTensorDescriptor_t y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;

 private:
  Sizes sizes_;
};

std::string name_of(const Sizes& z) {
  return "type " + std::to_string(z.type) + ", format " + std::to_string(z.format) + ", groups " +
         std::to_string(z.groups);
}

std::vector<Sizes> all_sizes() {
  std::vector<Sizes> all;
  for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    all.push_back({.type = type});
    all.push_back({.stride = 1, .type = type, .format = CUDNN_TENSOR_NCHW});
    all.push_back({.c = 4, .k = 6, .groups = 2, .type = type});
    all.push_back({.h = 9, .w = 8, .pad = 2, .stride = 1, .dilation = 2, .type = type});
    all.push_back({.r = 1, .s = 1, .pad = 0, .stride = 1, .type = type});
  }
  return all;
}

// alpha 2 and beta 3 upon what was there.
void expect_result(const Convolution& at, const Values& result, const std::vector<float>& before,
                   const std::vector<float>& sums) {
  synchronize(at.stream);
  for (std::size_t i = 0; i < sums.size(); ++i)
    ASSERT_EQ(result[static_cast<std::ptrdiff_t>(i)], 2 * sums[i] + 3 * before[i]) << i;
}

std::vector<float> copy_of(const Values& values) {
  std::vector<float> copy(values.count());
  for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = values[static_cast<std::ptrdiff_t>(i)];
  return copy;
}

constexpr float kTwo = 2;
constexpr float kThree = 3;
constexpr float kOne = 1;
constexpr float kZero = 0;

TEST(Cudnn, ConvolvesInEveryDirection) {
  for (const Sizes& sizes : all_sizes()) {
    SCOPED_TRACE(name_of(sizes));
    const Convolution at(sizes);
    const Values x(at.x_count(), sizes.type, 1);
    const Values w(at.w_count(), sizes.type, 2);
    const Values y(at.y_count(), sizes.type, 3);
    const std::vector<float> x_before = copy_of(x);
    const std::vector<float> w_before = copy_of(w);
    const std::vector<float> y_before = copy_of(y);
    const Elements<std::byte> space(10'000);

    std::vector<float> sums(y.count());
    at.for_each_product([&](int i, int j, int f) { sums[static_cast<std::size_t>(j)] += x[i] * w[f]; });
    ASSERT_EQ(cudnnConvolutionForward(at.handle, &kTwo, at.x, x.data(), at.w, w.data(), at.conv,
                                      CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, space.get(), 10'000, &kThree,
                                      at.y, y.data()),
              CUDNN_STATUS_SUCCESS);
    expect_result(at, y, y_before, sums);

    const Values dy(at.y_count(), sizes.type, 4);
    sums.assign(x.count(), 0);
    at.for_each_product([&](int i, int j, int f) { sums[static_cast<std::size_t>(i)] += dy[j] * w[f]; });
    ASSERT_EQ(cudnnConvolutionBackwardData(at.handle, &kTwo, at.w, w.data(), at.y, dy.data(), at.conv,
                                           CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, nullptr, 0, &kThree, at.x, x.data()),
              CUDNN_STATUS_SUCCESS);
    expect_result(at, x, x_before, sums);

    const Values again(at.x_count(), sizes.type, 5);
    sums.assign(w.count(), 0);
    at.for_each_product([&](int i, int j, int f) { sums[static_cast<std::size_t>(f)] += dy[j] * again[i]; });
    ASSERT_EQ(cudnnConvolutionBackwardFilter(at.handle, &kTwo, at.x, again.data(), at.y, dy.data(), at.conv,
                                             CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, space.get(), 10'000, &kThree, at.w,
                                             w.data()),
              CUDNN_STATUS_SUCCESS);
    // Sums of more products than a 16-bit float counts exactly are left to float32.
    if (sizes.type == CUDNN_DATA_FLOAT) expect_result(at, w, w_before, sums);
  }
}

TEST(Cudnn, DoesNotReadWhatBetaZeroOverwrites) {
  const Sizes sizes;
  const Convolution at(sizes);
  const Values x(at.x_count(), sizes.type, 1);
  const Values w(at.w_count(), sizes.type, 2);
  const Elements<float> y(at.y_count());  // NaNs
  ASSERT_EQ(cudnnConvolutionForward(at.handle, &kOne, at.x, x.data(), at.w, w.data(), at.conv,
                                    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &kZero, at.y, y.get()),
            CUDNN_STATUS_SUCCESS);
  synchronize(at.stream);
  for (const float value : y.span()) ASSERT_EQ(value, value);
}

TEST(Cudnn, FindsAlgorithmsWithTimesAndSpoilsTheResult) {
  const Sizes sizes;
  const Convolution at(sizes);
  const Values x(at.x_count(), sizes.type, 1);
  const Values dy(at.y_count(), sizes.type, 2);
  const Values dw(at.w_count(), sizes.type, 3);
  const std::vector<float> before = copy_of(dw);
  const Elements<std::byte> space(10'000);
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 5> found{};
  int count = 0;
  const auto find = [&](std::size_t bytes) {
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(at.handle, at.x, x.data(), at.y, dy.data(), at.conv, at.w,
                                                         dw.data(), 5, &count, found.data(), space.get(), bytes);
  };
  ASSERT_EQ(find(10'000), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(count, 2);
  EXPECT_LT(found[0].time, found[1].time);
  EXPECT_EQ(found[0].determinism, CUDNN_NON_DETERMINISTIC);
  EXPECT_EQ(found[1].determinism, CUDNN_DETERMINISTIC);
  EXPECT_EQ(found[1].status, CUDNN_STATUS_SUCCESS);
  std::size_t bytes = 0;
  ASSERT_EQ(cudnnGetConvolutionBackwardFilterWorkspaceSize(at.handle, at.x, at.y, at.conv, at.w, found[1].algo, &bytes),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(bytes, found[1].memory);
  EXPECT_NE(copy_of(dw), before);
  ASSERT_EQ(find(bytes - 1), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(found[1].status, CUDNN_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cudaStreamBeginCapture(at.stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(find(10'000), CUDNN_STATUS_EXECUTION_FAILED);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(at.stream.get(), &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST(Cudnn, IsPartOfAGraphWhereItsStreamIsCaptured) {
  const Sizes sizes;
  const Convolution at(sizes);
  Values x(at.x_count(), sizes.type, 1);
  const Values w(at.w_count(), sizes.type, 2);
  const Values y(at.y_count(), sizes.type, 3);
  const std::vector<float> before = copy_of(y);
  ASSERT_EQ(cudaStreamBeginCapture(at.stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudnnConvolutionForward(at.handle, &kTwo, at.x, x.data(), at.w, w.data(), at.conv,
                                    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &kThree, at.y, y.data()),
            CUDNN_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(at.stream.get(), &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(copy_of(y), before);
  x.set(0, 10);  // what is there when it runs counts
  std::vector<float> sums(y.count());
  at.for_each_product([&](int i, int j, int f) { sums[static_cast<std::size_t>(j)] += x[i] * w[f]; });
  ASSERT_EQ(cudaGraphLaunch(executable, at.stream.get()), cudaSuccess);
  expect_result(at, y, before, sums);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

std::string last_reason() {
  char reason[200];
  cudnnGetLastErrorString(reason, sizeof(reason));
  return reason;
}

TEST(Cudnn, RefusesWhatTheLibraryRefuses) {
  const Sizes sizes;
  std::size_t bytes = 0;
  const auto size_of = [&](const Convolution& at, int algorithm = 1) {
    return cudnnGetConvolutionForwardWorkspaceSize(at.handle, at.x, at.w, at.conv, at.y,
                                                   static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), &bytes);
  };
  EXPECT_EQ(size_of(Convolution(sizes, 1)), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(last_reason(), "an output [2, 4, 5, 4] where [2, 4, 4, 4] comes out");
  const Convolution at(sizes);
  EXPECT_EQ(size_of(at, 7), CUDNN_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(size_of(at), CUDNN_STATUS_SUCCESS);

  const Values x(at.x_count() + 4, sizes.type, 1);
  const Values w(at.w_count(), sizes.type, 2);
  const Values y(at.y_count(), sizes.type, 3);
  const Elements<std::byte> space(bytes);
  const auto forward = [&](const void* from, std::size_t workspace) {
    return cudnnConvolutionForward(at.handle, &kOne, at.x, from, at.w, w.data(), at.conv,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, space.get(), workspace, &kZero,
                                   at.y, y.data());
  };
  EXPECT_EQ(forward(x.data(), bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(forward(x.data(), bytes - 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_reason(), HasSubstr("a workspace of "));
  EXPECT_EQ(forward(static_cast<const float*>(x.data()) + 1, bytes), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  cudnnSetTensor4dDescriptor(at.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 2, 4, 4, 4);
  EXPECT_EQ(forward(x.data(), bytes), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED), "CUDNN_STATUS_NOT_SUPPORTED");
  cudnnSetTensor4dDescriptor(at.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 4, 4);
  EXPECT_EQ(forward(x.data(), bytes), CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(CudnnDeathTest, MemoryOfTheHostEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Convolution at(Sizes{});
  alignas(16) static float on_host[1000] = {};
  EXPECT_DEATH(cudnnConvolutionForward(at.handle, &kOne, at.x, on_host, at.w, on_host, at.conv,
                                       CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &kZero, at.y, on_host),
               "cuDNN was given .*, which is not on a GPU");
}

}  // namespace
}  // namespace lockstep::device::cuda
