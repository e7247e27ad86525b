// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestNeutronServices has OVN balance Services, and nodes lead out of the cluster, by rows beside
// those of a real Neutron.
func TestNeutronServices(t *testing.T) {
	l := lab.New(t, lab.Options{Neutron: true, Policies: true})
	w := &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
	// Agents have to know the tenants' Networks before pods come there.
	for _, tenant := range []string{"red", "blue"} {
		w.API.AddNamespace(tenant, map[string]string{"tenant": tenant})
		w.API.AddRouter(tenant, v1alpha1.RouterSpec{})
		w.API.AddNetwork(tenant, v1alpha1.NetworkSpec{
			Role: v1alpha1.Primary, Router: tenant, Subnets: subnets("10.92.0.0/24", "fd00:92::/64"),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": tenant}},
		})
	}
	w.a, w.b = addPodAs(t, w.n1, lab.PodSpec{Name: "a"}), addPodAs(t, w.n1, lab.PodSpec{Name: "b"})
	w.c, w.d = addPodAs(t, w.n2, lab.PodSpec{Name: "c"}), addPodAs(t, w.n2, lab.PodSpec{Name: "d"})
	b := newRulebook(w, w.a, w.b, w.c, w.d)
	for _, p := range []*lab.Pod{w.a, w.b, w.c, w.d} {
		for f := range lab.Dual.Each {
			answers(t, p.Host, serverOf(p, f, answerPort))
		}
	}
	b.publish(t)
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" open", pings(w.a, w.c.Address(f)))
	}
	publish(w, "lab", "both", bothNodes, nil, w.b, w.c)
	publish(w, "lab", "near", nearOnly, nil, w.b)
	publish(w, "lab", "itself", toItself, nil, w.a)
	publish(w, "lab", "nobody", nobody, nil)
	publish(w, "lab", "kept", keptLocal, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, w.b, w.c)
	publish(w, "lab", "sticky", sticky, func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}, w.b, w.c, w.d)
	for _, part := range []struct {
		name string
		test func(*testing.T, *world, *rulebook)
	}{
		{"ways", neutronWays}, {"way out", neutronWayOut}, {"policies", neutronServicePolicies},
		{"tenant", neutronTenantService}, {"others", neutronKeeps}, {"restart", neutronRowsStay}, {"gone", neutronRowsGo},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, w, b) })
	}
	if why := neutronFailure(w); why != "" {
		t.Errorf("not done: %s", why)
	}
}

// pings has a host answer.
func pings(from *lab.Pod, dst netip.Addr) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := (&probe.Ping{Dst: dst, Count: 1}).Run(ctx, from.Host)
		if err == nil && r.Lost() > 0 {
			err = fmt.Errorf("%s does not answer", dst)
		}
		return err
	}
}

// served waits until a Service answers.
func served(t *testing.T, what string, from probe.Netns, at netip.AddrPort) {
	t.Helper()
	comesTo(t, what, func(ctx context.Context) error {
		who, _, err := ask(ctx, from, "tcp", at, time.Second)
		if err == nil && (who == refused || who == unanswered) {
			err = fmt.Errorf("%s: %s", at, who)
		}
		return err
	})
}

