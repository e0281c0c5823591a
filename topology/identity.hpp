// Who this process is to others: which machine (operating system) it runs on and which node (host) it belongs to.
#pragma once

#include <string>

namespace hoccl {

// Equal for two processes exactly when they share one kernel, pid namespace and user: boot id, namespace, uid.
std::string machine_identity();

// The node: `override_id` (the knob HOCCL_HOSTID) when given, otherwise the machine and the device of /dev/shm, so that
// containers with separate shared memory count as separate nodes.
std::string host_identity(const std::string& override_id);

std::string host_name();

}  // namespace hoccl
