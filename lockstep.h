/* Everything a program needs to train with Lockstep. In C++ the names that such a program uses daily are lifted into
 * `lockstep`; each room keeps the rest. In C it is the interface of interop/c_api.h. */
#pragma once

#ifndef __cplusplus
#include "interop/c_api.h"
#else

#include "allreduce/communicator.h"
#include "allreduce/groups.h"
#include "data/dataset.h"
#include "data/image/transform.h"
#include "device/device.h"
#include "device/error.h"
#include "model/layers/layers.h"
#include "model/loss.h"
#include "model/network.h"
#include "model/network_json.h"
#include "model/optimizer.h"
#include "model/schedule.h"
#include "model/zoo/zoo.h"
#include "strategy/device_share.h"
#include "strategy/make_strategy.h"
#include "strategy/mirrored_strategy.h"
#include "strategy/multi_worker_mirrored_strategy.h"
#include "strategy/one_device_strategy.h"
#include "strategy/session.h"
#include "strategy/trainer.h"
#include "strategy/wrapper/distributed_optimizer.h"

namespace lockstep {

using data::Batch;
using data::Dataset;
using data::ImageRecipe;
using data::ImageScratch;
using data::ImageTransform;

using model::Adam;
using model::AdamW;
using model::Lamb;
using model::Lars;
using model::MeanSquaredError;
using model::MetricSums;
using model::Network;
using model::Schedule;
using model::Sgd;
using model::SparseCategoricalCrossentropy;

using model::Add;
using model::AveragePool2D;
using model::BatchNormalization;
using model::Conv2D;
using model::CustomLayer;
using model::Dense;
using model::Dropout;
using model::Flatten;
using model::GlobalAveragePooling2D;
using model::MaxPool2D;
using model::Padding;
using model::ReLU;
using model::Softmax;

using strategy::Callback;
using strategy::DistributedOptimizer;
using strategy::DistributedOptions;
using strategy::MirroredStrategy;
using strategy::MultiWorkerMirroredStrategy;
using strategy::OneDeviceStrategy;
using strategy::Parameter;
using strategy::Pretrained;
using strategy::Reduction;
using strategy::Session;
using strategy::Strategy;
using strategy::Trainer;
using strategy::Workers;
using strategy::WorkersOptions;

}  // namespace lockstep

#endif
