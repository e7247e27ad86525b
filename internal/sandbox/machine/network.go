// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// setupNetwork brings up the network of a machine that has just been born. It returns the
// uplink of a node.
func setupNetwork(c Config) (*uplink, error) {
	sysctls := map[string]string{
		"net/ipv4/ip_forward":          "1",
		"net/ipv6/conf/all/forwarding": "1",
		// Nodes hand bridged packets to their Service rules; the fabric is only a wire.
		"net/bridge/bridge-nf-call-iptables":  "1",
		"net/bridge/bridge-nf-call-ip6tables": "1",
	}
	if c.Fabric != nil {
		sysctls["net/bridge/bridge-nf-call-iptables"] = "0"
		sysctls["net/bridge/bridge-nf-call-ip6tables"] = "0"
	}
	for name, value := range sysctls {
		// A kernel without IPv6 or bridge netfilter has no such setting, and no need of it.
		if err := sysctl(name, value); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("set lo up: %w", err)
	}
	switch {
	case c.Fabric != nil:
		return nil, c.Fabric.setup(lo)
	case c.Uplink != nil:
		u := &uplink{Uplink: *c.Uplink}
		return u, u.setup(c.Name)
	}
	return nil, nil
}

func sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
}

// txChecksum is the offload that must be off on both ends of a wire that ends on a userspace
// datapath: Open vSwitch reads frames as they are, so that the checksum would never be filled in.
const txChecksum = "tx-checksum-ip-generic"

func checksumInSoftware(link string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	if err := e.Change(link, map[string]bool{txChecksum: false}); err != nil {
		return fmt.Errorf("%s: set %s off: %w", link, txChecksum, err)
	}
	return nil
}

// plug makes the wire: eth1 here, and on the fabric a port of its bridge that is
// named after the machine.
func plug(machine string, mac HardwareAddr) (netlink.Link, error) {
	fabric := netns.NsHandle(fabricFD)
	there, err := netlink.NewHandleAt(fabric)
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	defer there.Close()
	bridge, err := there.LinkByName(fabricBridge)
	if err != nil {
		return nil, fmt.Errorf("fabric: bridge %s: %w", fabricBridge, err)
	}
	// The port of the machine's last life goes only when the kernel has swept up its namespace.
	if old, err := there.LinkByName(machine); err == nil {
		_ = there.LinkDel(old)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = "eth1", []byte(mac)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: machine}); err != nil {
		return nil, fmt.Errorf("make the wire: %w", err)
	}
	for _, end := range []string{"eth1", machine} {
		if err := checksumInSoftware(end); err != nil {
			return nil, err
		}
	}
	far, err := netlink.LinkByName(machine)
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetNsFd(far, int(fabric)); err != nil {
		return nil, fmt.Errorf("move the wire's end to the fabric: %w", err)
	}
	if far, err = there.LinkByName(machine); err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	if err := there.LinkSetMaster(far, bridge); err != nil {
		return nil, fmt.Errorf("fabric: plug %s: %w", machine, err)
	}
	if err := there.LinkSetUp(far); err != nil {
		return nil, fmt.Errorf("fabric: set %s up: %w", machine, err)
	}
	return netlink.LinkByName("eth1")
}