// Services answer pods, nodes and clients outside, by every protocol and both families.
func neutronWays(t *testing.T, w *world, _ *rulebook) {
	a, b, c := w.a.Host, w.b.Name, w.c.Name
	masked := map[lab.Family]netip.Addr{lab.IPv4: reserved.NodeLocalIPv4[0], lab.IPv6: reserved.NodeLocalIPv6[0]}
	for f := range lab.Dual.Each {
		ip := func(number int) netip.AddrPort { return clusterIPOf(number, f) }
		for _, number := range []int{bothNodes, nearOnly, toItself, keptLocal, sticky} {
			served(t, fmt.Sprint(f, " Service ", number), a, ip(number))
		}
		own := of(management(w.n1))(f)
		for _, way := range []asking{
			{name: "pod", from: a, to: ip(bothNodes), want: []string{b, c}, seen: w.a.Address(f)},
			{name: "pod of the other node", from: w.d.Host, to: ip(nearOnly), want: []string{b}, seen: w.d.Address(f)},
			{name: "pod, node port", from: a, to: atNode(w.n1, bothNodes, f), want: []string{b, c}},
			{name: "pod, node port of another node", from: a, to: atNode(w.n2, bothNodes, f), want: []string{b, c}},
			{name: "pod, itself", from: a, to: ip(toItself), want: []string{w.a.Name}, seen: masked[f]},
			{name: "pod, nobody", from: a, to: ip(nobody), want: []string{refused}},
			{name: "node", from: w.n1.Host, to: ip(bothNodes), want: []string{b, c}, seen: own},
			{name: "node, its node port", from: w.n1.Host, to: atNode(w.n1, bothNodes, f), want: []string{b, c}},
			{name: "node, node port of another node", from: w.n1.Host, to: atNode(w.n2, bothNodes, f), want: []string{b, c}},
			{name: "node, nobody", from: w.n1.Host, to: ip(nobody), want: []string{refused}},
			{name: "outside, node port", from: w.Outside, to: atNode(w.n1, bothNodes, f), want: []string{b, c}},
			{name: "outside, node port of the other node", from: w.Outside, to: atNode(w.n2, nearOnly, f), want: []string{b}},
			{name: "outside, nobody", from: w.Outside, to: atNode(w.n1, nobody, f), want: []string{refused}},
			{name: "outside, local", from: w.Outside, to: atNode(w.n1, keptLocal, f), want: []string{b}, seen: w.Outside.Address(f)},
			{name: "outside, local, other node", from: w.Outside, to: atNode(w.n2, keptLocal, f), want: []string{c}, seen: w.Outside.Address(f)},
			{name: "pod, local", from: a, to: ip(keptLocal), want: []string{b, c}, seen: w.a.Address(f)},
		} {
			way.check(t)
		}
		for _, from := range []*lab.Host{w.a.Host, w.n1.Host} {
			// Of a client that OVN does not know yet, the first connection may be lost.
			served(t, fmt.Sprint(f, " affinity of ", from.Name), from, ip(sticky))
			first, _, err := ask(t.Context(), from, "tcp", ip(sticky), probe.AnswerTimeout)
			for range 10 {
				who, _, again := ask(t.Context(), from, "tcp", ip(sticky), probe.AnswerTimeout)
				if err != nil || again != nil || who != first {
					t.Errorf("%s %s: %s answers after %s, %v, %v", f, from.Name, who, first, err, again)
					break
				}
			}
		}
	}
}

// What pods send out of the cluster leaves with their node's address; an address of the cluster
// that nothing has does not.
func neutronWayOut(t *testing.T, w *world, _ *rulebook) {
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.Outside.Address(f), 9090)
		serve(t, w.Outside, at, probe.WhoAmI)
		for _, p := range []*lab.Pod{w.a, w.c} {
			comesTo(t, f.String()+" out of "+p.Node.Name, func(ctx context.Context) error {
				got, err := probe.Seen(ctx, p.Host, at)
				if err == nil && got.Addr() != p.Node.Address(f) {
					err = fmt.Errorf("the server sees %s, want %s", got.Addr(), p.Node.Address(f))
				}
				return err
			})
		}
		unused := netip.AddrPortFrom(clusterIPOf(250, f).Addr(), 9090)
		if who, _, err := ask(t.Context(), w.a.Host, "tcp", unused, time.Second); who != unanswered {
			t.Errorf("%s a ClusterIP of no Service: %s, %v", f, who, err)
		}
	}
}

