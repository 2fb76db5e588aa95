// Ready-made networks. All end in one output per class, logits without a softmax, as the cross-entropy loss wants them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/network.h"
#include "model/zoo/fast_cifar.h"
#include "model/zoo/resnet.h"

namespace lockstep::zoo {

/// One dense layer on the flattened input: softmax regression.
model::Network linear(model::Shape input, std::int64_t classes);

/// Dense layers of these sizes with ReLU behind each, on the flattened input, then one of `classes`.
model::Network mlp(model::Shape input, std::int64_t classes, const std::vector<std::int64_t>& hidden = {128, 128});

/// Two 3x3 convolutions (32 and 64 filters, valid) with ReLU and 2x2 max pooling, a dense layer of 128 with ReLU, one
/// of `classes`. 225,034 parameters for [28, 28, 1] and 10 classes. Needs an image of at least 10x10.
model::Network cnn(model::Shape input, std::int64_t classes);

/// The network called `name`, one of names(), or an mlp with other hidden layers, "mlp:10,10". Throws Error (input) for
/// another name.
model::Network make(std::string_view name, model::Shape input, std::int64_t classes);

/// The names that make() knows: linear, mlp, cnn, fast_cifar, resnet18, resnet34, resnet50, resnet101, resnet152.
std::vector<std::string_view> names();

}  // namespace lockstep::zoo
