#pragma once
constexpr int kSide = 8;
