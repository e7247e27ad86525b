// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// Rules of two tiers with groups, blocks and ranges of ports, which overlap, decide about
// connections of real kernels, whatever the datapath has cached of other ones before; and so they
// do when an address joins a group or leaves it.
func TestPolicyRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, intent.VXLAN)
	server := w.nodes[0].pods[0]
	clients := map[string]*ovstest.Namespace{
		"front": w.nodes[0].pods[1].Namespace, "ops": w.nodes[1].pods[0].Namespace, "other": w.nodes[1].pods[1].Namespace, "outside": w.outside,
	}
	policy, guard := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: "web"}, intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "guard"}
	tcp := func(first, last uint16) []intent.PortRange {
		return []intent.PortRange{{Protocol: uint8(intent.TCP), First: first, Last: last}}
	}
	allow := intent.Rule{Policy: policy, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier, Action: intent.Allow}
	front, wire, all, pass, deny := allow, allow, allow, allow, allow
	front.ID, front.Number, front.Groups, front.Ports = "1", 1, []string{"front"}, tcp(80, 80)
	wire.ID, wire.Number, wire.Ports = "2", 2, tcp(80, 81)
	wire.Blocks = []netip.Prefix{netip.MustParsePrefix("192.168.33.100/32"), netip.MustParsePrefix("fd33::100/128")}
	all.ID, all.Number, all.AnyPeer, all.Ports = "3", 3, true, tcp(8000, 8003)
	pass.ID, pass.Number, pass.Policy, pass.Tier, pass.Action, pass.Groups = "4", 1, guard, intent.AdminTier, intent.Pass, []string{"ops"}
	deny.ID, deny.Number, deny.Policy, deny.Tier, deny.Action, deny.AnyPeer, deny.Ports = "5", 2, guard, intent.AdminTier, intent.Deny, true, tcp(8002, 8010)
	w.known.Rules = []intent.Rule{front, wire, all, pass, deny}
	w.known.Subjects = []intent.Subject{{Key: server.port.SubjectKey(), Rules: []string{"1", "2", "3", "4", "5"}, IngressIsolation: []intent.PolicyRef{policy}}}
	w.governed = map[*livePod]bool{server: true}
	w.nodes[0].local.PolicyMode = intent.EnforcedPolicies

	ports := []int{80, 81, 8000, 8003, 8004}
	for _, v6 := range []bool{false, true} {
		for _, port := range ports {
			listen(t, server, net.JoinHostPort(server.address(v6), fmt.Sprint(port)))
		}
	}
	member := func(p *livePod, groups ...string) (peers []intent.Peer) {
		for _, a := range p.port.Addresses {
			peers = append(peers, intent.Peer{Space: intent.DefaultRouterName, Address: a, Groups: groups})
		}
		return peers
	}
	before := slices.Concat(member(w.nodes[0].pods[1], "front"), member(w.nodes[1].pods[0], "front", "ops"))
	after := slices.Concat(member(w.nodes[1].pods[1], "front"), member(w.nodes[1].pods[0], "ops"))
	for _, step := range []struct {
		name  string
		peers []intent.Peer
		want  map[string][]int
	}{
		{"before", before, map[string][]int{"front": {80, 8000}, "ops": {80, 8000, 8003}, "other": {8000}, "outside": {80, 81, 8000}}},
		{"after", after, map[string][]int{"front": {8000}, "ops": {8000, 8003}, "other": {80, 8000}, "outside": {80, 81, 8000}}},
	} {
		w.known.Peers = step.peers
		w.sync(t.Context(), w.nodes[0])
		for range 2 { // what was cached first is asked last
			slices.Reverse(ports)
			for _, v6 := range []bool{false, true} {
				got := map[string][]int{}
				var lock sync.Mutex
				var all sync.WaitGroup
				for name, from := range clients {
					all.Go(func() {
						list := connected(t.Context(), from, server.address(v6), ports)
						lock.Lock()
						got[name] = list
						lock.Unlock()
					})
				}
				all.Wait()
				if diff := cmp.Diff(step.want, got); diff != "" {
					t.Errorf("%s, IPv6: %v, ports that answer (-want +got):\n%s", step.name, v6, diff)
				}
			}
		}
	}
}

// listen accepts connections and does nothing with them.
func listen(t *testing.T, p *livePod, at string) {
	t.Helper()
	var l net.Listener
	if err := p.Do(func() (err error) { l, err = net.Listen("tcp", at); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

// connected are the ports that answer, sorted.
func connected(ctx context.Context, from *ovstest.Namespace, address string, ports []int) (open []int) {
	for _, port := range ports {
		dialer := net.Dialer{Timeout: time.Second}
		err := from.Do(func() error {
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, fmt.Sprint(port)))
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err == nil {
			open = append(open, port)
		}
	}
	slices.Sort(open)
	return open
}
