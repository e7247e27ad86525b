// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// A virtual machine of another system, such as OpenStack, and a pod are on one Logical_Switch of
// that system, on two nodes, and reach each other. The pod asks for its interface as it did with
// OVN4NFV. The switch and the machine outlive the pod.
func TestOVNSwitchOfAnotherSystem(t *testing.T) {
	w := newOVNWorld(t)
	const address = "172.16.44.77"
	_, err := w.OVN.Nbctl(t.Context(), "ls-add", "ovn-priv-net", "--", "lsp-add", "ovn-priv-net", "vm-port", "--",
		"lsp-set-addresses", "vm-port", "0a:00:00:00:00:4d "+address)
	must(t, err)
	vm, err := w.n2.AddGuest(t.Context(), "vm", "vm-port", []byte{0x0a, 0, 0, 0, 0, 0x4d},
		[]netip.Prefix{netip.MustParsePrefix(address + "/24")})
	must(t, err)
	w.API.AddNetwork("priv", v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{{CIDR: "172.16.44.0/24"}}})
	must(t, w.API.AnnotateNetwork("priv", map[string]string{v1alpha1.AnnotationLogicalSwitch: "ovn-priv-net"}))
	pod, err := w.n1.AddPodAs(t.Context(), lab.PodSpec{Name: "pod", Annotations: map[string]string{
		podnets.AnnotationNFNNetwork: `{"type": "ovn4nfv", "interface": [{"name": "priv", "interface": "net1"}]}`,
	}})
	must(t, err)
	own := pod.Own("net1", lab.IPv4)
	for _, p := range []struct {
		name string
		from *lab.Host
		to   netip.Addr
	}{{"pod to machine", pod.Host, netip.MustParseAddr(address)}, {"machine to pod", vm.Host, own}} {
		var last error
		poll(t.Context(), t, func() bool {
			r, err := (probe.Ping{Dst: p.to, Count: 1}).Run(t.Context(), p.from)
			last = err
			return err == nil && r.Lost() == 0
		}, func() { t.Errorf("%s: %s does not answer: %v", p.name, p.to, last) })
	}
	must(t, w.OVN.Failure())
	must(t, pod.Delete(t.Context()))
	var ports string
	poll(t.Context(), t, func() bool {
		ports, err = w.OVN.Nbctl(t.Context(), "lsp-list", "ovn-priv-net")
		must(t, err)
		return !strings.Contains(ports, "pod.net1")
	}, func() { t.Errorf("the pod's port is left: %s", ports) })
	if !strings.Contains(ports, "(vm-port)") {
		t.Errorf("the machine's port is gone: %s", ports)
	}
}
