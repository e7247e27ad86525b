// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"strings"
	"testing"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
)

// TestDatapath makes sure that the tests run on the datapath that was asked for:
// with the kernel's, its module has the ports and the tunnel.
func TestDatapath(t *testing.T) {
	w := sharedWorld(t)
	want := string(lab.Datapath())
	for _, n := range w.Nodes {
		show, err := n.OVS.Appctl(t.Context(), "dpif/show")
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(show, "\n"); !strings.HasPrefix(first, want+"@") || !strings.Contains(show, "br-int:") {
			t.Errorf("node %s: dpif/show, want datapath %s with br-int:\n%s", n.Name, want, show)
		}
		if want != string(config.DatapathSystem) {
			continue
		}
		for _, link := range []string{"ovs-system", "vxlan_sys_4789"} {
			if out := run(t, n.Host, "ip", "-details", "link", "show", link); !strings.Contains(out, "openvswitch") && !strings.Contains(out, "vxlan") {
				t.Errorf("node %s: %s is not the kernel's: %s", n.Name, link, out)
			}
		}
		if out := run(t, n.Host, "ovs-dpctl", "show"); !strings.Contains(out, "system@ovs-system") {
			t.Errorf("node %s: ovs-dpctl show: %s", n.Name, out)
		}
	}
}
