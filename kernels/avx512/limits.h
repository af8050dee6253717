#pragma once

#include "kernels/limits.h"

namespace k3::kernels::avx512 {
extern const LimitProbes kLimitProbes;
}
