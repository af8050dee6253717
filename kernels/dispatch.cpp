#include "kernels/dispatch.h"
