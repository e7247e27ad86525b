// SPDX-License-Identifier: Apache-2.0

package probe

import "os"

// RaiseBuffers lets packet sockets that are opened from now on hold the packets of some seconds.
// The userspace datapath reads from such sockets; with the kernel's default, 208 KiB, packets are
// lost when a busy machine does not let ovs-vswitchd run for 0.4 s, whatever else happens. Promises
// about lost packets are not about that. The setting is the machine's, and stays: another process
// of tests may need it for longer than this one.
func RaiseBuffers() error {
	return os.WriteFile("/proc/sys/net/core/rmem_default", []byte("8388608"), 0o644)
}
