// Groups of calls of one thread; what they mean is in src/comm/group.hpp.
#include "src/api/guard.hpp"

using namespace hoccl;

HOCCL_NCCL(ncclResult_t, ncclGroupStart, (void)) {
  Group::mine().start();
  return ncclSuccess;
}

HOCCL_NCCL(ncclResult_t, ncclGroupEnd, (void)) {
  return guarded([] { Group::mine().end(); });
}
