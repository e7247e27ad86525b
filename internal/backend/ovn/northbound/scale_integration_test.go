// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"flag"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
)

var scale = flag.Int("scale", 1, "how many times 40 nodes and 2,000 Ports TestScale has, at most 10")

// govern has Ports be isolated, each by one of 200 policies that allow nothing.
func govern(ports []intent.Port) (rules []intent.Rule, subjects []intent.Subject) {
	const policies = 200
	for i := range policies {
		ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: fmt.Sprint("crowd-", i), Name: "web"}
		rules = append(rules, intent.Rule{
			ID: ref.String(), Policy: ref, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier, Action: intent.Allow,
			Groups: []string{ref.Namespace},
		})
	}
	for i, p := range ports {
		r := rules[i%policies]
		subjects = append(subjects, intent.Subject{
			Key: p.SubjectKey(), Rules: []string{r.ID}, IngressIsolation: []intent.PolicyRef{r.Policy},
		})
	}
	return rules, subjects
}

// TestScale writes Ports with policies, half of them on one switch, in many transactions, and
// starts again with nothing to do. It reports what our side takes for that and for one Port more,
// and how much memory it has. With -scale 10 these are 20,000 Ports on 400 nodes, which takes most
// of a minute with the race detector.
func TestScale(t *testing.T) {
	nodes, each, crowd := *scale*40, 25, *scale*1000
	o := ovntest.Start(t)
	w := world()
	w.Networks = append(w.Networks, intent.Network{
		Name: "crowd", Router: "spare", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.50.0.0/16")},
	})
	for i := range nodes {
		n := intent.Node{Name: fmt.Sprintf("m%d", i), MTU: 1400}
		p := netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256))
		n.Subnets = []intent.Subnet{{Network: "default", Prefix: p, Gateway: p.Addr().Next()}}
		w.Nodes = append(w.Nodes, n)
		for j := range each {
			w.Ports = append(w.Ports, intenttest.Port("shop", fmt.Sprintf("p-%d-%d", i, j), "default", n.Name,
				fmt.Sprintf("10.%d.%d.%d", 100+i/256, i%256, j+2)))
		}
	}
	for i := range crowd {
		w.Ports = append(w.Ports, intenttest.Port("crowd", fmt.Sprintf("p-%d", i), "crowd", "n1", fmt.Sprintf("10.50.%d.%d", 1+i/250, 2+i%250)))
	}
	w.Local.PolicyMode = intent.EnforcedPolicies
	w.Rules, w.Subjects = govern(w.Ports)
	store := intent.NewStore()
	s, _ := store.Update(func(tx *intent.Tx) error { tx.Replace(w); return nil })
	began := time.Now()
	c := start(t, []string{o.Remote("nb")}, s, nil)
	c.synced()
	t.Logf("written in %v, %d transactions", time.Since(began), c.client.Transactions())
	c.stop()

	began = time.Now()
	c = start(t, []string{o.Remote("nb")}, s, nil)
	c.synced()
	t.Logf("start with nothing to do: %v, %d transactions", time.Since(began), c.client.Transactions())
	if n := c.client.Transactions(); n != 0 {
		t.Errorf("a restart wrote %d transactions", n)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("heap %d MB", m.HeapAlloc>>20)

	for _, p := range []intent.Port{
		intenttest.Port("shop", "more", "default", "m7", "10.100.7.200"), intenttest.Port("crowd", "more", "crowd", "n1", "10.50.99.2"),
	} {
		s, _ = store.Update(func(tx *intent.Tx) error {
			_, subjects := govern([]intent.Port{p})
			tx.SetSubject(subjects[0])
			tx.SetPort(p)
			return nil
		})
		before, ref := c.client.Transactions(), nb.Ref{Table: "Logical_Switch_Port", Key: "Port/" + p.ObjectKey()}
		began = time.Now()
		c.set(s)
		for c.client.Transactions() == before {
			c.until("one more", func(error) bool { return true })
		}
		t.Logf("%s: %v with the database's own time", ref, time.Since(began))
	}
}
