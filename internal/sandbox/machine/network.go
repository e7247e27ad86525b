// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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

// plug makes the wire: eth1 here, and in the network namespace that the machine has inherited an
// interface that is named after the machine. On the fabric it is a port of the bridge there; that
// of a virtual machine is its hypervisor's to connect.
func plug(machine string, mac HardwareAddr, virtual bool) (netlink.Link, error) {
	outer := netns.NsHandle(outerFD)
	there, err := netlink.NewHandleAt(outer)
	if err != nil {
		return nil, fmt.Errorf("where the wire leads to: %w", err)
	}
	defer there.Close()
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
	if err := netlink.LinkSetNsFd(far, int(outer)); err != nil {
		return nil, fmt.Errorf("move the far end of the wire: %w", err)
	}
	if far, err = there.LinkByName(machine); err != nil {
		return nil, fmt.Errorf("far end of the wire: %w", err)
	}
	if virtual {
		if err := deafen(machine); err != nil {
			return nil, err
		}
	} else {
		bridge, err := there.LinkByName(fabricBridge)
		if err != nil {
			return nil, fmt.Errorf("fabric: bridge %s: %w", fabricBridge, err)
		}
		if err := there.LinkSetMaster(far, bridge); err != nil {
			return nil, fmt.Errorf("fabric: plug %s: %w", machine, err)
		}
	}
	if err := there.LinkSetUp(far); err != nil {
		return nil, fmt.Errorf("far end of the wire: set %s up: %w", machine, err)
	}
	return netlink.LinkByName("eth1")
}

// deafen has the far end of the wire be Open vSwitch's alone.
func deafen(link string) error {
	const script = `echo 1 >"/proc/sys/net/ipv6/conf/$1/disable_ipv6" && exec nft -f -`
	outer := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), outerFD)
	cmd := exec.Command("nsenter", outer, "sh", "-c", script, "sh", link)
	cmd.Stdin = strings.NewReader(deaf(link))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("far end of the wire: %s: %w: %s", link, err, out)
	}
	return nil
}
