// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/rendezvous"
	"coelan.io/coelan/test/lab"
)

func TestOVNFloatingIPsOfServices(t *testing.T) {
	ovnFloatingIPsOfServices(t, lab.Options{OVN: true}, 15*time.Second)
}

// ovnFloatingIPsOfServices has clients on a VLAN and beyond its gateway reach Services by
// FloatingIPs, with OVN choosing the node that answers, and another one when that goes. Policies
// hold for them. A Service has its FloatingIPs after the bound at the latest.
func ovnFloatingIPsOfServices(t *testing.T, o lab.Options, bound time.Duration) {
	t.Helper()
	o.Nodes, o.Policies, o.Configure = 3, true, func(c *config.Config) {
		nativeServices(c)
		c.BridgeMappings = map[string]string{"office": "br-ext"}
	}
	l := lab.New(t, o)
	w := &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
	for _, n := range w.Nodes {
		must(t, n.AddPhysicalBridge(t.Context(), "br-ext"))
	}
	// Agents have to know a tenant's Network before pods come there.
	w.API.AddNamespace("red", map[string]string{"tenant": "red"})
	w.API.AddRouter("red", v1alpha1.RouterSpec{})
	red := primary("red", "10.92.0.0/24", "fd00:92::/64")
	red.Router = "red"
	w.API.AddNetwork("red", red)
	w.newPods(t)
	r := addPod(t, w.n2, "red", "r")
	x := &external{tenants: &tenants{world: w}, rules: newRulebook(w, w.a, w.b, w.c, w.d, r)}
	x.rules.publish(t)
	w.connected(t)
	vlan := int32(officeVLAN)
	w.API.AddNetwork("office", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "office", External: true,
		Subnets: []v1alpha1.Subnet{
			{CIDR: officeSubnet[lab.IPv4].String(), Gateway: office(lab.IPv4, officeGateway).String()},
			{CIDR: officeSubnet[lab.IPv6].String(), Gateway: office(lab.IPv6, officeGateway).String()},
		},
	})
	must(t, w.n2.AddGateway(t.Context(), "br-ext", officeVLAN, officePrefixes(officeGateway)...))
	near, err := w.n1.AddVLANHost(t.Context(), "br-ext", "near", officeVLAN, officePrefixes(20)...)
	must(t, err)
	far, err := w.Lab.AddHostBeyond("far", narrowMTU,
		netip.MustParsePrefix("198.18.5.2/24"), netip.MustParsePrefix("fd00:18:5::2/64"))
	must(t, err)
	for f := range lab.Dual.Each {
		must(t, near.AddRoute(netip.PrefixFrom(far.Address(f), 0).Masked(), office(f, officeGateway)))
		for _, p := range []*lab.Pod{w.a, w.b, w.c} {
			answers(t, p.Host, netip.AddrPortFrom(p.Address(f), answerPort))
			serve(t, p.Host, netip.AddrPortFrom(p.Address(f), muchPort), sendMuch)
		}
		answers(t, r.Host, netip.AddrPortFrom(r.Own("eth0", f), answerPort))
	}
	publish(w, "lab", "both", fipBoth, nil, w.b, w.c)
	publish(w, "lab", "other", fipOther, nil, w.c)
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	publish(w, "lab", "local", fipLocal, local, w.c)
	publish(w, "lab", "nobody", fipNobody, nil)
	publish(w, "red", "reds", fipReds, nil, r)
	publishAt(w, "lab", "closed", fipClosed, closedPort, nil, w.a, w.c)
	publishAt(w, "lab", "much", fipMuch, muchPort, nil, w.a)
	publishAt(w, "lab", "much-local", fipMuchLocal, muchPort, local, w.c)
	publish(w, "lab", "balanced", fipBalanced, func(s *corev1.Service) {
		for f := range lab.Dual.Each {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges,
				netip.PrefixFrom(far.Address(f), far.Address(f).BitLen()).String())
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: office(f, fipBalanced).String()})
		}
	}, w.a)
	x.near, x.far = near, far
	for name, number := range map[string]int{
		"both": fipBoth, "other": fipOther, "local": fipLocal, "nobody": fipNobody, "closed": fipClosed,
		"much": fipMuch, "much-local": fipMuchLocal, "balanced": fipBalanced,
	} {
		x.bindService("lab", name, number)
	}
	x.bindService("red", "reds", fipReds)
	for f := range lab.Dual.Each {
		at := func(number int) netip.AddrPort { return atOffice(number, f) }
		w.awaitOVN(t, near, far, f, bound)
		for _, ask := range []asking{
			{name: "VLAN", from: near, to: at(fipBoth), want: []string{w.b.Name, w.c.Name}},
			{name: "beyond the gateway", from: far, to: at(fipBoth), want: []string{w.b.Name, w.c.Name}},
			{name: "VLAN, one endpoint", from: near, to: at(fipOther), want: []string{w.c.Name}},
			{name: "VLAN, local", from: near, to: at(fipLocal), want: []string{w.c.Name}, seen: near.Address(f)},
			{name: "beyond, local", from: far, to: at(fipLocal), want: []string{w.c.Name}, seen: far.Address(f)},
			{name: "beyond, of the source ranges", from: far, to: at(fipBalanced), want: []string{w.a.Name}},
			{name: "VLAN, not of the source ranges", from: near, to: at(fipBalanced), want: []string{unanswered}},
			{name: "beyond, nobody", from: far, to: at(fipNobody), want: []string{refused}, only: "tcp"},
			{name: "VLAN, a tenant's", from: near, to: at(fipReds), want: []string{r.Name}},
			{name: "beyond, a tenant's", from: far, to: at(fipReds), want: []string{r.Name}},
			{name: "a pod", from: w.a.Host, to: at(fipBoth), want: []string{w.b.Name, w.c.Name}, seen: w.a.Address(f)},
			{name: "a node", from: w.n1.Host, to: at(fipOther), want: []string{w.c.Name}},
		} {
			ask.check(t)
		}
	}
	for _, n := range w.Nodes {
		must(t, n.Check(t.Context()))
	}
	t.Run("errors", func(t *testing.T) { floatingServiceErrors(t, x) })
	t.Run("sizes", func(t *testing.T) { floatingServiceSends(t, x) })
	t.Run("policies", func(t *testing.T) { floatingServicePolicies(t, x) })
	w.ovnFailover(t, near, bound)
}

