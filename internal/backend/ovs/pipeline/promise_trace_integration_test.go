// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
	policyoracle "coelan.io/coelan/internal/policy/oracle"
	policyworld "coelan.io/coelan/internal/policy/oracle/world"
	"coelan.io/coelan/internal/reserved"
)

// Whatever the cluster and its policies, and the packet between one of a node's pods and any peer:
// the flows of that node, on a real Open vSwitch, make of it what the kinds of policies promise,
// and name the policy that does.
func TestPromiseTrace(t *testing.T) {
	tr := newTracers(t, 1)[0]
	ends, traced := map[string]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		w := policyworld.Draw(t)
		o := w.Objects(t, "n1")
		o.Local.Encapsulation, o.Local.ServiceMode = intent.NoEncap, rapid.SampledFrom([]intent.ServiceMode{intent.NativeServices, intent.KubeProxy}).Draw(t, "mode")
		ports := portsOf(&o, w)
		state := stateOf(t, o)
		if err := tr.load(ctx, state); err != nil {
			t.Fatal(err)
		}
		type judged struct {
			policyoracle.Connection
			packet judgedPacket
		}
		var all []judged
		w.Connections(intent.DefaultRouterName, policyworld.DrawPackets(t), func(k policyoracle.Connection) {
			p := judgedPacket{
				from: ports[k.Source.Address], to: ports[k.Destination.Address], src: k.Source.Address, dst: k.Destination.Address,
				protocol: k.Protocol, port: k.Port,
			}
			if k.Protocol == policyoracle.ICMP || k.Protocol == policyoracle.ICMPv6 {
				p.port = evaluate.ICMP(k.Type, k.Code)
			}
			// Others of the node's range are on Networks that it does not have here.
			other := func(e policyoracle.End, of *intent.Port) bool {
				return of == nil && e.PoliciesApply() && slices.ContainsFunc(o.Nodes[0].Subnets, func(s intent.Subnet) bool { return s.Prefix.Contains(e.Address) })
			}
			if p.from != p.to && !k.Source.Masked && !other(k.Source, p.from) && !other(k.Destination, p.to) {
				all = append(all, judged{k, p})
			}
		})
		if len(all) == 0 {
			return // no pod is on the node
		}
		for range 30 {
			j := rapid.SampledFrom(all).Draw(t, "connection")
			want, flow := promised(&w.Cluster, j.Connection, j.packet), j.packet.flow()
			text, err := tr.vswitchd.Call(ctx, "ofproto/trace", tr.name, flow, "--ct-next", "trk,new", "--ct-next", "trk,new")
			if err != nil {
				t.Fatal(err)
			}
			last, denied := tr.verdict(text)
			if sent := outputLine.MatchString(text); want.Allowed != sent || want.Allowed == denied {
				t.Fatalf("%s (%s): want %+v, sent: %v, got %+v\n%s", j, flow, want, sent, last, text)
			}
			if denied && want.Tier != "" && !isBy(last, want.By) {
				t.Fatalf("%s (%s): want %+v, denied by %s\n%s", j, flow, want, last, text)
			}
			traced++
			ends[fmt.Sprintf("%s, %s, allowed: %v", want.Direction, want.Tier, want.Allowed)]++
		}
	})
	t.Logf("%d packets, by what decided: %v", traced, ends)
}

// portsOf gives the node its pods on the default network, and returns their Ports by address.
func portsOf(o *intent.Objects, w *policyworld.World) map[netip.Addr]*intent.Port {
	byPod := map[*corev1.Pod]*intent.Port{}
	for _, e := range w.Ends[intent.DefaultRouterName] {
		if !w.OnDefault(e) || e.NodeName() != o.Local.Node {
			continue
		}
		p := byPod[e.Pod]
		if p == nil {
			p = &intent.Port{
				ID: fmt.Sprint(e.Pod.Name, "-", len(byPod), "/eth0"), Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: string(e.Pod.UID), Interface: e.Interface,
				Network: intent.DefaultNetworkName, Node: o.Local.Node, MAC: reserved.PodMAC(e.Address),
			}
			byPod[e.Pod] = p
		}
		p.Addresses = append(p.Addresses, e.Address)
	}
	byAddress := map[netip.Addr]*intent.Port{}
	for _, p := range byPod {
		o.Ports = append(o.Ports, *p)
		for _, a := range p.Addresses {
			byAddress[a] = p
		}
	}
	return byAddress
}

// promised is what the node is to make of it: as the sender's, and as the receiver's.
func promised(c *policyoracle.Cluster, k policyoracle.Connection, p judgedPacket) policyoracle.Verdict {
	v := policyoracle.Verdict{Allowed: true}
	if p.from != nil {
		v = c.Egress(k)
	}
	if v.Allowed && p.to != nil {
		v = c.Ingress(k)
	}
	return v
}

// isBy says whether a denial is by what it is to be by: that rule, or because no rule of those
// policies allows the connection.
func isBy(v *Verdict, by []string) bool {
	if v.Rule > 0 {
		return slices.Contains(by, fmt.Sprintf("%s, rule %d", v.Policies[0], v.Rule))
	}
	var policies []string
	for _, p := range v.Policies {
		policies = append(policies, p.String())
	}
	slices.Sort(by)
	return slices.Equal(policies, by)
}
