// The libraries of layers on GPUs, loaded on a machine that may have no GPU: these functions need
// none.
#include <cublasLt.h>
#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/cuda/context.h"

namespace lockstep::inline v0::model {
namespace {

template <typename Call>
void skip_without_library(Call call) {
  try {
    call();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST(LoadedCudnn, HasTheCompiledVersion) {
  skip_without_library([] {
    EXPECT_EQ(cudnnGetVersion() / 10000, static_cast<std::size_t>(CUDNN_MAJOR));
    EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_SUCCESS), "CUDNN_STATUS_SUCCESS");
  });
}

TEST(LoadedCudnn, CreatesDescriptors) {
  skip_without_library([] {
    cudnnFilterDescriptor_t filter = nullptr;
    ASSERT_EQ(cudnnCreateFilterDescriptor(&filter), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 8, 3, 5, 5),
              CUDNN_STATUS_SUCCESS);
    EXPECT_NE(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, -8, 3, 5, 5),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyFilterDescriptor(filter), CUDNN_STATUS_SUCCESS);
  });
}

TEST(LoadedCudnn, ReportsTheReasonForARefusal) {
  skip_without_library([] {
    cudnnFilterDescriptor_t filter = nullptr;
    ASSERT_EQ(cudnnCreateFilterDescriptor(&filter), CUDNN_STATUS_SUCCESS);
    const cudnnStatus_t status =
        cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, -8, 3, 5, 5);
    try {
      cuda::check(status, "a filter");
      ADD_FAILURE() << "a filter with -8 outputs";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  ::testing::MatchesRegex(".*expected a filter; cuDNN [0-9]+ returned "
                                          "CUDNN_STATUS_BAD_PARAM[A-Z_]*: [^\n]*[a-zA-Z][^\n]*"));
    }
    EXPECT_EQ(cudnnDestroyFilterDescriptor(filter), CUDNN_STATUS_SUCCESS);
  });
}

TEST(LoadedCublasLt, HasTheCompiledVersion) {
  skip_without_library([] {
    EXPECT_EQ(cublasLtGetVersion() / 10000, static_cast<std::size_t>(CUBLAS_VER_MAJOR));
    EXPECT_THAT(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED),
                ::testing::HasSubstr("not supported"));
  });
}

}  // namespace
}  // namespace lockstep::inline v0::model