// A policy of an endpoint judges clients by their own addresses.
func neutronServicePolicies(t *testing.T, w *world, b *rulebook) {
	b.isolate(w.b, intent.Ingress, intent.Rule{Groups: b.group("clients", w.a), Ports: tcpPort(answerPort, answerPort)})
	b.publish(t)
	for f := range lab.Dual.Each {
		at := clusterIPOf(nearOnly, f)
		comesTo(t, f.String()+" not from others", asked(w.d, at, unanswered))
		comesTo(t, f.String()+" from the policy's peer", asked(w.a, at, w.b.Name))
		comesTo(t, f.String()+" still not from others", asked(w.d, at, unanswered))
	}
	b.isolate(w.a, intent.Egress, intent.Rule{Groups: b.group("servers", w.b)})
	publish(w, "lab", "closed", reds, nil, w.d)
	b.publish(t)
	detours := map[string]*lab.Host{"outside": w.Outside, "a pod of another node": w.a.Host, "a pod of the node": w.c.Host}
	for f := range lab.Dual.Each {
		for name, from := range detours {
			comesTo(t, fmt.Sprint(f, " open by the node port, from ", name), askedBy(from, atNode(w.n2, reds, f), w.d.Name))
		}
	}
	b.isolate(w.d, intent.Ingress)
	b.publish(t)
	for f := range lab.Dual.Each {
		for name, from := range detours {
			comesTo(t, fmt.Sprint(f, " closed by the node port, from ", name), askedBy(from, atNode(w.n2, reds, f), unanswered))
		}
		comesTo(t, f.String()+" the node's own processes to a closed pod", askedBy(w.n2.Host, serverOf(w.d, f, answerPort), w.d.Name))
		comesTo(t, f.String()+" not to a Service with other endpoints", asked(w.a, clusterIPOf(keptLocal, f), unanswered))
		comesTo(t, f.String()+" to a Service of the policy's peer", asked(w.a, clusterIPOf(nearOnly, f), w.b.Name))
		comesTo(t, f.String()+" still not to others", asked(w.a, clusterIPOf(keptLocal, f), unanswered))
		comesTo(t, f.String()+" a closed pod to itself", asked(w.d, clusterIPOf(reds, f), w.d.Name))
		comesTo(t, f.String()+" no other to a closed pod", asked(w.c, clusterIPOf(reds, f), unanswered))
	}
	w.API.RemoveService("lab", "closed")
	b.open(w.a)
	b.open(w.b)
	b.open(w.d)
	b.publish(t)
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" open again", asked(w.d, clusterIPOf(nearOnly, f), w.b.Name))
	}
}

// asked has a pod get an answer of that name.
func asked(from *lab.Pod, at netip.AddrPort, want string) func(context.Context) error {
	return askedBy(from.Host, at, want)
}

func askedBy(from *lab.Host, at netip.AddrPort, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		who, _, err := ask(ctx, from, "tcp", at, time.Second)
		if err == nil && who != want {
			err = fmt.Errorf("%s: %s, want %s", at, who, want)
		}
		return err
	}
}

// A Service of a private Router leads its pods to their own addresses, and nodes and those outside
// to those that nodes know. It serves no other pods, and a policy closes it for clients outside.
func neutronTenantService(t *testing.T, w *world, b *rulebook) {
	server := addPodAs(t, w.n1, lab.PodSpec{Namespace: "red", Name: "server"})
	client := addPodAs(t, w.n2, lab.PodSpec{Namespace: "red", Name: "client"})
	b.open(server)
	b.open(client)
	b.publish(t)
	publish(w, "red", "tenant", redsNobody, nil, server)
	for f := range lab.Dual.Each {
		answers(t, server.Host, netip.AddrPortFrom(server.Own("eth0", f), answerPort))
		at := clusterIPOf(redsNobody, f)
		comesTo(t, f.String()+" its pod", asked(client, at, server.Name))
		comesTo(t, f.String()+" another's pod", asked(w.a, at, unanswered))
	}
	publish(w, "red", "tenant-local", redsLocal, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, server)
	for f := range lab.Dual.Each {
		at := clusterIPOf(redsNobody, f)
		for _, n := range []*lab.Node{w.n1, w.n2} {
			comesTo(t, fmt.Sprint(f, " by the ClusterIP, ", n.Name), askedBy(n.Host, at, server.Name))
			comesTo(t, fmt.Sprint(f, " by the node port of ", n.Name), askedBy(w.Outside, atNode(n, redsNobody, f), server.Name))
		}
		local := asking{
			name: "outside with the policy Local", from: w.Outside, to: atNode(w.n1, redsLocal, f),
			want: []string{server.Name}, seen: w.Outside.Address(f),
		}
		served(t, f.String()+" "+local.name, local.from, local.to)
		local.check(t)
		comesTo(t, f.String()+" still not another's pod", asked(w.a, at, unanswered))
	}
	b.isolate(server, intent.Ingress)
	b.publish(t)
	for f := range lab.Dual.Each {
		for _, n := range []*lab.Node{w.n1, w.n2} {
			comesTo(t, fmt.Sprint(f, " closed by the node port of ", n.Name),
				askedBy(w.Outside, atNode(n, redsNobody, f), unanswered))
		}
	}
	b.open(server)
	b.publish(t)
	w.API.RemoveService("red", "tenant")
	w.API.RemoveService("red", "tenant-local")
	neutronTenantWays(t, w, b, server, client)
}

