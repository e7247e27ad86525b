// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/test/lab"
)

// checkFinds waits until a node's check has that many findings, one of them with a text.
func checkFinds(ctx context.Context, t *testing.T, n *lab.Node, what string, many int, want string) {
	t.Helper()
	var c agentapi.Check
	poll(ctx, t, func() bool {
		must(t, n.Query(ctx, "/v1/check", &c))
		return len(c.Findings) == many && (many == 0 || slices.ContainsFunc(c.Findings, func(f agentapi.Finding) bool {
			return strings.Contains(f.Kind+" "+f.Object+" "+f.Problem, want)
		}))
	}, func() { t.Errorf("%s: %s finds %+v, want %q", what, n.Name, c.Findings, want) })
	if len(c.NotCompared) > 0 {
		t.Errorf("%s: %s has not compared %q", what, n.Name, c.NotCompared)
	}
}

// A node's check compares its ports with OVN's southbound database: one that is bound elsewhere, or
// not at all, and one that is bound too much are named; a machine of another system is not.
func TestOVNCheckOfBindings(t *testing.T) {
	ctx := t.Context()
	w := newOVNWorld(t)
	w.addPods(t)
	for _, n := range w.Nodes {
		checkFinds(ctx, t, n, "at first", 0, "")
	}
	_, err := w.OVN.Nbctl(ctx, "ls-add", "theirs", "--", "lsp-add", "theirs", "vm", "--", "lsp-set-addresses", "vm", "unknown")
	must(t, err)
	_, err = w.n1.AddGuest(ctx, "vm", "vm", []byte{0x0a, 0, 0, 0, 0, 9}, w.n1.PodCIDRs[:0])
	must(t, err)
	_, err = w.OVN.Sbctl(ctx, "wait-until", "port_binding", "vm", "up=true")
	must(t, err)
	checkFinds(ctx, t, w.n1, "with a machine of another system", 0, "")

	const port = "lab/a.eth0"
	w.n1.KillOVNController()
	_, err = w.OVN.Sbctl(ctx, "lsp-unbind", port)
	must(t, err)
	checkFinds(ctx, t, w.n1, "not bound", 1, "is bound to no chassis in the table Port_Binding")
	_, err = w.OVN.Sbctl(ctx, "chassis-add", "elsewhere", "geneve", "192.0.2.99", "--", "lsp-bind", port, "elsewhere")
	must(t, err)
	checkFinds(ctx, t, w.n1, "bound elsewhere", 1, "is bound to chassis elsewhere in the table Port_Binding, not to this node's, n1")
	checkFinds(ctx, t, w.n2, "bound elsewhere", 0, "")
	must(t, w.n1.StartOVNController())
	checkFinds(ctx, t, w.n1, "after ovn-controller has come back", 0, "")

	w.OVN.Stop()
	_, err = w.OVN.Nbctl(ctx, "lsp-add", names.Cluster("").Switch("default", "n1"), "old/pod.eth0", "--", "set",
		"logical_switch_port", "old/pod.eth0", "external_ids:coelan.io/owner=coelan/Port/old/pod.eth0")
	must(t, err)
	_, err = w.n1.AddGuest(ctx, "old", "old/pod.eth0", []byte{0x0a, 0, 0, 0, 0, 8}, w.n1.PodCIDRs[:0])
	must(t, err)
	checkFinds(ctx, t, w.n1, "one too much", 1, "binding old/pod.eth0 is bound to chassis n1 in the table Port_Binding, and no pod")
}

// A port that is deleted from the northbound database is back at once, and nothing is found;
// without a controller the node's check names it. Nothing can be compared while the southbound
// database is away.
func TestOVNCheckOfAPortThatIsDeleted(t *testing.T) {
	ctx := t.Context()
	w := newOVNWorld(t)
	w.addPods(t)
	const port = "lab/a.eth0"
	_, err := w.OVN.Nbctl(ctx, "lsp-del", port)
	must(t, err)
	c, err := w.OVN.Check(ctx)
	must(t, err)
	if !c.OK || c.Rows == 0 {
		t.Errorf("what is mended is found: %+v", c)
	}
	checkFinds(ctx, t, w.n1, "with a controller", 0, "")

	w.OVN.Stop()
	_, err = w.OVN.Nbctl(ctx, "lsp-del", port)
	must(t, err)
	checkFinds(ctx, t, w.n1, "without a controller", 2, "binding "+port+" of lab/a/eth0, interface ")
	must(t, w.OVN.Resume())
	checkFinds(ctx, t, w.n1, "after the controller has come back", 0, "")
	w.OVN.Kill(lab.OVNSouthbound)
	checkFinds(ctx, t, w.n1, "without a southbound database", 1, "southbound "+w.OVN.Remote("sb")+" cannot be read")
	must(t, w.OVN.Start(lab.OVNSouthbound))
	checkFinds(ctx, t, w.n1, "with one again", 0, "")
}
