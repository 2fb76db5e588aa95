// Loads cuDNN when a GPU is first used.
#include <cudnn.h>
#include <fmt/format.h>

#include "lockstep/base/forwarded_function.h"
#include "lockstep/base/system/loaded_library.h"

namespace {

const lockstep::LoadedLibrary& cudnn() {
  static const lockstep::LoadedLibrary loaded = [] {
    lockstep::LoadedLibrary library({.name = "cuDNN",
                                     .file = fmt::format("libcudnn.so.{}", CUDNN_MAJOR),
                                     .folder = LOCKSTEP_CUDNN_FOLDER,
                                     .use = "layers on GPUs",
                                     .advice = fmt::format("install cuDNN {} for CUDA {}",
                                                           CUDNN_MAJOR, CUDART_VERSION / 1000)});
    const auto version = library.function<decltype(cudnnGetVersion)>("cudnnGetVersion")();
    library.check_major_version(static_cast<int>(version / 10000), CUDNN_MAJOR);
    return library;
  }();
  return loaded;
}

}  // namespace

LOCKSTEP_FORWARD(cudnn, cudnnBackendCreateDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnBackendDestroyDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnBackendExecute)
LOCKSTEP_FORWARD(cudnn, cudnnBackendFinalize)
LOCKSTEP_FORWARD(cudnn, cudnnBackendGetAttribute)
LOCKSTEP_FORWARD(cudnn, cudnnBackendSetAttribute)
LOCKSTEP_FORWARD(cudnn, cudnnConvolutionBackwardData)
LOCKSTEP_FORWARD(cudnn, cudnnConvolutionBackwardFilter)
LOCKSTEP_FORWARD(cudnn, cudnnConvolutionForward)
LOCKSTEP_FORWARD(cudnn, cudnnCreate)
LOCKSTEP_FORWARD(cudnn, cudnnCreateConvolutionDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnCreateFilterDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnCreateTensorDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnDestroy)
LOCKSTEP_FORWARD(cudnn, cudnnDestroyConvolutionDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnDestroyFilterDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnDestroyTensorDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnGetConvolutionBackwardDataAlgorithm_v7)
LOCKSTEP_FORWARD(cudnn, cudnnGetConvolutionBackwardFilterAlgorithm_v7)
LOCKSTEP_FORWARD(cudnn, cudnnGetConvolutionForwardAlgorithm_v7)
LOCKSTEP_FORWARD(cudnn, cudnnGetErrorString)
LOCKSTEP_FORWARD(cudnn, cudnnGetLastErrorString)
LOCKSTEP_FORWARD(cudnn, cudnnGetVersion)
LOCKSTEP_FORWARD(cudnn, cudnnSetConvolution2dDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnSetConvolutionGroupCount)
LOCKSTEP_FORWARD(cudnn, cudnnSetConvolutionMathType)
LOCKSTEP_FORWARD(cudnn, cudnnSetFilter4dDescriptor)
LOCKSTEP_FORWARD(cudnn, cudnnSetStream)
LOCKSTEP_FORWARD(cudnn, cudnnSetTensor4dDescriptor)
