// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// policiesOfHostPorts applies policies to the own addresses of clients that reach a pod by a port
// of its node.
func policiesOfHostPorts(t *testing.T, w *world, b *rulebook) {
	p, err := w.n1.AddPod(t.Context(), "host-port", lab.PortMapping{HostPort: 8889, ContainerPort: 8080, Protocol: "tcp"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		delete(b.subjects, p)
		if err := p.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	at := func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(w.n1.Address(f), 8889) }
	for f := range lab.Dual.Each {
		serve(t, p, netip.AddrPortFrom(p.Address(f), 8080), probe.WhoAmI)
	}
	b.open(p)
	b.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" without a policy", reaches(w.b, at(f)))
	}
	b.isolate(p, intent.Ingress, intent.Rule{Groups: b.group("allowed", w.a)})
	b.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" from the pod that is allowed", reaches(w.a, at(f)))
		becomes(t, f.String()+" from another pod of the node", unreached(w.b, at(f)))
		becomes(t, f.String()+" from a pod of another node", unreached(w.c, at(f)))
		becomes(t, f.String()+" from another node", unreached(w.n2, at(f)))
		becomes(t, f.String()+" from outside", unreached(w.Outside, at(f)))
		becomes(t, f.String()+" from the pod's own node", reaches(w.n1, at(f)))
		becomes(t, f.String()+" from the pod itself", reaches(p, at(f)))
	}
}
