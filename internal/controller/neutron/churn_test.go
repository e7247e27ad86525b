// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

// app is pods of one kind, such as those of a Deployment.
type app struct {
	name string
	// stable says that pods keep their names, as those of a StatefulSet do.
	stable bool
	// ends says that pods end by themselves, as those of a Job do.
	ends bool
}

// live is a pod that is there.
type live struct {
	*site
	pod  *corev1.Pod
	port *v1alpha1.Port
	key  attachment.Key
}

// site is a node, with the addresses that its agent hands out.
type site struct {
	node   string
	store  *attachment.Store
	ranges []ipam.Range
}

// churn has pods of apps come and go on one node, or where it is said on others, with what API
// server, kubelet and agent do.
type churn struct {
	*world
	*site
	spec   attachment.Spec // what attachments have of their Network
	mu     sync.Mutex
	made   int
	random *rand.Rand
}

func newChurn(t *testing.T) *churn {
	c := &churn{world: newWorld(t), random: rand.New(rand.NewPCG(1, 2)), spec: attachment.Spec{NetworkID: intent.DefaultNetwork}}
	c.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}})
	c.site = c.addSite(1)
	return c
}

// addSite adds a node.
func (c *churn) addSite(number int) *site {
	s := &site{node: fmt.Sprint("n", number)}
	var err error
	if s.store, err = attachment.Open(c.TempDir() + "/attachments"); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = s.store.Close() })
	s.store.InSlots(reserved.NeutronSpare, reserved.NeutronSpareOfNetwork, reserved.NeutronKept)
	cidrs := []string{fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:10:244:%d::/64", number)}
	var prefixes []netip.Prefix
	for _, p := range cidrs {
		prefixes = append(prefixes, netip.MustParsePrefix(p))
	}
	if s.ranges, err = ipam.Parse(prefixes); err != nil {
		c.Fatal(err)
	}
	address := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", number)}
	c.set(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.node, UID: types.UID(s.node)},
		Spec:       corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{address}},
	})
	return s
}

// onTenant has pods be on a Network with subnets, of which the node has a block each.
func (c *churn) onTenant() {
	router := &v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "red"}, Status: v1alpha1.RouterStatus{ID: 7, VNI: 7},
	}
	network := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "red"},
		Spec:       v1alpha1.NetworkSpec{Router: "red", Subnets: []v1alpha1.Subnet{{CIDR: "10.9.0.0/22"}, {CIDR: "fd09::/64"}}},
		Status:     v1alpha1.NetworkStatus{ID: 8, VNI: 8, Router: "red"},
	}
	c.set(router)
	c.set(network)
	c.spec, c.ranges = attachment.Spec{NetworkID: 8, NetworkName: "red", BlockSpace: true}, nil
	for i, p := range ipam.Pools(translate.Network(network)) {
		prefix := netip.PrefixFrom(p.Subnet.Addr(), p.BlockBits)
		c.set(&v1alpha1.AddressBlock{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("block-", i), UID: types.UID(fmt.Sprint("block-", i))},
			Spec:       v1alpha1.AddressBlockSpec{Network: "red", CIDR: prefix.String(), Node: "n1"},
		})
		r, err := p.Block(prefix)
		if err != nil {
			c.Fatal(err)
		}
		c.ranges = append(c.ranges, r)
	}
}

// add has a pod be created and attached, and returns when its node knows its port.
func (c *churn) add(a app) *live { return c.addTo(c.site, a, nil) }

// addTo is add on a node, with the MAC that the pod asks for, if it does.
func (c *churn) addTo(s *site, a app, mac *intent.MAC) *live {
	c.mu.Lock()
	c.made++
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[c.random.IntN(len(letters))]
	}
	name, uid := a.name+"-7d4f9c6b8-"+string(suffix), fmt.Sprintf("uid-%d", c.made)
	c.mu.Unlock()
	if a.stable {
		name = a.name + "-0"
	}
	labels := map[string]string{"app": a.name}
	l := &live{site: s, key: attachment.Key{ContainerID: uid, IfName: "eth0"}}
	l.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: labels},
		Spec: corev1.PodSpec{NodeName: s.node, Containers: []corev1.Container{{
			Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	c.set(l.pod)
	// A sandbox is made after the pod is known everywhere.
	c.known(intent.PodSubject(uid))
	plan := attachment.Plan{Spec: c.spec, Ranges: s.ranges}
	plan.MAC = mac
	plan.Key, plan.ConfName, plan.Netns, plan.MTU, plan.Primary = l.key, "coelan", "/n", 1400, true
	plan.PodUID, plan.PodNamespace, plan.PodName = uid, "shop", name
	at, err := s.store.Allocate(plan)
	if err != nil {
		c.Fatal(err)
	}
	whole := translate.PodPort(at, s.node, uid)
	whole.UID = types.UID("port-" + uid)
	l.port = whole.DeepCopy()
	l.port.Status = v1alpha1.PortStatus{}
	c.set(l.port)
	c.set(whole)
	c.told(whole)
	l.pod = l.pod.DeepCopy()
	l.pod.Status.Phase = corev1.PodRunning
	for _, a := range at.Addresses {
		l.pod.Status.PodIPs = append(l.pod.Status.PodIPs, corev1.PodIP{IP: a.Addr().String()})
	}
	c.set(l.pod)
	return l
}

// remove has a pod be detached and deleted.
func (c *churn) remove(a app, l *live) {
	if a.ends {
		ended := l.pod.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		c.set(ended)
		c.unknown(intent.PodSubject(string(l.pod.UID)))
		c.settle()
	}
	c.detach(l)
	c.absent(l.port)
	c.delete(l.pod)
	c.unknown(intent.PodSubject(string(l.pod.UID)))
}

// detach has the agent give back what a pod has.
func (c *churn) detach(l *live) {
	if _, err := l.store.Release(l.key); err != nil {
		c.Error(err)
	}
	c.delete(l.port)
}

// policy is a NetworkPolicy that lets one app in.
func policyFor(name, of, from string, port intstr.IntOrString) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": of}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if from != "" {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{
				PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": from}},
			}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
		}}
	}
	return p
}

