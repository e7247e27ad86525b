// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/rendezvous"
	"coelan.io/coelan/internal/sandbox"
	"coelan.io/coelan/test/lab/probe"
)

// Several nodes may be active for the addresses of an Egress and of a centralized gateway. In these
// tests both workers may be.
var candidates = []string{worker1, worker2}

// onlyWorkers is the field nodes that says so.
const onlyWorkers = `nodes: {matchLabels: {node-role.kubernetes.io/worker: ""}}`

// longestSilence is how long an address may be without an active node. It is the failure of a test
// and not the aim, which is one second: the machine may be busy.
const longestSilence = 10 * time.Second

// sharedRange is the first address of which tests take those that they ask for, and that other
// objects are not given at the same time.
var sharedRange = map[family]netip.Addr{
	ipv4: netip.MustParseAddr("198.51.100.120"), ipv6: netip.MustParseAddr("2001:db8:70::120"),
}

// firstOn returns addresses of the external Network that a node is active for first of all, where
// both workers may be.
func firstOn(node string, f family, count int) (list []netip.Addr) {
	for a := sharedRange[f]; len(list) < count; a = a.Next() {
		if rendezvous.Choose(a, candidates) == node {
			list = append(list, a)
		}
	}
	return list
}

// inFlow writes addresses as a list of YAML or JSON.
func inFlow(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, `"`+a.String()+`"`)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// officeBlock is the AddressBlock of a single address of the external Network.
func officeBlock(a netip.Addr) *v1alpha1.AddressBlock {
	return named(&v1alpha1.AddressBlock{}, names.BlockName("office", netip.PrefixFrom(a, a.BitLen())))
}

// activeRow is a row of `coelan get egress`: which nodes may be active, which is, and which answer.
var activeRow = regexp.MustCompile(`(?m)^\S+ +office +(\S+) +(\S+) +(\S+) +(\S+)$`)

// agreed waits until all nodes agree on a node that is active for each of the addresses, it alone
// answers, and the API names it.
func agreed(ctx context.Context, t *testing.T, addresses ...netip.Addr) map[netip.Addr]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	var active map[netip.Addr]string
	if err := eventually(ctx, func() (err error) {
		active, err = activeNodes(ctx, addresses)
		return err
	}); err != nil {
		t.Fatalf("nodes do not agree on which is active: %v", err)
	}
	return active
}

