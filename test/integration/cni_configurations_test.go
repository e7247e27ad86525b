// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab"
)

// hostLocal is a configuration of odlovs-cni for a node, with a range of its podCIDR.
func hostLocal(t *testing.T, n *lab.Node, dir string) string {
	t.Helper()
	subnet := n.PodCIDRs[0]
	gateway := subnet.Addr().Next()
	start := strings.TrimSuffix(gateway.String(), "1") + "200"
	return fmt.Sprintf(`{"cniVersion":"0.4.0","name":"odl-cni","type":"odlovs-cni","mgrPort":6640,"ovsBridge":%q,
		"ipam":{"type":"host-local","dataDir":%q,"subnet":%q,"rangeStart":%q,"routes":[{"dst":"0.0.0.0/0"}],"gateway":%q}}`,
		n.Config().Bridge, dir, subnet, start, gateway)
}

// TestCOEConfigurations has pods by configurations of COE's reach each other, pods by that of the
// agent, and the internet: with addresses of the plugin host-local, and on the Network that a VNI
// selects.
func TestCOEConfigurations(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	dir := t.TempDir()
	h1 := addPodAs(t, w.n1, lab.PodSpec{Name: "h1", Config: hostLocal(t, w.n1, dir+"/n1")})
	h2 := addPodAs(t, w.n2, lab.PodSpec{Name: "h2", Config: hostLocal(t, w.n2, dir+"/n2")})
	if got := h1.Address(lab.IPv4).String(); !strings.HasSuffix(got, ".200") {
		t.Errorf("host-local gave %s", got)
	}
	vni := int32(42)
	w.API.AddNetwork("coe", v1alpha1.NetworkSpec{VNI: &vni, Subnets: subnets("10.77.0.0/24")})
	awaitNetwork(t, w, "coe")
	const odl = `{"name":"odl-coe","type":"ovs-odl","bridge":"br-int","isDefaultGateway":true,"forceAddress":false,"ipMasq":true,"hairpinMode":true,
		"ipam":{"type":"ipam-odl"},"ovs":{"bridge":"br-int","vxlan":"00042"}}`
	v1 := addPodAs(t, w.n1, lab.PodSpec{Name: "v1", Config: odl})
	v2 := addPodAs(t, w.n2, lab.PodSpec{Name: "v2", Config: odl})
	own := func(p *lab.Pod) func(lab.Family) netip.Addr {
		return func(f lab.Family) netip.Addr { return p.Own("eth0", f) }
	}
	if got := v1.Own("eth0", lab.IPv4); !netip.MustParsePrefix("10.77.0.0/24").Contains(got) {
		t.Errorf("the pod by VNI has %s", got)
	}
	for _, p := range []path{
		{"host-local, to another node", h1.Host, h2.Host, h2.Address, h1.Address},
		{"host-local, to a pod of the agent", h1.Host, w.a.Host, w.a.Address, h1.Address},
		{"host-local, from another node", w.c.Host, h1.Host, h1.Address, w.c.Address},
		{"host-local, from the node", w.n1.Host, h1.Host, h1.Address, w.n1.Gateway},
		{"host-local, to the internet", h1.Host, w.Outside, lab.Internet, w.n1.Address},
		{"by VNI, to another node", v1.Host, v2.Host, own(v2), own(v1)},
	} {
		if err := probePath(ctx, p, lab.IPv4); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	// What is restarted in the middle of it all finds everything as it was.
	w.n1.KillAgent()
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*lab.Pod{h1, h2} {
		if err := p.Check(ctx); err != nil {
			t.Error(err)
		}
	}
	checkAll(ctx, t, w)
	if err := h1.Delete(ctx); err != nil {
		t.Error(err)
	}
	again := addPodAs(t, w.n1, lab.PodSpec{Name: "h1", Config: hostLocal(t, w.n1, dir+"/n1")})
	if err := probePath(ctx, path{"after a pod that is gone", again.Host, h2.Host, h2.Address, again.Address}, lab.IPv4); err != nil {
		t.Error(err)
	}
}
