// All of the public API.
#pragma once
#include "rlx/array.h"
#include "rlx/base.h"
#include "rlx/files.h"
#include "rlx/graph.h"
#include "rlx/op_def.h"
#include "rlx/ops.h"
#include "rlx/optim.h"
#include "rlx/session.h"
#include "rlx/transform.h"
