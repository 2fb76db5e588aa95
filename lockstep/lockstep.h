/* The main header of Lockstep. In C++, it includes all public modules and imports the most common
 * names into the namespace `lockstep`. In C, it includes interop/c_api.h. */
#pragma once

#include "lockstep/core.h"

#if defined(__cplusplus) && __cplusplus >= 202002L

#include "lockstep/data/dataset.h"
#include "lockstep/data/image/transform.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/custom_layer.h"
#include "lockstep/model/custom_optimizer.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/model/network.h"
#include "lockstep/model/network_json.h"
#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/schedule.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/callbacks/csv_log.h"
#include "lockstep/strategy/callbacks/early_stopping.h"
#include "lockstep/strategy/callbacks/metrics_exporter.h"
#include "lockstep/strategy/callbacks/plateau.h"
#include "lockstep/strategy/callbacks/progress.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep {

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
using model::CustomLoss;
using model::CustomOptimizer;
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
using model::Embedding;
using model::FakeQuantize;
using model::Flatten;
using model::GELU;
using model::GlobalAveragePooling1D;
using model::GlobalAveragePooling2D;
using model::GlobalMaxPooling2D;
using model::GRU;
using model::Int8Type;
using model::Interpolation;
using model::LayerNormalization;
using model::LeakyReLU;
using model::LSTM;
using model::MaxPool2D;
using model::Multiply;
using model::Padding;
using model::Permute;
using model::PositionalEmbedding;
using model::ReLU;
using model::ReLU6;
using model::Reshape;
using model::RMSNormalization;
using model::row_width;
using model::Sigmoid;
using model::SiLU;
using model::SimpleRNN;
using model::Softmax;
using model::Tanh;
using model::TiedDense;
using model::UpSampling2D;
using model::ZeroPadding2D;

using strategy::Callback;
using strategy::CsvLog;
using strategy::EarlyStopping;
using strategy::EpochLogs;
using strategy::Evaluation;
using strategy::FitOptions;
using strategy::History;
using strategy::index_exchange;
using strategy::LearningRate;
using strategy::make_strategy;
using strategy::MetricsAddress;
using strategy::MetricsExporter;
using strategy::MetricsExporterOptions;
using strategy::MirroredStrategy;
using strategy::MultiWorkerMirroredStrategy;
using strategy::NameMap;
using strategy::OneDeviceStrategy;
using strategy::OutputLoss;
using strategy::OutputValues;
using strategy::ParameterGroup;
using strategy::Predictions;
using strategy::Pretrained;
using strategy::ProgressBar;
using strategy::ReduceOnPlateau;
using strategy::StepLogs;
using strategy::Strategy;
using strategy::Trainer;
using strategy::TrainerOptions;

}  // namespace lockstep

#endif