// Pods of a private Router reach what nodes and the Router default have, by their node, which
// reaches them by the addresses that Kubernetes knows. Others do not.
func neutronTenantWays(t *testing.T, w *world, b *rulebook, server, client *lab.Pod) {
	blue := addPodAs(t, w.n1, lab.PodSpec{Namespace: "blue", Name: "blue"})
	b.open(blue)
	b.publish(t)
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" a node to its pod", askedBy(w.n1.Host, serverOf(server, f, answerPort), server.Name))
		comesTo(t, f.String()+" a Service of all on its own node", asked(server, clusterIPOf(nearOnly, f), w.b.Name))
		comesTo(t, f.String()+" a Service of all on another node", asked(client, clusterIPOf(nearOnly, f), w.b.Name))
		for what, at := range map[string]*lab.Host{"its node": w.n1.Host, "outside": w.Outside} {
			to := netip.AddrPortFrom(at.Address(f), 9091)
			serve(t, at, to, probe.WhoAmI)
			want := map[bool]netip.Addr{true: server.Address(f), false: w.n1.Address(f)}[at == w.n1.Host]
			comesTo(t, f.String()+" to "+what, func(ctx context.Context) error {
				got, err := probe.Seen(ctx, server.Host, to)
				if err == nil && got.Addr() != want {
					err = fmt.Errorf("the server sees %s, want %s", got.Addr(), want)
				}
				return err
			})
		}
		comesTo(t, f.String()+" a Service of all, from another tenant", asked(blue, clusterIPOf(nearOnly, f), w.b.Name))
		for _, other := range []*lab.Pod{w.a, w.c, blue} {
			comesTo(t, fmt.Sprint(f, " not from ", other.Name), asked(other, serverOf(server, f, answerPort), unanswered))
		}
		for _, other := range []*lab.Pod{w.b, w.c} {
			comesTo(t, fmt.Sprint(f, " not to ", other.Name), asked(server, serverOf(other, f, answerPort), unanswered))
		}
		comesTo(t, f.String()+" another node", askedBy(w.n2.Host, serverOf(server, f, answerPort), server.Name))
	}
	b.isolate(server, intent.Ingress)
	b.publish(t)
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" closed to another node", askedBy(w.n2.Host, serverOf(server, f, answerPort), unanswered))
		comesTo(t, f.String()+" closed, its node", askedBy(w.n1.Host, serverOf(server, f, answerPort), server.Name))
	}
	b.open(server)
	b.publish(t)
	// Neutron's repair takes away what it does not know of a router, and it comes again.
	neutronSync(t, w, "repair")
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" a node to its pod, repaired", askedBy(w.n1.Host, serverOf(server, f, answerPort), server.Name))
		comesTo(t, f.String()+" a Service of all, repaired", asked(client, clusterIPOf(nearOnly, f), w.b.Name))
	}
	for _, p := range []*lab.Pod{server, client, blue} {
		must(t, p.Delete(t.Context()))
	}
}

// neutronSync has Neutron compare its database with OVN's.
func neutronSync(t *testing.T, w *world, mode string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "neutron-ovn-db-sync-util", "--config-file", w.Neutron.Configuration(),
		"--ovn-neutron_sync_mode", mode).CombinedOutput()
	if err != nil {
		t.Errorf("neutron-ovn-db-sync-util in mode %s: %v: %s", mode, err, out)
	}
}

