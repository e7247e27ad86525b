// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/oracle"
	"coelan.io/coelan/internal/translate"
)

// Objects are what each node knows: what there is, translated, given to an Engine in any order, and the Views of the nodes. Of Ports there
// are none.
func (w *World) Objects(t *rapid.T) map[string]intent.Objects {
	engine, endpoints := policy.NewEngine(), translate.NewPolicyEndpoints()
	var give []func()
	well := func(p policy.Policy, problems []translate.Problem) {
		if len(problems) > 0 {
			t.Fatalf("%s: %v", p.Ref, problems)
		}
		give = append(give, func() { engine.SetPolicy(p) })
	}
	for _, o := range w.Namespaces {
		give = append(give, func() { engine.SetNamespace(translate.PolicyNamespace(o)) })
	}
	for _, o := range w.Nodes {
		give = append(give, func() { engine.SetNode(translate.PolicyNode(o)) })
	}
	for _, o := range w.NetworkPolicies {
		well(translate.NetworkPolicy(o))
	}
	for _, o := range w.ClusterNetworkPolicies {
		well(translate.ClusterNetworkPolicy(o))
	}
	for _, o := range w.SecurityGroups {
		well(translate.SecurityGroup(o))
		endpoints.SetSecurityGroup(o.Namespace, o.Name)
	}
	for _, o := range w.routers {
		give = append(give, func() { endpoints.SetRouter(o) })
	}
	for _, o := range w.networks {
		give = append(give, func() { endpoints.SetNetwork(o) })
	}
	for _, o := range w.Pods {
		give = append(give, func() { endpoints.SetPod(o) })
	}
	for _, o := range slices.Concat(w.Ports, w.podPorts) {
		give = append(give, func() { endpoints.SetPort(o) })
	}
	take := func() {
		set, gone := endpoints.Changes()
		for _, key := range gone {
			engine.DeleteEndpoint(key)
		}
		for _, e := range set {
			engine.SetEndpoint(e)
		}
	}
	looks := rapid.IntRange(0, len(give)).Draw(t, "an early look")
	for i, f := range rapid.Permutation(give).Draw(t, "order") {
		if i == looks {
			take()
			engine.View("n1")
		}
		f()
	}
	take()
	nodes, problems := translate.Nodes(w.Nodes)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	objects := map[string]intent.Objects{}
	for _, n := range nodes {
		v := engine.View(n.Name)
		objects[n.Name] = intent.Objects{
			Local: intent.Local{Node: n.Name, PolicyMode: intent.EnforcedPolicies}, Nodes: nodes,
			Rules: v.Rules, Subjects: v.Subjects, Peers: v.Peers,
		}
	}
	return objects
}

// DrawPackets draws protocols and ports that policies are about, without ends.
func DrawPackets(t *rapid.T) []oracle.Connection {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) oracle.Connection {
		switch p := pick(t, "protocol", oracle.TCP, oracle.TCP, oracle.TCP, oracle.UDP, oracle.UDP, oracle.SCTP, oracle.ICMP, oracle.ICMPv6, 47); p {
		case oracle.TCP, oracle.UDP, oracle.SCTP:
			return oracle.Connection{Protocol: uint8(p), Port: pick(t, "port", uint16(80), 80, 8080, 53, 443, 81, 1, 8081, 65535)}
		case oracle.ICMP, oracle.ICMPv6:
			return oracle.Connection{Protocol: uint8(p), Type: pick(t, "type", uint8(8), 128, 3), Code: pick(t, "code", uint8(0), 1)}
		default:
			return oracle.Connection{Protocol: uint8(p)}
		}
	}), 3, 6).Draw(t, "packets")
}

// Connections are all that the ends of a space may have with each other.
func (w *World) Connections(space string, packets []oracle.Connection, yield func(oracle.Connection)) {
	for _, from := range w.Ends[space] {
		for _, to := range w.Ends[space] {
			if !from.Governed() && !to.Governed() || from.Address == to.Address && !from.Same(to) || to.Masked ||
				from.Address.Is4() != to.Address.Is4() {
				continue
			}
			if from.Same(to) && from.Address != to.Address {
				continue // by two of its addresses: not what is meant by itself
			}
			for _, k := range packets {
				if k.Protocol == oracle.ICMP && !to.Address.Is4() || k.Protocol == oracle.ICMPv6 && to.Address.Is4() {
					continue
				}
				k.Source, k.Destination = from, to
				yield(k)
			}
		}
	}
}
