#pragma once
constexpr int kClasses = 4;
