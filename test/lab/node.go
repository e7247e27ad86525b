// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/ovstest"
)

// Node is a member of the cluster. Its Addresses are those of the fabric.
type Node struct {
	*Host
	OVS      *ovstest.OVS
	PodCIDRs []netip.Prefix

	lab   *Lab
	index int    // 1, 2, …
	dir   string // its disk
	bare  bool   // it is a Machine that is Bare
	agent *process
	// controller kills ovn-controller, if there is one.
	controller func()

	mu    sync.Mutex
	pods  map[*Pod]struct{}
	stops []func() // what else ends with the node's processes
}

// AddNode adds a node to the cluster, and starts its agent unless the lab has none.
func (l *Lab) AddNode(ctx context.Context) (*Node, error) {
	i := len(l.Nodes) + 1
	n := &Node{
		lab: l, index: i, dir: filepath.Join(l.dir, fmt.Sprintf("n%d", i)), pods: map[*Pod]struct{}{},
	}
	if l.options.PodCIDRs == nil {
		n.PodCIDRs = l.options.Families.pick(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i))
	} else {
		n.PodCIDRs = l.options.Families.pick(l.options.PodCIDRs(i)...)
	}
	l.Nodes = append(l.Nodes, n)
	if err := n.boot(ctx); err != nil {
		return nil, fmt.Errorf("node n%d: %w", i, err)
	}
	l.API.setNode(n, nil)
	if l.options.NoAgents {
		return n, nil
	}
	return n, n.StartAgent(ctx)
}

// boot makes what a node has before its agent starts: a wire, an Open vSwitch
// with the database on its disk, addresses and routes.
func (n *Node) boot(ctx context.Context) error {
	families := n.lab.options.Families
	host, err := newHost(fmt.Sprintf("n%d", n.index),
		families.pick(fmt.Sprintf("192.168.33.%d/24", 10+n.index), fmt.Sprintf("fd00:33::%d/64", 10+n.index)))
	if err != nil {
		return err
	}
	n.Host = host
	if err := n.lab.fabric.attach(n.Host); err != nil {
		return err
	}
	if err := n.withLink("eth0", func(l netlink.Link) error {
		return netlink.LinkSetHardwareAddr(l, n.mac())
	}); err != nil {
		return err
	}
	n.OVS, err = ovstest.New(ctx, ovstest.Options{
		Dir: n.ovsDir(), Netns: n.Netns(), Datapath: string(n.lab.options.Datapath),
		// The agent adds the routes, or the lab those of OVN's tunnels; without an agent they are
		// missing.
		OwnRoutes: n.lab.options.Datapath == config.DatapathNetdev &&
			(!n.lab.options.NoAgents || n.lab.options.OneCard),
	})
	if err != nil {
		return err
	}
	uplink := "eth0"
	if n.lab.options.Datapath == config.DatapathNetdev && !n.lab.options.OneCard {
		uplink = physicalBridge
		if err := n.addUplinkBridge(ctx, physicalBridge, n.mac()); err != nil {
			return err
		}
	}
	if err := n.configureUplink(uplink); err != nil {
		return err
	}
	if n.lab.options.OVN {
		if err := n.bootOVN(ctx); err != nil {
			return err
		}
	}
	return n.lab.API.listen(n)
}

// Dir is the node's disk: what it holds outlives a reboot.
func (n *Node) Dir() string { return n.dir }

func (n *Node) ovsDir() string { return filepath.Join(n.dir, "ovs") }

// mac is the address of the node's network card, the same after a reboot.
func (n *Node) mac() net.HardwareAddr { return net.HardwareAddr{0x0a, 0xfa, 0xb0, 0, 0, byte(n.index)} }

// physicalBridge holds the uplink of a node on the userspace datapath: tunnels there need the
// node's address on a port of the datapath.
const physicalBridge = "br-phy"

// deaf keeps the kernel from taking what arrives at the uplink for itself: the
// userspace datapath reads it there, too, and hands it to the bridge.
const deaf = `table netdev lab { chain uplink { type filter hook ingress device "eth0" priority 0; policy drop; }; }`

// addUplinkBridge makes a bridge with the card as a port.
func (n *Node) addUplinkBridge(ctx context.Context, name string, mac net.HardwareAddr) error {
	if n.OVS.Datapath == string(config.DatapathNetdev) {
		if err := n.Sysctl("net/ipv6/conf/eth0/disable_ipv6", "1"); err != nil {
			return err
		}
		if _, err := n.Run(ctx, "nft", deaf); err != nil {
			return err
		}
	}
	_, err := n.OVS.Vsctl(ctx, "--may-exist", "add-br", name, "--",
		"set", "bridge", name, "datapath_type="+n.OVS.Datapath, fmt.Sprintf(`other_config:hwaddr="%s"`, mac), "--",
		"--may-exist", "add-port", name, "eth0")
	return err
}

func (n *Node) configureUplink(link string) error {
	if err := n.linkUp(link); err != nil {
		return err
	}
	if err := n.addAddresses(link, n.Addresses...); err != nil {
		return err
	}
	for f := range n.lab.options.Families.Each {
		all := netip.MustParsePrefix(map[Family]string{IPv4: "0.0.0.0/0", IPv6: "::/0"}[f])
		if err := n.AddRoute(all, n.lab.Outside.Address(f)); err != nil {
			return err
		}
	}
	return nil
}

// Gateway is the address that the node's pods use as their gateway.
func (n *Node) Gateway(f Family) netip.Addr {
	for _, p := range n.PodCIDRs {
		if FamilyOf(p.Addr()) == f {
			return p.Addr().Next()
		}
	}
	return netip.Addr{}
}

// Reboot ends every process of the node at once, its pods' too, forgets the
// state of its kernel and of /run, and boots it again with the disk as it was
// left. The agent is started as well; pods are not.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.RebootWithoutAgent(ctx); err != nil {
		return err
	}
	return n.StartAgent(ctx)
}

// RebootWithoutAgent is Reboot up to the moment in which the agent would be started.
func (n *Node) RebootWithoutAgent(ctx context.Context) error {
	if err := n.lab.fabric.detach(n.Name); err != nil {
		return err
	}
	n.stop()
	if err := n.clearRun(); err != nil {
		return err
	}
	if err := n.boot(ctx); err != nil {
		return fmt.Errorf("reboot n%d: %w", n.index, err)
	}
	return nil
}

// clearRun removes what a real node keeps in memory.
func (n *Node) clearRun() error {
	entries, err := os.ReadDir(n.ovsDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "conf.db" {
			err = errors.Join(err, os.Remove(filepath.Join(n.ovsDir(), e.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(n.runDir()))
}

// onStop has fn called when the node stops.
func (n *Node) onStop(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stops = append(n.stops, fn)
}

// stop ends everything that runs on the node.
func (n *Node) stop() {
	for p := range maps.Clone(n.pods) {
		p.End()
	}
	for _, fn := range n.stops {
		fn()
	}
	n.stops = nil
	if n.agent != nil {
		n.KillAgent()
	}
	if n.OVS != nil {
		n.OVS.Stop()
	}
	if n.Host != nil {
		n.close()
	}
}
