#include "lockstep/onnx/element_operators.h"

#include <algorithm>
#include <cmath>

namespace lockstep::inline v0::onnx {
namespace {

double softplus(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }
double elu(double x, double alpha) { return x < 0 ? alpha * std::expm1(x) : x; }

constexpr ElementOperator kOperators[] = {
    {"Abs", [](double x, double, double) { return std::abs(x); }},
    {"Ceil", [](double x, double, double) { return std::ceil(x); }},
    {"Celu",
     [](double x, double alpha, double) { return elu(x / alpha, 1) * alpha; },
     {},
     {{{"alpha", 1}}}},
    {"Cos", [](double x, double, double) { return std::cos(x); }},
    {"Elu", [](double x, double alpha, double) { return elu(x, alpha); }, "elu", {{{"alpha", 1}}}},
    {"Erf", [](double x, double, double) { return std::erf(x); }},
    {"Exp", [](double x, double, double) { return std::exp(x); }},
    {"Floor", [](double x, double, double) { return std::floor(x); }},
    {"HardSigmoid",
     [](double x, double slope, double offset) { return std::clamp(slope * x + offset, 0.0, 1.0); },
     "hard_sigmoid",
     {{{"alpha", 0.2f}, {"beta", 0.5f}}}},
    {"HardSwish", [](double x, double, double) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); },
     "hard_swish"},
    {"LeakyRelu",
     [](double x, double slope, double) { return x < 0 ? slope * x : x; },
     "leaky_relu",
     {{{"alpha", 0.01f}}}},
    {"Log", [](double x, double, double) { return std::log(x); }},
    {"Mish", [](double x, double, double) { return x * std::tanh(softplus(x)); }},
    {"Neg", [](double x, double, double) { return -x; }},
    {"Reciprocal", [](double x, double, double) { return 1 / x; }},
    {"Relu", [](double x, double, double) { return std::max(x, 0.0); }, "relu"},
    {"Round", [](double x, double, double) { return std::nearbyint(x); }},
    {"Selu",
     [](double x, double alpha, double gamma) { return gamma * elu(x, alpha); },
     "selu",
     {{{"alpha", 1.67326319f}, {"gamma", 1.05070102f}}}},
    {"Sigmoid", [](double x, double, double) { return 1 / (1 + std::exp(-x)); }, "sigmoid"},
    {"Sign", [](double x, double, double) { return x > 0   ? 1.0
                                                   : x < 0 ? -1.0
                                                           : x; }},
    {"Sin", [](double x, double, double) { return std::sin(x); }},
    {"Softplus", [](double x, double, double) { return softplus(x); }, "softplus"},
    {"Softsign", [](double x, double, double) { return x / (1 + std::abs(x)); }, "softsign"},
    {"Sqrt", [](double x, double, double) { return std::sqrt(x); }},
    {"Tan", [](double x, double, double) { return std::tan(x); }},
    {"Tanh", [](double x, double, double) { return std::tanh(x); }, "tanh"},
    {"ThresholdedRelu",
     [](double x, double alpha, double) { return x > alpha ? x : 0.0; },
     {},
     {{{"alpha", 1}}}},
};

}  // namespace

std::span<const ElementOperator> element_operators() { return kOperators; }

}  // namespace lockstep::inline v0::onnx