// awaitOVN waits until clients have the answers that they are to have. What is tried then is a
// packet or two: by then OVN has to know all ways there and back, also the routers on them.
func (w *world) awaitOVN(t *testing.T, near, far *lab.Host, f lab.Family, bound time.Duration) {
	t.Helper()
	for _, from := range []*lab.Host{near, far} {
		for _, number := range []int{fipBoth, fipOther, fipLocal, fipReds} {
			ovnServed(t, from, atOffice(number, f), bound)
		}
		for _, number := range []int{fipNobody, fipClosed} {
			ovnAnswers(t, from, atOffice(number, f), bound, func(who string) bool { return who == refused })
		}
	}
	ovnServed(t, far, atOffice(fipBalanced, f), bound)
}

// ovnFailover cuts the power of the node that answers for a Service with an endpoint on another
// one. It takes a third node: a chassis that has no tunnel left to any takes itself for the one
// that is cut off.
func (w *world) ovnFailover(t *testing.T, near *lab.Host, bound time.Duration) {
	t.Helper()
	publish(w, "lab", "near", fipNear, nil, w.a)
	numbers := map[lab.Family]int{}
	for f := range lab.Dual.Each {
		numbers[f] = 160
		for rendezvous.Choose(office(f, numbers[f]), []string{"n1", "n2", "n3"}) != w.n2.Name {
			numbers[f]++
		}
		address := office(f, numbers[f]).String()
		w.API.AddServiceFloatingIP("lab", fmt.Sprint("near-", f), "office", address, "near")
		ovnServed(t, near, atOffice(numbers[f], f), bound)
		port := fmt.Sprintf("logical_port=%q", fmt.Sprintf("cr-front-out-near-%s@lab", f))
		row, err := w.OVN.Sbctl(t.Context(), "--bare", "--columns=chassis", "find", "port_binding", port)
		must(t, err)
		name, err := w.OVN.Sbctl(t.Context(), "--bare", "--columns=name", "list", "chassis", row)
		must(t, err)
		if name != w.n2.Name {
			t.Errorf("%s: %q answers for %s", f, name, address)
		}
	}
	must(t, w.n2.Unplug())
	for f, number := range numbers {
		ovnServed(t, near, atOffice(number, f), bound)
	}
}

// ovnServed waits until a Service answers.
func ovnServed(t *testing.T, from *lab.Host, at netip.AddrPort, bound time.Duration) {
	t.Helper()
	ovnAnswers(t, from, at, bound, func(who string) bool { return who != refused && who != unanswered })
}

// ovnAnswers waits until the answer is a certain one.
func ovnAnswers(
	t *testing.T, from *lab.Host, at netip.AddrPort, bound time.Duration, is func(who string) bool,
) {
	t.Helper()
	becomesWithin(t, bound, fmt.Sprint(from.Name, " to ", at), func(ctx context.Context) error {
		who, _, err := ask(ctx, from, "tcp", at, time.Second)
		if err == nil && !is(who) {
			err = fmt.Errorf("%q answers", who)
		}
		return err
	})
}
