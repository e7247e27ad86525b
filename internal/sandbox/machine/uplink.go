// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// uplink is a node's host network on its wire. It is what a machine's network configuration does on
// a real node.
type uplink struct {
	Uplink

	mu         sync.Mutex
	configured bool
}

// deaf are rules that keep the kernel from taking what arrives on an interface for itself: the
// userspace datapath reads it there, too, and with both at work every routed packet would travel
// twice. They go with the interface.
func deaf(link string) string {
	return fmt.Sprintf(`table netdev coelan-sandbox-%[1]s
delete table netdev coelan-sandbox-%[1]s
table netdev coelan-sandbox-%[1]s {
  chain ingress {
    type filter hook ingress device "%[1]s" priority 0; policy drop;
  }
}
`, link)
}

// setup plugs the wire in. With a bridge the rest waits for the switch.
func (u *uplink) setup(machine string) error {
	eth1, err := plug(machine, u.MAC, u.Virtual)
	if err != nil {
		return err
	}
	if u.Bridge != "" {
		// The addresses live on the bridge; the port must not answer for itself.
		if err := sysctl("net/ipv6/conf/eth1/disable_ipv6", "1"); err != nil {
			return err
		}
		if err := applyRules(deaf("eth1")); err != nil {
			return err
		}
		return netlink.LinkSetUp(eth1)
	}
	return u.address(eth1)
}

// configure builds the bridge on the running switch and puts the addresses and routes on it. The
// userspace datapath's interfaces vanish with its process, so this follows each of its starts.
func (u *uplink) configure(ctx context.Context) error {
	if u.Bridge == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ovs-vsctl", "--timeout=25",
		"--", "--may-exist", "add-br", u.Bridge,
		"--", "set", "Bridge", u.Bridge, "datapath_type=netdev", "fail_mode=standalone",
		fmt.Sprintf(`other_config:hwaddr="%s"`, u.MAC),
		// Without any change ovs-vsctl would not wait for the switch, which takes the interface
		// down once more to give it its MAC, so that addresses and routes that were there too early
		// would be lost.
		"external_ids:configured="+time.Now().Format(time.RFC3339Nano),
		"--", "--may-exist", "add-port", u.Bridge, "eth1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	link, err := netlink.LinkByName(u.Bridge)
	if err != nil {
		return fmt.Errorf("%s: %w", u.Bridge, err)
	}
	if err := u.address(link); err != nil || !u.Tunnels {
		return err
	}
	return u.leadTunnels(ctx)
}

// leadTunnels adds the route of tunnels to the switch, as soon as that knows the node's address.
func (u *uplink) leadTunnels(ctx context.Context) error {
	args := []string{"ovs-appctl", "--timeout=10", "ovs/route/add", u.Addresses[0].Masked().String(), u.Bridge}
	var last error
	if err := retry(ctx, func() error {
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			last = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}); err != nil {
		return fmt.Errorf("%v: %w; at last: %w", args, err, last)
	}
	return nil
}

// address sets the link up with the node's addresses and routes.
func (u *uplink) address(link netlink.Link) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("%s: set up: %w", link.Attrs().Name, err)
	}
	for _, a := range u.Addresses {
		if err := addAddress(link, a); err != nil {
			return err
		}
	}
	for _, gateway := range u.Gateways {
		if err := replaceRoute(link, defaultRoute(gateway)); err != nil {
			return err
		}
	}
	for _, r := range u.Routes {
		if err := replaceRoute(link, r); err != nil {
			return err
		}
	}
	u.configured = true
	return nil
}

// setRoutes replaces the additional routes, at once if the uplink is configured.
func (u *uplink) setRoutes(routes []Route) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	old := u.Routes
	u.Routes = routes
	if !u.configured {
		return nil
	}
	name := u.Bridge
	if name == "" {
		name = "eth1"
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range old {
		_ = netlink.RouteDel(r.netlink(link))
	}
	for _, r := range routes {
		if err := replaceRoute(link, r); err != nil {
			return err
		}
	}
	return nil
}

func defaultRoute(gateway netip.Addr) Route {
	if gateway.Is4() {
		return Route{netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway}
	}
	return Route{netip.PrefixFrom(netip.IPv6Unspecified(), 0), gateway}
}

func (r Route) netlink(link netlink.Link) *netlink.Route {
	return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.To), Gw: r.Via.AsSlice()}
}

func replaceRoute(link netlink.Link, r Route) error {
	if err := netlink.RouteReplace(r.netlink(link)); err != nil {
		return fmt.Errorf("route %s via %s: %w", r.To, r.Via, err)
	}
	return nil
}

// addAddress skips duplicate address detection: the sandbox hands out the addresses, and a boot
// need not wait.
func addAddress(link netlink.Link, prefix netip.Prefix) error {
	address := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("%s: add %s: %w", link.Attrs().Name, prefix, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
