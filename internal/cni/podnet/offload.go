// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct {
	cmd  uint32
	data uint32
}

// ethtoolRequest is struct ifreq of linux/if.h with a pointer in its union, padded to
// its 40 bytes.
type ethtoolRequest struct {
	name  [unix.IFNAMSIZ]byte
	value *ethtoolValue
	_     [16]byte
}

// txChecksum asks whether an interface of the thread's namespace leaves the checksums
// of what it sends to others, or sets it.
func txChecksum(ifName string, cmd, set uint32) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	value := &ethtoolValue{cmd: cmd, data: set}
	req := ethtoolRequest{value: value}
	copy(req.name[:unix.IFNAMSIZ-1], ifName)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req))); errno != 0 {
		return false, errno
	}
	return value.data != 0, nil
}

// disableTXChecksum makes the pod's kernel complete the checksums of what the pod
// sends: the userspace datapath passes packets on as they are.
func disableTXChecksum(ifName string) error {
	if _, err := txChecksum(ifName, unix.ETHTOOL_STXCSUM, 0); err != nil {
		return fmt.Errorf("turn TX checksum offload off: %w", err)
	}
	on, err := txChecksum(ifName, unix.ETHTOOL_GTXCSUM, 0)
	if err != nil {
		return fmt.Errorf("read TX checksum offload: %w", err)
	}
	if on {
		return errors.New("TX checksum offload is still on after it was turned off")
	}
	return nil
}
