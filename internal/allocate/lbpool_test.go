// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/translatetest"
)

// lbWorld is what the addresses of load balancers are decided by.
type lbWorld struct {
	pools    []*v1alpha1.LoadBalancerPool
	services []*corev1.Service
	nodes    []*corev1.Node

	networks   []*v1alpha1.Network
	namespaces []*corev1.Namespace
}

func (w *lbWorld) Shuffle() {
	translatetest.Shuffle(w.pools)
	translatetest.Shuffle(w.services)
	translatetest.Shuffle(w.nodes)
	translatetest.Shuffle(w.networks)
	translatetest.Shuffle(w.namespaces)
}

func (w *lbWorld) allocate() LoadBalancers {
	return AllocateLoadBalancers(w.pools, w.services, w.nodes, w.networks, w.namespaces)
}

// Each file holds objects, and what becomes of them. Services are in the namespace a and IPv4
// unless they say so.
func TestLoadBalancersGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/loadbalancers/*.txtar", "objects.yaml", "result", parseLBWorld, func(w *lbWorld) string {
		shown := showLoadBalancers(w.allocate())
		w.copy().settle(t)
		return shown
	})
}

func parseLBWorld(t *testing.T, text []byte) *lbWorld {
	t.Helper()
	w := &lbWorld{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		kind := struct{ Kind string }{}
		err := yaml.Unmarshal(document, &kind)
		switch kind.Kind {
		case "LoadBalancerPool":
			p := &v1alpha1.LoadBalancerPool{}
			err = yaml.UnmarshalStrict(document, p)
			w.pools = append(w.pools, p)
		case "Node":
			n := &corev1.Node{}
			err = yaml.UnmarshalStrict(document, n)
			w.nodes = append(w.nodes, n)
		case "Network":
			n := &v1alpha1.Network{}
			err = yaml.UnmarshalStrict(document, n)
			w.networks = append(w.networks, n)
		case "Namespace":
			n := &corev1.Namespace{}
			err = yaml.UnmarshalStrict(document, n)
			w.namespaces = append(w.namespaces, n)
		case "Service":
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}
			err = yaml.UnmarshalStrict(document, svc)
			if svc.Spec.IPFamilies == nil {
				svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
			}
			w.services = append(w.services, svc)
		}
		if err != nil || kind.Kind == "" {
			t.Fatalf("%s: %v", document, err)
		}
	}
	return w
}

func texts(list []netip.Addr) []string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}

func showLoadBalancers(l LoadBalancers) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tADDRESSES")
	names := map[string][]netip.Addr{}
	for key, addresses := range l.Services {
		names[key.String()] = addresses
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(w, "%s\t%s\n", name, dash(strings.Join(texts(names[name]), " ")))
	}
	fmt.Fprintln(w, "POOL\tREASON\tADDRESSES\tRANGES\tUSERS")
	for _, name := range slices.Sorted(maps.Keys(l.Pools)) {
		v := l.Pools[name]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", name, v.Reason, v.Addresses, dash(strings.Join(v.Ranges, " ")), dash(strings.Join(v.Users, ", ")))
	}
	w.Flush()
	for _, name := range slices.Sorted(maps.Keys(l.Pools)) {
		if v := l.Pools[name]; v.Message != "" {
			fmt.Fprintf(&b, "pool %s: %s\n", name, v.Message)
		}
	}
	for _, p := range l.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.Reason, strings.Replace(p.Error(), ": : ", ": ", 1))
	}
	return b.String()
}

func (w *lbWorld) copy() *lbWorld {
	c := &lbWorld{nodes: w.nodes, networks: w.networks, namespaces: w.namespaces}
	for _, p := range w.pools {
		c.pools = append(c.pools, p.DeepCopy())
	}
	for _, svc := range w.services {
		c.services = append(c.services, svc.DeepCopy())
	}
	return c
}

// apply writes what was decided into the objects, as the controller does.
func (w *lbWorld) apply(l LoadBalancers) {
	w.pools = slices.DeleteFunc(w.pools, func(p *v1alpha1.LoadBalancerPool) bool {
		p.Status.Ranges = l.Pools[p.Name].Ranges
		return p.DeletionTimestamp != nil && len(l.Pools[p.Name].Users) == 0
	})
	for _, svc := range w.services {
		addresses, ours := l.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]
		if !ours {
			continue
		}
		svc.Status.LoadBalancer.Ingress = nil
		for _, a := range addresses {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
		}
	}
}

// settle writes what comes out and asks again until nothing changes any more: what one object gives
// up is free for others from the next time on.
func (w *lbWorld) settle(t rapid.TB) LoadBalancers {
	t.Helper()
	const rounds = 10
	before := ""
	for range rounds {
		l := w.allocate()
		if now := showLoadBalancers(l); now == before {
			return l
		}
		before = showLoadBalancers(l)
		w.apply(l)
	}
	t.Fatalf("does not settle; the last:\n%s", before)
	return LoadBalancers{}
}

// arbitraryLBWorld makes Services and pools that are likely to collide.
func arbitraryLBWorld(t *rapid.T) *lbWorld {
	w := &lbWorld{}
	age := rapid.IntRange(0, 3)
	meta := func(name string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{
			Namespace: "a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(age.Draw(t, "age")), 0)),
		}
		if rapid.IntRange(0, 9).Draw(t, "leaves") == 0 {
			m.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
		}
		return m
	}
	addresses := []string{"192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.9", "2001:db8::", "2001:db8::1", "2001:db8::2", "203.0.113.1"}
	address := rapid.SampledFrom(addresses)
	ranges := rapid.SliceOfN(rapid.SampledFrom([]string{
		"192.0.2.0/30", "192.0.2.0/31", "192.0.2.2/31", "192.0.2.4/32", "192.0.2.1-192.0.2.9", "2001:db8::/127", "2001:db8::1-2001:db8::2", "web",
	}), 0, 3)
	for i := range rapid.IntRange(0, 4).Draw(t, "pools") {
		p := &v1alpha1.LoadBalancerPool{ObjectMeta: meta(fmt.Sprintf("p%d", i))}
		p.Spec.Addresses, p.Status.Ranges = ranges.Draw(t, "addresses"), ranges.Draw(t, "ranges")
		p.Spec.AutoAssign = rapid.Ptr(rapid.Bool(), true).Draw(t, "auto")
		p.Spec.NamespaceSelector = rapid.SampledFrom([]*metav1.LabelSelector{
			nil, nil, {MatchLabels: map[string]string{"name": "a"}}, {MatchLabels: map[string]string{"name": "b"}}, {},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "name", Operator: "near"}}},
		}).Draw(t, "namespaces")
		w.pools = append(w.pools, p)
	}
	families := rapid.SampledFrom([][]corev1.IPFamily{
		{corev1.IPv4Protocol}, {corev1.IPv6Protocol}, {corev1.IPv4Protocol, corev1.IPv6Protocol}, {corev1.IPv6Protocol, corev1.IPv4Protocol},
	})
	for i := range rapid.IntRange(0, 8).Draw(t, "services") {
		svc := &corev1.Service{ObjectMeta: meta(fmt.Sprintf("s%d", i))}
		svc.Namespace = rapid.SampledFrom([]string{"a", "a", "b", "unknown"}).Draw(t, "namespace")
		svc.Spec.IPFamilies, svc.Annotations = families.Draw(t, "families"), map[string]string{}
		svc.Spec.Type = rapid.SampledFrom([]corev1.ServiceType{
			corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort,
		}).Draw(t, "type")
		if class := rapid.SampledFrom([]string{"", "", v1alpha1.LoadBalancerClass, "other"}).Draw(t, "class"); class != "" {
			svc.Spec.LoadBalancerClass = &class
		}
		if asks := rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1,2001:db8::1", "web", "192.0.2.99"}).Draw(t, "asks"); asks != "" {
			svc.Annotations[v1alpha1.AnnotationLoadBalancerIPs] = asks
		}
		if rapid.IntRange(0, 3).Draw(t, "names") == 0 {
			svc.Annotations[v1alpha1.AnnotationLoadBalancerPool] = rapid.SampledFrom([]string{"p0", "p1", "p2", "p9"}).Draw(t, "pool")
		}
		for _, ip := range rapid.SliceOfN(address, 0, 2).Draw(t, "has") {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		if rapid.IntRange(0, 3).Draw(t, "external") == 0 {
			svc.Spec.ExternalIPs = []string{address.Draw(t, "externalIP")}
		}
		w.services = append(w.services, svc)
	}
	for _, name := range []string{"a", "b"} {
		w.namespaces = append(w.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
	}
	if rapid.Bool().Draw(t, "node") {
		w.nodes = []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: address.Draw(t, "nodes")}}},
		}}
	}
	return w
}

// For any objects: each address is of a pool and belongs to one Service; a Service keeps what it
// has; the order of the objects does not matter; the allocation settles, and then no Service waits
// for an address that is free.
func TestLoadBalancersInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := arbitraryLBWorld(t)
		first := w.allocate()
		w.Shuffle()
		if a, b := showLoadBalancers(first), showLoadBalancers(w.allocate()); a != b {
			t.Fatalf("one order:\n%s\nanother:\n%s", a, b)
		}
		checkOwners(t, w, first)
		checkKept(t, w, first)
		w.apply(first)
		last := w.settle(t)
		checkOwners(t, w, last)
		checkNobodyWaits(t, w, last)
	})
}

func (w *lbWorld) had(svc *corev1.Service, a netip.Addr) bool {
	return slices.Contains(statusAddresses(svc), a)
}

// checkOwners says what an address that was given must be.
func checkOwners(t *rapid.T, w *lbWorld, l LoadBalancers) {
	owner := map[netip.Addr]string{}
	for _, svc := range w.services {
		addresses, ours := l.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]
		if class := svc.Spec.LoadBalancerClass; ours && class != nil && *class != v1alpha1.LoadBalancerClass && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
			t.Fatalf("%s is of class %s", svc.Name, *class)
		}
		if len(addresses) > len(svc.Spec.IPFamilies) || len(addresses) > 0 && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			t.Fatalf("%s has %v", svc.Name, addresses)
		}
		for _, a := range addresses {
			if owner[a] != "" {
				t.Fatalf("%s and %s have %s", owner[a], svc.Name, a)
			}
			owner[a] = svc.Name
			checkSelected(t, w, l, svc, a)
			if w.had(svc, a) {
				continue
			}
			if svc.DeletionTimestamp != nil {
				t.Fatalf("%s is being deleted and gets %s", svc.Name, a)
			}
			if !w.handedOut(l, a) {
				t.Fatalf("%s gets %s of no pool that is ready", svc.Name, a)
			}
			for _, n := range w.nodes {
				if n.Status.Addresses[0].Address == a.String() {
					t.Fatalf("%s gets %s of a node", svc.Name, a)
				}
			}
		}
	}
}

// checkSelected says that an address that a Service has is of no pool that is
// for other namespaces only.
func checkSelected(t *rapid.T, w *lbWorld, l LoadBalancers, svc *corev1.Service, a netip.Addr) {
	for _, p := range w.pools {
		hands := l.Pools[p.Name].Ready() && w.handedOut(l, a) && inSpec(p, a)
		if s := p.Spec.NamespaceSelector; hands && s != nil && len(s.MatchLabels) > 0 && s.MatchLabels["name"] != svc.Namespace &&
			!(svc.Namespace == "unknown" && w.had(svc, a)) {
			t.Fatalf("%s/%s has %s of pool %s, which is for namespace %s", svc.Namespace, svc.Name, a, p.Name, s.MatchLabels["name"])
		}
	}
}

func inSpec(p *v1alpha1.LoadBalancerPool, a netip.Addr) bool {
	return slices.ContainsFunc(p.Spec.Addresses, func(text string) bool {
		i, err := ipam.ParseRange(text)
		return err == nil && i.Contains(a)
	})
}

// closedTo says whether a pool may be for other namespaces only.
func closedTo(p *v1alpha1.LoadBalancerPool, namespace string) bool {
	s := p.Spec.NamespaceSelector
	return s != nil && (len(s.MatchLabels) > 0 && s.MatchLabels["name"] != namespace || len(s.MatchExpressions) > 0 || namespace == "unknown")
}

// handedOut says whether exactly one pool that is ready has the address.
func (w *lbWorld) handedOut(l LoadBalancers, a netip.Addr) bool {
	count := 0
	for _, p := range w.pools {
		if !l.Pools[p.Name].Ready() {
			continue
		}
		for _, text := range p.Spec.Addresses {
			if i, err := ipam.ParseRange(text); err == nil && i.Contains(a) {
				count++
				break
			}
		}
	}
	return count == 1
}

// checkKept finds Services that have lost or left an address without having asked for anything.
func checkKept(t *rapid.T, w *lbWorld, l LoadBalancers) {
	for _, svc := range w.services {
		addresses, ours := l.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]
		if !ours || len(svc.Annotations) > 0 || svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, a := range statusAddresses(svc) {
			is6 := cmp.Compare(a.BitLen(), 32) > 0
			family := slices.ContainsFunc(svc.Spec.IPFamilies, func(f corev1.IPFamily) bool { return (f == corev1.IPv6Protocol) == is6 })
			others := slices.ContainsFunc(w.services, func(o *corev1.Service) bool { return o != svc && w.had(o, a) })
			same := slices.ContainsFunc(statusAddresses(svc), func(o netip.Addr) bool { return o != a && o.BitLen() == a.BitLen() })
			known := slices.ContainsFunc(w.pools, func(p *v1alpha1.LoadBalancerPool) bool { return contains(translate.PoolRanges(p), a) })
			withdrawn := slices.ContainsFunc(w.pools, func(p *v1alpha1.LoadBalancerPool) bool {
				return closedTo(p, svc.Namespace) && (contains(translate.PoolRanges(p), a) || inSpec(p, a))
			})
			if family && !others && !same && known && !withdrawn && !slices.Contains(addresses, a) {
				t.Fatalf("%s had %s and has %v", svc.Name, a, addresses)
			}
		}
	}
}

// checkNobodyWaits finds Services that ask for nothing, get nothing, and could.
func checkNobodyWaits(t *rapid.T, w *lbWorld, l LoadBalancers) {
	used := map[string]bool{}
	for _, svc := range w.services {
		for _, i := range svc.Status.LoadBalancer.Ingress {
			used[i.IP] = true
		}
		for _, ip := range svc.Spec.ExternalIPs {
			used[ip] = true
		}
	}
	for _, n := range w.nodes {
		used[n.Status.Addresses[0].Address] = true
	}
	for _, svc := range w.services {
		addresses, ours := l.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]
		if !ours || len(svc.Annotations) > 0 || svc.DeletionTimestamp != nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, f := range svc.Spec.IPFamilies {
			if slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() == (f == corev1.IPv6Protocol) }) {
				continue
			}
			for _, p := range w.pools {
				if !l.Pools[p.Name].Ready() || p.Spec.AutoAssign != nil && !*p.Spec.AutoAssign || closedTo(p, svc.Namespace) {
					continue
				}
				for _, text := range p.Spec.Addresses {
					i, err := ipam.ParseRange(text)
					for a := i.From(); err == nil && i.Contains(a); a = a.Next() {
						if a.Is6() == (f == corev1.IPv6Protocol) && !used[a.String()] {
							t.Fatalf("%s has %v, and %s is free\n%s", svc.Name, addresses, a, showLoadBalancers(l))
						}
					}
				}
			}
		}
	}
}

// The first free address is found at once, however large a pool is and however many are taken.
func TestLargePools(t *testing.T) {
	w := &lbWorld{pools: []*v1alpha1.LoadBalancerPool{{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.LoadBalancerPoolSpec{Addresses: []string{"2001:db8::/64", "10.0.0.0/16", "10.1.0.0-10.1.0.255"}},
	}}}
	const many = 20000
	for i := range many {
		w.services = append(w.services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("s%05d", i)},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{"IPv6", "IPv4"}},
		})
	}
	start := time.Now()
	l := w.allocate()
	t.Logf("%d Services get addresses within %v", many, time.Since(start))
	last := l.Services[types.NamespacedName{Namespace: "a", Name: "s19999"}]
	if got := fmt.Sprint(last); got != "[2001:db8::4e1f 10.0.78.31]" {
		t.Errorf("the last has %s", got)
	}
	if v := l.Pools["p"]; v.Addresses != maxCount || len(v.Users) != 2*many {
		t.Errorf("the pool has %d addresses, %d in use", v.Addresses, len(v.Users))
	}
	w.apply(l)
	start = time.Now()
	again := w.allocate()
	t.Logf("and keep them within %v", time.Since(start))
	if showLoadBalancers(l) != showLoadBalancers(again) {
		t.Error("the second time gives something else")
	}
}

func TestAddressPools(t *testing.T) {
	pool := func(name string, ranges ...string) *v1alpha1.LoadBalancerPool {
		return &v1alpha1.LoadBalancerPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.LoadBalancerPoolStatus{Ranges: ranges}}
	}
	pools := translate.NewAddressPools([]*v1alpha1.LoadBalancerPool{
		pool("b", "192.0.2.0/30", "198.51.100.7"), pool("a", "2001:db8::5-2001:db8::9", "web", "192.0.2.4/30"), pool("none"),
	})
	for text, want := range map[string]string{
		"192.0.2.0": "b", "192.0.2.3": "b", "192.0.2.4": "a", "192.0.2.8": "", "198.51.100.7": "b", "198.51.100.8": "",
		"2001:db8::4": "", "2001:db8::5": "a", "2001:db8::9": "a", "::ffff:192.0.2.0": "",
	} {
		got := ""
		if p := pools.Find(netip.MustParseAddr(text)); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("%s is of pool %q, want %q", text, got, want)
		}
	}
}
