// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// external is a cluster with an external Network: a VLAN of which the host outside is the gateway.
type external struct {
	*tenants
	rules   *rulebook
	shared  *lab.Pod   // on n2, in a shared Router
	several *lab.Pod   // on n1, with a second interface lan0
	vm      *lab.Guest // on n1, in the same Network as lan0
	near    *lab.Host  // on the VLAN, at the bridge of n1
	far     *lab.Host  // behind the gateway, by a wire for packets of narrowMTU bytes
}

const officeVLAN = 42

var officeSubnet = map[lab.Family]netip.Prefix{
	lab.IPv4: netip.MustParsePrefix("192.168.42.0/24"), lab.IPv6: netip.MustParsePrefix("fd00:42::/64"),
}

// office is an address of the VLAN.
func office(f lab.Family, n int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "192.168.42.%d", lab.IPv6: "fd00:42::%d"}[f], n))
}

// officePrefixes are the addresses of a host of the VLAN.
func officePrefixes(n int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(office(lab.IPv4, n), 24), netip.PrefixFrom(office(lab.IPv6, n), 64)}
}

const officeGateway = 254

var vmMAC = intent.MAC{0x52, 0x54, 0, 0x12, 0x34, 0x57}

// startExternal makes a world with policies that allow everything, and Services in the bridge.
func startExternal(t *testing.T) *external {
	t.Helper()
	w := &external{tenants: startTenantsWith(t, lab.Options{Policies: true, Configure: func(c *config.Config) {
		nativeServices(c)
		c.BridgeMappings = map[string]string{"dc": "br-ext"}
	}})}
	ctx := within(t, time.Minute)
	for _, n := range w.Nodes {
		if err := n.AddPhysicalBridge(ctx, "br-ext"); err != nil {
			t.Fatal(err)
		}
	}
	vlan := int32(officeVLAN)
	w.API.AddNetwork("office", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", External: true,
		Subnets: []v1alpha1.Subnet{
			{CIDR: officeSubnet[lab.IPv4].String(), Gateway: office(lab.IPv4, officeGateway).String()},
			{CIDR: officeSubnet[lab.IPv6].String(), Gateway: office(lab.IPv6, officeGateway).String()},
		},
	})
	w.API.AddNamespace("shop", map[string]string{"tenant": "shop"})
	w.API.AddRouter("shop", lab.Shared())
	spec := primary("shop", "10.60.0.0/16", "fd00:60::/64")
	spec.Router = "shop"
	w.API.AddNetwork("shop", spec)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{Subnets: subnets("10.70.0.0/24", "fd00:70::/64")})
	w.API.AddDefinition("lab", "lan", "lan")
	for _, n := range []string{"office", "shop", "lan"} {
		awaitNetwork(t, w.world, n)
	}
	w.addHosts(ctx, t)
	w.rules = allow(t, w.tenants, w.shared, w.several)
	return w
}

// addHosts makes what is not in every world.
func (w *external) addHosts(ctx context.Context, t *testing.T) {
	t.Helper()
	w.shared = addPod(t, w.n2, "shop", "s0")
	w.several = addPodAs(t, w.n1, lab.PodSpec{
		Name: "several", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"},
	})
	var err error
	if err = w.n2.AddGateway(ctx, "br-ext", officeVLAN, officePrefixes(officeGateway)...); err != nil {
		t.Fatal(err)
	}
	if w.near, err = w.n1.AddVLANHost(ctx, "br-ext", "near", officeVLAN, officePrefixes(20)...); err != nil {
		t.Fatal(err)
	}
	if w.far, err = w.Lab.AddHostBeyond("far", narrowMTU,
		netip.MustParsePrefix("198.18.5.2/24"), netip.MustParsePrefix("fd00:18:5::2/64")); err != nil {
		t.Fatal(err)
	}
	w.API.AddPort("lab", "vm", "lan", vmMAC.String(), "10.70.0.200", "fd00:70::200")
	w.vm = w.addVM(ctx, t, w.n1, "vm")
	for f := range lab.Dual.Each {
		if err := w.near.AddRoute(netip.PrefixFrom(w.far.Address(f), 0).Masked(), office(f, officeGateway)); err != nil {
			t.Fatal(err)
		}
		// What lan0's address sends does not follow the route of eth0.
		gateway := map[lab.Family]string{lab.IPv4: "10.70.0.1", lab.IPv6: "fd00:70::1"}[f]
		for _, to := range []netip.Prefix{officeSubnet[f], netip.PrefixFrom(w.far.Address(f), w.far.Address(f).BitLen())} {
			run(t, w.several.Host, "ip", "route", "add", to.String(), "via", gateway, "dev", "lan0")
		}
	}
}