// Pods under policies that are replaced, one after the other or several at a time, take fewer than
// 0.2 calls of Neutron's API each.
func TestCallsPerPodUnderPolicies(t *testing.T) {
	// The only pod with a port of a name takes the policy's groups with it.
	const most, mostByName = 0.2, 20
	number, name := intstr.FromInt32(8080), intstr.FromString("http")
	web, cache, db := app{name: "web"}, app{name: "cache"}, app{name: "db", stable: true}
	job, free, apart := app{name: "job", ends: true}, app{name: "free"}, app{name: "web-admin"}
	for _, tc := range []struct {
		name     string
		policies []*networkingv1.NetworkPolicy
		apps     map[*app]int // how many pods of each
		atOnce   int
		first    bool    // pods go before the next ones come
		most     float64 // calls per pod
		tenant   bool    // they are on a Network with subnets
	}{
		{"no policies", nil, map[*app]int{&web: 3}, 1, true, most, false},
		{"subjects", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number)}, map[*app]int{&web: 3}, 1, true, most, false},
		{"subjects that come before others go", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number)},
			map[*app]int{&web: 3}, 1, false, most, false},
		{"subjects, several at once", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number)},
			map[*app]int{&web: 8}, 5, true, most, false},
		{"peers", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number), policyFor("cache", "cache", "web", number)},
			map[*app]int{&web: 3, &cache: 3}, 1, true, most, false},
		{"peers, several at once", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number),
			policyFor("cache", "cache", "web", number)}, map[*app]int{&web: 8, &cache: 8}, 5, true, most, false},
		{"the only pod of a StatefulSet", []*networkingv1.NetworkPolicy{policyFor("db", "db", "web", number)},
			map[*app]int{&db: 1}, 1, true, most, false},
		{"the only pod of a StatefulSet, and peers that stay", []*networkingv1.NetworkPolicy{policyFor("db", "db", "web", number)},
			map[*app]int{&db: 1, &web: 0}, 1, true, most, false},
		{"the only pod with a port of a name", []*networkingv1.NetworkPolicy{policyFor("db", "db", "web", name)},
			map[*app]int{&db: 1}, 1, true, mostByName, false},
		{"pods that end", []*networkingv1.NetworkPolicy{policyFor("job", "job", "web", number)}, map[*app]int{&job: 3}, 1, true, most, false},
		{"kinds on one node", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number),
			policyFor("cache", "cache", "web", number), policyFor("db", "db", "web", number), policyFor("admin", "web-admin", "", number)},
			map[*app]int{&web: 3, &cache: 3, &db: 1, &free: 3, &apart: 2}, 1, true, most, false},
		{"kinds on one node, several at once", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number),
			policyFor("cache", "cache", "web", number), policyFor("db", "db", "web", number), policyFor("admin", "web-admin", "", number)},
			map[*app]int{&web: 3, &cache: 3, &db: 1, &free: 3, &apart: 2}, 5, true, most, false},
		{"kinds on a tenant's Network", []*networkingv1.NetworkPolicy{policyFor("web", "web", "cache", number),
			policyFor("cache", "cache", "web", number), policyFor("db", "db", "web", number)},
			map[*app]int{&web: 3, &cache: 3, &db: 1, &free: 3}, 1, true, most, true},
		{"without policies on a tenant's Network, several at once", nil, map[*app]int{&web: 6}, 5, true, most, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newChurn(t)
			if tc.tenant {
				c.onTenant()
			}
			for _, p := range tc.policies {
				c.set(p)
			}
			c.start()
			type slot struct {
				app
				*live
			}
			var slots []*slot
			for _, a := range slices.SortedFunc(maps.Keys(tc.apps), func(a, b *app) int { return strings.Compare(a.name, b.name) }) {
				for range max(tc.apps[a], 1) {
					l := c.add(*a)
					if tc.apps[a] > 0 {
						slots = append(slots, &slot{*a, l})
					}
				}
			}
			const pods, warm = 40, 50
			replaced, before := 0, map[string]int{}
			for replaced < pods+warm {
				c.random.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
				if replaced >= warm && len(before) == 0 {
					c.settle()
					before = c.calls()
				}
				var running sync.WaitGroup
				for _, s := range slots[:min(tc.atOnce, len(slots))] {
					replaced++
					running.Go(func() {
						if tc.first {
							c.remove(s.app, s.live)
							s.live = c.add(s.app)
						} else {
							former := s.live
							s.live = c.add(s.app)
							c.remove(s.app, former)
						}
					})
				}
				running.Wait()
			}
			c.settle()
			sum, kinds := 0, []string{}
			for kind, n := range c.calls() {
				if n -= before[kind]; n > 0 {
					sum += n
					kinds = append(kinds, fmt.Sprintf("%s: %.2f", kind, float64(n)/pods))
				}
			}
			slices.Sort(kinds)
			per := float64(sum) / pods
			t.Logf("%.2f calls per pod (%s)", per, strings.Join(kinds, ", "))
			if per > tc.most {
				t.Errorf("%.2f calls per pod, at most %v are to be needed: %s", per, tc.most, strings.Join(kinds, ", "))
			}
		})
	}
}
