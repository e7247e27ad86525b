// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

const (
	asksNetworks = "k8s.v1.cni.cncf.io/networks"
	asksNFN      = "k8s.plugin.opnfv.org/nfn-network"
)

// TestPodWithThreeInterfaces has pods on two nodes with two networks beside the default one,
// one by each annotation.
func TestPodWithThreeInterfaces(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	w.API.AddNetwork("front", v1alpha1.NetworkSpec{Subnets: subnets("10.71.0.0/24", "fd00:71::/64"), MTU: 1400})
	w.API.AddNetwork("back", v1alpha1.NetworkSpec{Subnets: subnets("10.72.0.0/24")})
	w.API.AddDefinition("lab", "front", "front")
	w.API.AddDefinition("lab", "other", "", `{"cniVersion":"1.0.0","name":"other","type":"macvlan"}`)
	annotations := map[string]string{
		asksNetworks: "front,other",
		asksNFN:      `{"type":"ovn4nfv","interface":[{"name":"back","interface":"back0","defaultGateway":"false"}]}`,
	}
	p1 := addPodAs(t, w.n1, lab.PodSpec{Name: "p1", Annotations: annotations})
	annotations[asksNetworks] = `[{"name":"front","interface":"front0","ips":["10.71.0.77"],"mac":"02:00:00:00:71:77"}]`
	p2 := addPodAs(t, w.n2, lab.PodSpec{Name: "p2", Annotations: annotations})
	awaitEvent(ctx, t, w, "NetworkSkipped", `for the plugin "macvlan"`)
	for f := range lab.Dual.Each {
		front1 := func(f lab.Family) netip.Addr { return p1.Own("net1", f) }
		front2 := func(f lab.Family) netip.Addr { return p2.Own("front0", f) }
		ways := []path{
			{"default", p1.Host, p2.Host, p2.Address, p1.Address}, {"internet", p1.Host, w.Outside, lab.Internet, w.n1.Address},
		}
		back1 := func(f lab.Family) netip.Addr { return p1.Own("back0", f) }
		back2 := func(f lab.Family) netip.Addr { return p2.Own("back0", f) }
		if f == lab.IPv4 {
			ways = append(ways, path{"front, to a fixed address", p1.Host, p2.Host, front2, front1},
				path{"front, from a fixed address", p2.Host, p1.Host, front1, front2}, path{"back", p1.Host, p2.Host, back2, back1})
		}
		for _, way := range ways {
			if err := probePath(ctx, way, f); err != nil {
				t.Errorf("%s %s: %v", f, way.name, err)
			}
		}
	}
	if got := p2.Own("front0", lab.IPv4).String(); got != "10.71.0.77" {
		t.Errorf("the fixed address is %s", got)
	}
	if out := run(t, p1.Host, "ip", "link", "show", "net1"); !strings.Contains(out, "mtu 1400") {
		t.Errorf("MTU: %s", out)
	}
	if out := run(t, p2.Host, "ip", "link", "show", "front0"); !strings.Contains(out, "02:00:00:00:71:77") {
		t.Errorf("MAC: %s", out)
	}
	poll(ctx, t, func() bool {
		return len(networkStatus(w, "p1")) == 3 && annotation(w, "p1", "k8s.plugin.opnfv.org/ovnInterfaces") != ""
	},
		func() { t.Errorf("annotations of the pod: %v", networkStatus(w, "p1")) })
	fixed := awaitPort(ctx, t, w, "lab/p2.front0", func(p *v1alpha1.Port) bool { return p.Status.Node == "n2" })
	if fixed.Labels[v1alpha1.LabelPodPort] != "" || !slices.Equal(fixed.Status.Addresses, []string{"10.71.0.77"}) {
		t.Errorf("the fixed Port: %+v %+v", fixed.Labels, fixed.Status)
	}
	awaitPort(ctx, t, w, "lab/p1.net1", func(p *v1alpha1.Port) bool {
		return p.Status.Phase == v1alpha1.PortBound && p.Labels[v1alpha1.LabelPodPort] == "true" && len(p.OwnerReferences) == 1
	})
	checkAll(ctx, t, w)
	if err := p1.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p2.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool { return len(w.API.Ports()) == 0 && len(w.API.Blocks()) == 0 }, func() {
		t.Errorf("after the pods: %d Ports, %d blocks", len(w.API.Ports()), len(w.API.Blocks()))
	})
	awaitCheck(ctx, t, w)
}