// agreedOn waits until all nodes agree that just these nodes are active.
func agreedOn(ctx context.Context, t *testing.T, want map[netip.Addr]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	if err := eventually(ctx, func() error {
		active, err := activeNodes(ctx, slices.Collect(maps.Keys(want)))
		if err == nil && !maps.Equal(active, want) {
			err = fmt.Errorf("active are %v, want %v", active, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func activeNodes(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]string, error) {
	out, err := world.coelan(ctx, "get", "egress")
	if err != nil {
		return nil, err
	}
	active := map[netip.Addr]string{}
	for _, a := range addresses {
		block, err := reported(ctx, a)
		if err != nil {
			return nil, err
		}
		for _, row := range activeRow.FindAllStringSubmatch(out, -1) {
			if row[1] == a.String() && row[3] == block && row[4] == block {
				active[a] = block
			}
		}
		if active[a] == "" {
			return nil, fmt.Errorf("%s reports that it is active for %s, and nodes see:\n%s", block, a, out)
		}
	}
	return active, nil
}

// reported is the node that last reported to be active for an address.
func reported(ctx context.Context, a netip.Addr) (string, error) {
	b := officeBlock(a)
	if err := world.objects.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
		return "", err
	}
	if b.Status.ActiveNode == "" {
		return "", fmt.Errorf("no node has reported to be active for %s", a)
	}
	return b.Status.ActiveNode, nil
}

// answerAlone asks on the external Network for addresses, by ARP and neighbor discovery: for each
// just the active node answers; none if that is empty.
func answerAlone(ctx context.Context, t *testing.T, active map[netip.Addr]string) {
	t.Helper()
	fabric := world.netns("fabric")
	mac := macOn(t, fabric, officeLink)
	wires := map[string]*probe.Wire{}
	for _, node := range candidates {
		wires[node] = wireOn(t, fabric, officeLinkOf(node))
	}
	wire := officeWire(t)
	for a := range active {
		if err := wire.Send(whoHas(mac, a)); err != nil {
			t.Fatal(err)
		}
	}
	for a, node := range active {
		if node == "" {
			continue
		}
		if _, err := wires[node].Wait(ctx, func(f probe.Frame) bool { return tellsMAC(f, mac, a) }); err != nil {
			t.Errorf("%s does not answer for %s: %v", node, a, err)
		}
	}
	var group sync.WaitGroup
	for node, wire := range wires {
		group.Go(func() {
			if err := wire.Quiet(silence, func(f probe.Frame) bool {
				for a, holder := range active {
					if holder != node && tellsMAC(f, mac, a) {
						return true
					}
				}
				return false
			}); err != nil {
				t.Errorf("%s answers for an address that it is not active for: %v; active are %v", node, err, active)
			}
		})
	}
	group.Wait()
}

// whoHas asks for the MAC of an address on the external Network, as its gateway.
func whoHas(mac net.HardwareAddr, a netip.Addr) probe.Frame {
	if a.Is4() {
		return probe.Ethernet(mac, probe.Broadcast, probe.EtherARP,
			probe.ARP(probe.ARPRequest, mac, officeGateway[ipv4].Addr(), make(net.HardwareAddr, 6), a))
	}
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	last := a.As16()
	copy(group[13:], last[13:])
	to := net.HardwareAddr{0x33, 0x33, 0xff, last[13], last[14], last[15]}
	return probe.Ethernet(mac, to, probe.EtherIPv6, probe.Neighbour(probe.NeighbourSolicitation,
		officeGateway[ipv6].Addr(), netip.AddrFrom16(group), a, mac))
}

// tellsMAC reports whether a frame tells the asker the MAC of an address.
func tellsMAC(f probe.Frame, asker net.HardwareAddr, a netip.Addr) bool {
	if !bytes.Equal(f.Dst(), asker) {
		return false
	}
	p := f.Payload()
	if a.Is4() {
		src, _ := f.IPs()
		return f.Type() == probe.EtherARP && len(p) >= 8 && p[7] == probe.ARPReply && src == a
	}
	const header, target = 40, 48
	return f.Type() == probe.EtherIPv6 && len(p) >= target+16 && p[header] == probe.NeighbourAdvertisement &&
		netip.AddrFrom16([16]byte(p[target:target+16])) == a
}

// divide adds chains to the fabric's bridges, which drop what they match, until heal is called or
// the test ends.
func divide(ctx context.Context, t *testing.T, chains string) (heal func()) {
	t.Helper()
	fabric := world.netns("fabric")
	if err := fabric.exec(ctx, "nft", "table bridge e2e { "+chains+"}"); err != nil {
		t.Fatal(err)
	}
	heal = sync.OnceFunc(func() {
		if err := fabric.exec(context.WithoutCancel(ctx), "nft", "delete table bridge e2e"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(heal)
	return heal
}

// notAsNodes counts what leaves the cluster with the addresses of nodes. The function that it
// returns reports it as a failure if there has been any.
func notAsNodes(ctx context.Context, t *testing.T) (check func()) {
	t.Helper()
	fabric := world.netns("fabric")
	var rules strings.Builder
	for _, f := range families {
		protocol := map[family]string{ipv4: "ip", ipv6: "ip6"}[f]
		var nodes []string
		for _, node := range world.Nodes() {
			nodes = append(nodes, world.nodeAddress(ctx, t, node, f).String())
		}
		fmt.Fprintf(&rules, "%[1]s saddr { %[2]s } %[1]s daddr %[3]s counter; ", protocol, strings.Join(nodes, ", "), outside(f))
	}
	if err := fabric.exec(ctx, "nft", "table inet e2e { chain in { type filter hook prerouting priority -300; "+rules.String()+"}; }"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fabric.exec(context.WithoutCancel(ctx), "nft", "delete table inet e2e"); err != nil {
			t.Error(err)
		}
	})
	return func() {
		t.Helper()
		out := fabric.run(ctx, t, "nft", "list", "table", "inet", "e2e")
		if strings.Count(out, "counter packets 0 ") != len(families) {
			t.Errorf("packets have left with the addresses of nodes:\n%s", out)
		}
	}
}

// powerCut is a node without power, and the pods that it had, with their containers.
type powerCut struct {
	node string
	at   time.Time
	pods map[string]string
}

// cutPower takes a node's power.
func cutPower(ctx context.Context, t *testing.T, node string) *powerCut {
	t.Helper()
	pods, err := world.api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &powerCut{node: node, pods: map[string]string{}}
	for _, p := range pods.Items {
		if p.Namespace != agents {
			c.pods[p.Namespace+"/"+p.Name] = containerID(&p)
		}
	}
	c.at = time.Now()
	if err := world.Stop(ctx, node, sandbox.Node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return c
}

// back boots the node, connects it to the external Network again, and waits for its pods.
func (c *powerCut) back(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := world.Start(ctx, c.node, sandbox.Node); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(world.plugOffice(ctx, c.node), world.awaitOffice(ctx, c.node, true)); err != nil {
		t.Fatal(err)
	}
	for key, before := range c.pods {
		if _, err := world.waitPod(ctx, key, func(p *corev1.Pod) bool { return ready(p) && containerID(p) != before }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "daemonset/coelan-agent", "--timeout=120s"); err != nil {
		t.Error(err)
	}
}

// newConnections waits until places open connections to the outside, and logs how long after the
// power cut, or whatever else, they first did.
func newConnections(ctx context.Context, t *testing.T, began time.Time, from ...place) {
	t.Helper()
	var group sync.WaitGroup
	for _, from := range from {
		for _, f := range families {
			group.Go(func() {
				err := eventually(ctx, func() error {
					short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
					defer cancel()
					_, err := clientOf(short, from, netip.AddrPortFrom(outside(f), 80))
					return err
				})
				took := time.Since(began)
				t.Logf("new connections of %s by %s work after %.2f s", from.name, f, took.Seconds())
				if err != nil || took > longestSilence {
					t.Errorf("new connections of %s by %s work after %s, want at most %s: %v", from.name, f, took, longestSilence, err)
				}
			})
		}
	}
	group.Wait()
}

// activeIs is an objection unless a node has reported to be active for the address of a block.
func activeIs(node string) func(*v1alpha1.AddressBlock) error {
	return func(b *v1alpha1.AddressBlock) error {
		if b.Status.ActiveNode != node {
			return fmt.Errorf("active is %q, want %s", b.Status.ActiveNode, node)
		}
		return nil
	}
}
