#pragma once
constexpr int kSamples = 203;