// addVM makes the interface of the Port lab/vm on a node.
func (w *external) addVM(ctx context.Context, t *testing.T, n *lab.Node, name string) *lab.Guest {
	t.Helper()
	g, err := n.AddGuest(ctx, name, "lab/vm", vmMAC.HardwareAddr(),
		[]netip.Prefix{netip.MustParsePrefix("10.70.0.200/24"), netip.MustParsePrefix("fd00:70::200/64")},
		netip.MustParseAddr("10.70.0.1"), netip.MustParseAddr("fd00:70::1"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// allow has no policy deny anything.
func allow(t *testing.T, w *tenants, more ...*lab.Pod) *rulebook {
	t.Helper()
	b := newRulebook(w.world, slices.Concat(w.red[:], w.blue[:], []*lab.Pod{w.a, w.b, w.c, w.d}, more)...)
	for _, n := range w.Nodes { // the virtual machine moves
		b.subjects[&lab.Pod{Node: n}] = intent.Subject{Key: intent.PortSubject("lab", "vm")}
	}
	b.publish(t)
	return b
}

// outer are the addresses of the external Network, one of each family, that a node answers for.
type outer struct {
	name   string
	number int // the last part of the addresses
	node   *lab.Node
}

func (x outer) address(f lab.Family) netip.Addr { return office(f, x.number) }

func (x outer) mac(f lab.Family) net.HardwareAddr {
	return reserved.PodMAC(x.address(f)).HardwareAddr()
}

// floating is a FloatingIP of each family that stand for one Port.
type floating struct {
	outer
	namespace string
	port      string
	host      *lab.Host
	own       func(lab.Family) netip.Addr // the Port's addresses
}

// bind publishes it.
func (w *external) bind(x floating) {
	for f := range lab.Dual.Each {
		w.API.AddFloatingIP(x.namespace, fmt.Sprint(x.name, "-", f), "office", x.address(f).String(), x.port)
	}
}

// release removes it.
func (w *external) release(x floating) {
	for f := range lab.Dual.Each {
		w.API.RemoveFloatingIP(x.namespace, fmt.Sprint(x.name, "-", f))
	}
}

// ofPod is one of a pod's eth0.
func ofPod(p *lab.Pod, number int) floating {
	return floating{outer{p.Name, number, p.Node}, p.Namespace, p.Name + ".eth0", p.Host, own(p)}
}

// floatingIPs are all of them.
type floatingIPs struct {
	a, b, c        floating // in the Router default
	red, blue      floating // in private Routers, with the same address of their own
	red2           floating // on n2
	shared, second floating
	vm             floating
}

func (w *external) floatingIPs() floatingIPs {
	return floatingIPs{
		a: ofPod(w.a, 101), b: ofPod(w.b, 102), c: ofPod(w.c, 103),
		red: ofPod(w.red[0], 110), blue: ofPod(w.blue[0], 111), red2: ofPod(w.red[2], 112),
		shared: ofPod(w.shared, 113),
		second: floating{outer{"second", 114, w.n1}, "lab", "several.lan0", w.several.Host,
			func(f lab.Family) netip.Addr { return w.several.Own("lan0", f) }},
		vm: w.floatingVM(w.n1, w.vm),
	}
}

func (w *external) floatingVM(n *lab.Node, g *lab.Guest) floating {
	return floating{outer{"vm", 115, n}, "lab", "vm", g.Host, g.Address}
}

func (s floatingIPs) all() []floating {
	return []floating{s.a, s.b, s.c, s.red, s.blue, s.red2, s.shared, s.second, s.vm}
}

// outers are the addresses of all of them.
func (s floatingIPs) outers() []outer {
	var list []outer
	for _, x := range s.all() {
		list = append(list, x.outer)
	}
	return list
}

// inBothFamilies runs a check for IPv4 and IPv6 at the same time.
func inBothFamilies(check func(lab.Family)) {
	var wg sync.WaitGroup
	for f := range lab.Dual.Each {
		wg.Go(func() { check(f) })
	}
	wg.Wait()
}

// way is a path to an address behind which the receiver knows itself by another.
type way struct {
	path
	known func(lab.Family) netip.Addr // nil: the same
}

// to is a way to a FloatingIP.
func to(name string, from *lab.Host, x floating, seen func(lab.Family) netip.Addr) way {
	return way{path{name, from, x.host, x.address, seen}, x.own}
}

// takeWays probes ways in both families.
func takeWays(t *testing.T, ways ...way) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	inBothFamilies(func(f lab.Family) {
		for _, p := range ways {
			known := p.known
			if known == nil {
				known = p.dst
			}
			if err := probeTo(ctx, p.path, f, known); err != nil {
				t.Errorf("%s %s, from %s to %s: %v", f, p.name, p.from.Name, p.dst(f), err)
			}
		}
	})
}

// awaitAnswers waits until hosts of the VLAN reach what has a FloatingIP.
func (w *external) awaitAnswers(t *testing.T, all ...floating) {
	t.Helper()
	for _, x := range all {
		for f := range lab.Dual.Each {
			becomes(t, fmt.Sprintf("%s: %s", x.name, x.address(f)), func(ctx context.Context) error {
				r, err := (probe.Ping{Dst: x.address(f), Wait: time.Second}).Run(ctx, w.near)
				if err == nil && r.Lost() > 0 {
					err = errLost
				}
				return err
			})
		}
	}
}

// announcement finds gratuitous ARP and unsolicited advertisements of an address.
func announcement(a netip.Addr, mac net.HardwareAddr) func(probe.Frame) bool {
	return func(frame probe.Frame) bool {
		p := frame.Payload()
		if !bytes.Equal(frame.Src(), mac) {
			return false
		}
		if a.Is4() {
			sender, target := frame.IPs()
			return frame.Type() == probe.EtherARP && sender == a && target == a && bytes.Equal(p[8:14], mac)
		}
		return frame.Dst()[0] == 0x33 && isAnswer(frame, mac, netip.Addr{}, a, "ND")
	}
}

// announced waits until the addresses have been announced on a wire.
func announced(t *testing.T, heard *probe.Wire, all ...outer) {
	t.Helper()
	for _, x := range all {
		for f := range lab.Dual.Each {
			becomes(t, fmt.Sprintf("%s: the announcement of %s", x.name, x.address(f)), func(context.Context) error {
				if len(heard.Frames(announcement(x.address(f), x.mac(f)))) == 0 {
					return errLost
				}
				return nil
			})
		}
	}
}

// TestFloatingIPs takes FloatingIPs of Ports of all kinds through everything that they are for.
func TestFloatingIPs(t *testing.T) {
	t.Parallel()
	w := startExternal(t)
	s := w.floatingIPs()
	if r, b := s.red.own(lab.IPv4), s.blue.own(lab.IPv4); r != b {
		t.Errorf("the tenants' pods have the addresses %s and %s, and should have the same", r, b)
	}
	t.Run("before", func(t *testing.T) { floatingBefore(t, w, s) })
	heard := wire(t, w.near)
	for _, x := range s.all() {
		w.bind(x)
	}
	w.awaitAnswers(t, s.all()...)
	announced(t, heard, s.outers()...)
	t.Run("in and out", func(t *testing.T) { floatingWays(t, w, s) })
	t.Run("one node answers", func(t *testing.T) { outerNeighbours(t, w, s.outers()) })
	t.Run("in the cluster", func(t *testing.T) { floatingInCluster(t, w) })
	t.Run("Services", func(t *testing.T) { floatingServices(t, w, s) })
	t.Run("hairpins", func(t *testing.T) { floatingHairpins(t, w, s) })
	t.Run("errors", func(t *testing.T) { floatingErrors(t, w, s) })
	t.Run("sizes", func(t *testing.T) { floatingSizes(t, w, s) })
	t.Run("spoofed", func(t *testing.T) { floatingSpoofed(t, w, s) })
	t.Run("traces", func(t *testing.T) { floatingTraces(t, w, s) })
	t.Run("policies", func(t *testing.T) { floatingPolicies(t, w, s) })
	t.Run("restarts", func(t *testing.T) { floatingRestarts(t, w, s) })
	t.Run("moves", func(t *testing.T) { floatingMoves(t, w, s) })
	t.Run("removed", func(t *testing.T) { floatingRemoved(t, w, s) })
	awaitCheck(within(t, time.Minute), t, w.world)
}

// floatingBefore is how it is without FloatingIPs.
func floatingBefore(t *testing.T, w *external, s floatingIPs) {
	var attempts []attempt
	for f := range lab.Dual.Each {
		for _, x := range s.all() {
			attempts = append(attempts, attempt{x.name + " before", w.near, x.address(f)})
		}
		attempts = append(attempts, attempt{"out of a private Router", w.vm.Host, lab.Internet(f)})
	}
	unreachable(t, attempts...)
	takeWays(t,
		way{path: path{"out by the node", w.a.Host, w.Outside, lab.Internet, w.n1.Address}},
		way{path: path{"a tenant out by the node", w.red[0].Host, w.Outside, lab.Internet, w.n1.Address}},
		way{path: path{"beyond the gateway", w.near, w.far, w.far.Address, w.near.Address}},
	)
}

// floatingWays takes all ways from outside to each Port, and from each Port to outside.
func floatingWays(t *testing.T, w *external, s floatingIPs) {
	for _, x := range s.all() {
		ways := []way{
			to(x.name+" from the VLAN", w.near, x, w.near.Address),
			to(x.name+" from beyond the gateway", w.far, x, w.far.Address),
			{path: path{x.name + " to the VLAN", x.host, w.near, w.near.Address, x.address}},
			{path: path{x.name + " beyond the gateway", x.host, w.far, w.far.Address, x.address}},
		}
		if x.name != s.second.name { // its way there is that of eth0
			ways = append(ways, way{path: path{x.name + " to the internet", x.host, w.Outside, lab.Internet, x.address}},
				way{path: path{x.name + " to the nodes' segment", x.host, w.Outside, w.Outside.Address, x.address}})
		}
		takeWays(t, ways...)
	}
	arrived := wire(t, w.a.Host)
	inBothFamilies(func(f lab.Family) {
		r, err := (probe.Ping{Dst: s.a.address(f)}).Run(t.Context(), w.near)
		if err != nil || len(r.Replies) != 1 || r.Replies[0].TTL != 63 {
			t.Errorf("%s: replies %v, %v; want one with TTL 63", f, r.Replies, err)
		}
		if _, err := arrived.Wait(t.Context(), func(frame probe.Frame) bool {
			src, dst := frame.IPs()
			return src == w.near.Address(f) && dst == s.a.own(f) && ttl(frame) == 63
		}); err != nil {
			t.Errorf("%s: with TTL 63 at the pod: %v", f, err)
		}
	})
	// The pods without a FloatingIP have nothing to do with it.
	takeWays(t,
		way{path: path{"a neighbour out by the node", w.d.Host, w.Outside, lab.Internet, w.n1.Address}},
		way{path: path{"a tenant's other pod out by the node", w.red[1].Host, w.Outside, lab.Internet, w.n1.Address}},
	)
}

// ttl is that of an IP packet.
func ttl(f probe.Frame) int {
	p := f.Payload()
	if f.Type() == probe.EtherIPv6 {
		return int(p[7])
	}
	return int(p[8])
}

// outerNeighbours asks by ARP and ND for the addresses: one answer each. Flows about them are on
// the node that answers only.
func outerNeighbours(t *testing.T, w *external, all []outer) {
	near := wire(t, w.near)
	asker := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x42}
	// Hosts of the VLAN that know the sender of an ARP request believe its MAC.
	nobody := map[lab.Family]netip.Addr{lab.IPv4: office(lab.IPv4, 66), lab.IPv6: office(lab.IPv6, 66)}
	for _, x := range all {
		v4, v6 := x.address(lab.IPv4), x.address(lab.IPv6)
		solicited := solicitedNode(v6)
		for _, ask := range []probe.Frame{
			probe.Ethernet(asker, probe.Broadcast, probe.EtherARP,
				probe.ARP(probe.ARPRequest, asker, nobody[lab.IPv4], make([]byte, 6), v4)),
			probe.Ethernet(asker, append(net.HardwareAddr{0x33, 0x33}, solicited.AsSlice()[12:]...), probe.EtherIPv6,
				probe.Neighbour(probe.NeighbourSolicitation, nobody[lab.IPv6], solicited, v6, asker)),
		} {
			if err := near.Send(ask); err != nil {
				t.Fatal(err)
			}
		}
	}
	kinds := map[lab.Family]string{lab.IPv4: "ARP", lab.IPv6: "ND"}
	answers := func(x outer, f lab.Family) func(probe.Frame) bool {
		return func(frame probe.Frame) bool {
			return bytes.Equal(frame.Dst(), asker) &&
				isAnswer(frame, x.mac(f), x.address(lab.IPv4), x.address(lab.IPv6), kinds[f])
		}
	}
	for _, x := range all {
		for f := range lab.Dual.Each {
			if _, err := near.Wait(t.Context(), answers(x, f)); err != nil {
				t.Errorf("%s: %s for %s: %v", x.name, kinds[f], x.address(f), err)
			}
		}
	}
	for _, x := range all {
		for f := range lab.Dual.Each {
			if n := len(near.Frames(answers(x, f))); n > 1 {
				t.Errorf("%s: %d answers to one %s for %s", x.name, n, kinds[f], x.address(f))
			}
		}
	}
	for _, n := range w.Nodes {
		flows, err := n.OVS.Ofctl(t.Context(), "dump-flows", "br-int")
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			for f := range lab.Dual.Each {
				if there := mentions(flows, x.address(f)); there != (x.node == n) {
					t.Errorf("%s: flows of node %s about %s: %t, want them on node %s", x.name, n.Name, x.address(f), there, x.node.Name)
				}
			}
		}
	}
}

// mentions looks for an address in a dump of flows.
func mentions(flows string, a netip.Addr) bool {
	return regexp.MustCompile(`[=(]` + regexp.QuoteMeta(a.String()) + `[, )/]`).MatchString(flows)
}
