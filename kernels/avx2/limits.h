#pragma once

#include "kernels/limits.h"

namespace k3::kernels::avx2 {
extern const LimitProbes kLimitProbes;
}