// neutronRows are the UUIDs and versions of our rows, and what refers to them; of routers, that
// of the Router default.
func neutronRows(t *testing.T, w *world) string {
	t.Helper()
	router := neutronOne(t, w, "routers", "name=router-default")["id"].(string)
	var all []string
	for columns, of := range map[string][]string{
		"name,vips,options":                         {"list", "load_balancer"},
		"name,load_balancer":                        {"list", "load_balancer_group"},
		"priority,match,action,nexthops":            {"list", "logical_router_policy"},
		"name,load_balancer_group,load_balancer":    {"list", "logical_switch"},
		"name,policies,static_routes,load_balancer": {"find", "logical_router", "name=neutron-" + router},
	} {
		text, err := w.OVN.Nbctl(t.Context(), append([]string{"--format=csv", "--columns=_uuid," + columns}, of...)...)
		must(t, err)
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Neutron leaves the rows as they are, also when it compares its own with its database; and a
// Load_Balancer of another system is not touched.
func neutronKeeps(t *testing.T, w *world, _ *rulebook) {
	network, router := neutronOne(t, w, "networks", "name=net-default"), neutronOne(t, w, "routers", "name=router-default")
	sw := "neutron-" + network["id"].(string)
	_, err := w.OVN.Nbctl(t.Context(), "lb-add", "octavia", "192.0.2.200:80", w.c.Address(lab.IPv4).String()+":8080", "tcp")
	must(t, err)
	_, err = w.OVN.Nbctl(t.Context(), "ls-lb-add", sw, "octavia")
	must(t, err)
	before := neutronRows(t, w)
	neutronCall(t, w, "PUT", "networks/"+network["id"].(string), `{"network": {"name": "net-default "}}`)
	neutronCall(t, w, "PUT", "networks/"+network["id"].(string), `{"network": {"name": "net-default"}}`)
	neutronCall(t, w, "PUT", "routers/"+router["id"].(string), `{"router": {"admin_state_up": false}}`)
	neutronCall(t, w, "PUT", "routers/"+router["id"].(string), `{"router": {"admin_state_up": true}}`)
	for _, mode := range []string{"log", "repair"} {
		neutronSync(t, w, mode)
	}
	if after := neutronRows(t, w); after != before {
		t.Errorf("there were\n%s\nand are\n%s", before, after)
	}
	for what, args := range map[string][]string{
		"the group of a switch":    {"clear", "logical_switch", sw, "load_balancer_group"},
		"the policies of a router": {"clear", "logical_router", "neutron-" + router["id"].(string), "policies"},
	} {
		_, err := w.OVN.Nbctl(t.Context(), args...)
		must(t, err)
		for f := range lab.Dual.Each {
			served(t, f.String()+" again without "+what, w.a.Host, clusterIPOf(bothNodes, f))
		}
	}
	neutronWayOut(t, w, nil)
	text, err := w.OVN.Nbctl(t.Context(), "--bare", "--columns=load_balancer", "list", "logical_switch", sw)
	must(t, err)
	if len(strings.Fields(text)) != 1 {
		t.Errorf("the switch has the load balancers %q, want that of the other system", text)
	}
	_, err = w.OVN.Nbctl(t.Context(), "lb-del", "octavia")
	must(t, err)
}

// A controller that starts writes nothing, and what is balanced goes on meanwhile.
func neutronRowsStay(t *testing.T, w *world, _ *rulebook) {
	before := neutronRows(t, w)
	w.Neutron.StopController()
	served(t, "without a controller", w.a.Host, clusterIPOf(bothNodes, lab.IPv4))
	must(t, w.Neutron.StartController())
	publish(w, "lab", "later", blues, nil, w.b)
	served(t, "a new Service", w.a.Host, clusterIPOf(blues, lab.IPv4))
	w.API.RemoveService("lab", "later")
	comesTo(t, "as before", func(context.Context) error {
		if after := neutronRows(t, w); after != before {
			return fmt.Errorf("there were\n%s\nand are\n%s", before, after)
		}
		return nil
	})
}

// Rows of a Service that goes are removed.
func neutronRowsGo(t *testing.T, w *world, _ *rulebook) {
	for _, name := range []string{"both", "near", "itself", "nobody", "kept", "sticky"} {
		w.API.RemoveService("lab", name)
	}
	comesTo(t, "no load balancer", func(ctx context.Context) error {
		text, err := w.OVN.Nbctl(ctx, "--bare", "--columns=name", "list", "load_balancer")
		if err == nil && strings.TrimSpace(text) != "" {
			err = fmt.Errorf("there are %s", text)
		}
		return err
	})
}