func podObject(w *world, name string) *corev1.Pod {
	for _, p := range w.API.Pods() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func annotation(w *world, pod, key string) string {
	if p := podObject(w, pod); p != nil {
		return p.Annotations[key]
	}
	return ""
}

// networkStatus is the status of a pod's interfaces.
func networkStatus(w *world, pod string) []map[string]any {
	var list []map[string]any
	// Empty if there is none.
	_ = json.Unmarshal([]byte(annotation(w, pod, "k8s.v1.cni.cncf.io/network-status")), &list)
	return list
}

// TestFixedAddressInAnotherNodesBlock has pods ask for addresses that are in blocks of other nodes.
func TestFixedAddressInAnotherNodesBlock(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{Subnets: subnets("10.73.0.0/24")})
	w.API.AddDefinition("lab", "lan", "lan")
	p1 := addPodAs(t, w.n1, lab.PodSpec{Name: "p1", Annotations: map[string]string{asksNetworks: "lan"}})
	block := w.API.Blocks()[0]
	if len(w.API.Blocks()) != 1 || block.Spec.Node != "n1" {
		t.Fatalf("blocks: %+v", w.API.Blocks())
	}
	// The highest address that the block hands out.
	prefix := netip.MustParsePrefix(block.Spec.CIDR)
	free := prefix.Addr()
	for a := free; prefix.Contains(a.Next()) && a.Next() != netip.MustParseAddr("10.73.0.255"); a = a.Next() {
		free = a.Next()
	}
	ask := func(name string, a netip.Addr) (*lab.Pod, error) {
		return w.n2.AddPodAs(ctx, lab.PodSpec{Name: name, Annotations: map[string]string{
			asksNetworks: fmt.Sprintf(`[{"name":"lan","ips":[%q]}]`, a),
		}})
	}
	p2, err := ask("p2", free)
	if err != nil {
		t.Fatal(err)
	}
	if err := probePath(ctx, path{"", p1.Host, p2.Host, func(lab.Family) netip.Addr { return free },
		func(lab.Family) netip.Addr { return p1.Own("net1", lab.IPv4) }}, lab.IPv4); err != nil {
		t.Error(err)
	}
	if _, err := ask("p3", p1.Own("net1", lab.IPv4)); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("an address that a pod of the other node has: %v", err)
	}
	awaitEvent(ctx, t, w, v1alpha1.ReasonAddressTaken, p1.Own("net1", lab.IPv4).String())
	if _, err := ask("p4", free); err == nil || !strings.Contains(err.Error(), "belongs to") && !strings.Contains(err.Error(), "taken") {
		t.Errorf("an address that is fixed for another pod: %v", err)
	}
	// The owner of the block hands out all but the address that it has given away.
	for i := range int(prefixSize(prefix)) {
		p, err := w.n1.AddPodAs(ctx, lab.PodSpec{Name: fmt.Sprint("fill", i), Annotations: map[string]string{asksNetworks: "lan"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Own("net1", lab.IPv4) == free {
			t.Fatalf("address %s was handed out twice", free)
		}
	}
	if err := p2.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool {
		return !slices.ContainsFunc(w.API.Blocks(), func(b *v1alpha1.AddressBlock) bool { return b.Spec.Port != "" })
	}, func() { t.Errorf("blocks: %+v", w.API.Blocks()) })
	awaitCheck(ctx, t, w)
}

func prefixSize(p netip.Prefix) uint64 { return 1 << (p.Addr().BitLen() - p.Bits()) }

// TestWhatPodsCannotHave asks for what there is not. The pod stays pending with an Event that says
// why, and others start.
func TestWhatPodsCannotHave(t *testing.T) {
	w := start(t, lab.Options{Families: lab.IPv4})
	ctx := within(t, 4*time.Minute)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{Subnets: subnets("10.74.0.0/24")})
	w.API.AddNetwork("tiny", v1alpha1.NetworkSpec{Subnets: subnets("10.75.0.0/30")})
	closed := v1alpha1.NetworkSpec{Subnets: subnets("10.76.0.0/24")}
	closed.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "bank"}}
	w.API.AddNetwork("bank-only", closed)
	for _, n := range []string{"lan", "tiny", "bank-only", "ghost"} {
		w.API.AddDefinition("lab", n, n)
	}
	w.API.AddDefinition("lab", "garbled", "", `{"type":`)
	taken := `[{"name":"lan","ips":["10.74.0.99"],"mac":"02:00:00:00:00:99"}]`
	addPodAs(t, w.n2, lab.PodSpec{Name: "holder", Annotations: map[string]string{asksNetworks: taken}})
	addPodAs(t, w.n1, lab.PodSpec{Name: "tiny0", Annotations: map[string]string{asksNetworks: "tiny"}})
	awaitPort(ctx, t, w, "lab/holder.net1", func(p *v1alpha1.Port) bool { return p.Status.Node == "n2" })
	for _, tc := range []struct{ name, annotation, reason, text string }{
		{"no-definition", "nothing", v1alpha1.ReasonNetworkNotFound, "NetworkAttachmentDefinition lab/nothing does not exist"},
		{"no-network", "ghost", v1alpha1.ReasonNetworkNotFound, "network ghost does not exist"},
		{"definition-garbled", "garbled", v1alpha1.ReasonInvalid, "NetworkAttachmentDefinition lab/garbled: spec.config"},
		{"malformed", `[{"name":"lan"`, v1alpha1.ReasonInvalid, "malformed JSON"},
		{"not-allowed", "bank-only", v1alpha1.ReasonNotAllowed, "network bank-only does not take pods of this namespace"},
		{"outside", `[{"name":"lan","ips":["10.99.0.1"]}]`, v1alpha1.ReasonAddressOutside, "10.99.0.1"},
		{"address-taken", `[{"name":"lan","ips":["10.74.0.99"]}]`, v1alpha1.ReasonAddressTaken, "10.74.0.99"},
		{"mac-taken", `[{"name":"lan","mac":"02:00:00:00:00:99"}]`, v1alpha1.ReasonMACTaken, "02:00:00:00:00:99"},
		{"exhausted", "tiny", v1alpha1.ReasonExhausted, "10.75.0.0/30"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.WithoutCancel(ctx)
			if _, err := w.n1.AddPodAs(ctx, lab.PodSpec{Name: tc.name, Annotations: map[string]string{asksNetworks: tc.annotation}}); err == nil {
				t.Error("the pod started")
			}
			awaitEvent(ctx, t, w, tc.reason, tc.text)
		})
	}
	t.Cleanup(func() {
		p, err := w.n1.AddPod(context.Background(), "ordinary")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := (probe.Ping{Dst: w.c.Address(lab.IPv4), Count: 1}).Run(context.Background(), p); err != nil || r.Lost() > 0 {
			t.Errorf("an ordinary pod beside: %v, %v", err, r.Errors)
		}
		if err := w.n1.Check(context.Background()); err != nil {
			t.Error(err)
		}
		for _, p := range w.API.Ports() {
			if p.Name != "holder.net1" && p.Name != "tiny0.net1" {
				t.Errorf("Port %s was left", p.Name)
			}
		}
	})
}

// TestWithoutDefinitions runs where the kinds of coelan.io do not exist.
func TestWithoutDefinitions(t *testing.T) {
	l, err := lab.Start(t.Context(), lab.Options{Nodes: 1, Families: lab.IPv4, NoAgents: true})
	t.Cleanup(l.Close)
	l.ReportOn(t)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 2*time.Minute)
	l.API.SetAbsent("coelan.io", true)
	l.API.SetAbsent("k8s.cni.cncf.io", true)
	n := l.Nodes[0]
	if err := n.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p, err := n.AddPod(ctx, "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a pod took %v", time.Since(began).Round(time.Millisecond))
	if r := ping(t, p, probe.Ping{Dst: n.Gateway(lab.IPv4), Count: 1}); r.Lost() > 0 {
		t.Errorf("errors %v", r.Errors)
	}
	if strings.Count(n.AgentLogTail(), "does not serve a kind yet") != 8 {
		t.Errorf("each missing kind is to be told of once:\n%s", n.AgentLogTail())
	}
}
