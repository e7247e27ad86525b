// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// KernelLinks are the interfaces of the kernel.
type KernelLinks struct{}

// Exists says whether there is an interface.
func (KernelLinks) Exists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

// SetUp sets an interface up.
func (KernelLinks) SetUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: set up: %w", name, err)
	}
	return nil
}
