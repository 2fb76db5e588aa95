/* The main header of Lockstep. In C++, it includes all public modules and imports the most common
 * names into the namespace `lockstep`. In C, it includes interop/c_api.h. */
#pragma once

#include "lockstep/core.h"

#if defined(__cplusplus) && __cplusplus >= 202002L

#include "lockstep/data/dataset.h"
#include "lockstep/data/image/transform.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/compiled/check_gradients.h"
#include "lockstep/model/layer/custom_layer.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/optimizer/custom_optimizer.h"
#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/model/optimizer/schedule.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/callbacks/csv_log.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/metrics_exporter.h"
#include "lockstep/train/callbacks/plateau.h"
#include "lockstep/train/callbacks/progress.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0 {

using data::Batch;
using data::ColumnScale;
using data::CsvOptions;
using data::Dataset;
using data::ImageRecipe;
using data::ImageScratch;
using data::ImageTransform;
using data::open_data;
using data::Sample;
using data::SampleSpec;
using data::TensorSpec;

using model::Adagrad;
using model::Adam;
using model::AdamW;
using model::BinaryCrossentropy;
using model::CategoricalCrossentropy;
using model::check_gradients;
using model::CustomLoss;
using model::CustomOptimizer;
using model::GradientCheck;
using model::Huber;
using model::Lamb;
using model::Lars;
using model::make_metrics;
using model::MeanAbsoluteError;
using model::MeanSquaredError;
using model::Metric;
using model::MetricSums;
using model::MetricValue;
using model::Network;
using model::NetworkInput;
using model::RmsProp;
using model::SampleTargets;
using model::Schedule;
using model::Sgd;
using model::SparseCategoricalCrossentropy;
using model::Targets;
using model::UpdateElements;
using model::UpdateNumbers;

using model::Add;
using model::AdditiveAttention;
using model::Attention;
using model::AveragePool2D;
using model::BatchNormalization;
using model::Concatenate;
using model::Conv1D;
using model::Conv2D;
using model::Conv2DTranspose;
using model::Cropping1D;
using model::CustomLayer;
using model::Dense;
using model::DepthwiseConv2D;
using model::Dropout;
using model::ELU;
using model::Embedding;
using model::FakeQuantize;
using model::Flatten;
using model::GELU;
using model::GlobalAveragePooling1D;
using model::GlobalAveragePooling2D;
using model::GlobalMaxPooling2D;
using model::GroupNormalization;
using model::GRU;
using model::HardSigmoid;
using model::HardSwish;
using model::HardTanh;
using model::Int8Type;
using model::Interpolation;
using model::LayerNormalization;
using model::LeakyReLU;
using model::LSTM;
using model::MatMul;
using model::MaxPool2D;
using model::Mish;
using model::Multiply;
using model::Padding;
using model::Permute;
using model::PositionalEmbedding;
using model::ReLU;
using model::ReLU6;
using model::Rescaling;
using model::Reshape;
using model::RMSNormalization;
using model::row_width;
using model::Scale;
using model::SELU;
using model::Sigmoid;
using model::SiLU;
using model::SimpleRNN;
using model::Softmax;
using model::Softplus;
using model::Softsign;
using model::Tanh;
using model::TiedDense;
using model::UpSampling2D;
using model::ZeroPadding2D;

using strategy::index_exchange;
using strategy::LocalStepsStrategy;
using strategy::make_strategy;
using strategy::MirroredStrategy;
using strategy::MultiWorkerMirroredStrategy;
using strategy::OneDeviceStrategy;
using strategy::OutputLoss;
using strategy::ParameterGroup;
using strategy::Strategy;
using strategy::TrainerOptions;
using train::Callback;
using train::CsvLog;
using train::EarlyStopping;
using train::EpochLogs;
using train::Evaluation;
using train::FitOptions;
using train::History;
using train::LearningRate;
using train::MetricsAddress;
using train::MetricsExporter;
using train::MetricsExporterOptions;
using train::NameMap;
using train::OutputValues;
using train::Predictions;
using train::Pretrained;
using train::ProgressBar;
using train::ReduceOnPlateau;
using train::StepLogs;
using train::Trainer;

}  // namespace lockstep::inline v0

#endif
