// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/openflow"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// foreignNetwork is a configuration of odlovs-cni for a bridge of an external controller. Its
// addresses are of no Network.
type foreignNetwork struct {
	name, bridge, dir string
	subnet            int
}

func (f foreignNetwork) config(keys string) string {
	return fmt.Sprintf(`{"cniVersion":"0.4.0","name":%q,"type":"odlovs-cni","ovsBridge":%q,%s,
		"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.99.%d.0/24","gateway":"10.99.%d.1","routes":[{"dst":"0.0.0.0/0"}]}}`,
		f.name, f.bridge, keys, filepath.Join(f.dir, f.name), f.subnet, f.subnet)
}

// pair are two pods on a bridge.
func (f foreignNetwork) pair(t *testing.T, n *lab.Node, keys string) (x, y *lab.Pod) {
	t.Helper()
	x = addPodAs(t, n, lab.PodSpec{Name: f.name + "-x", Config: f.config(keys)})
	return x, addPodAs(t, n, lab.PodSpec{Name: f.name + "-y", Config: f.config(keys)})
}

// echoes says whether one pod reaches another.
func echoes(t *testing.T, from, to *lab.Pod) bool {
	t.Helper()
	return ping(t, from.Host, probe.Ping{Dst: to.Address(lab.IPv4), Wait: 200 * time.Millisecond}).Lost() == 0
}

// awaitAnswer waits until the controller has taught the bridge.
func awaitAnswer(ctx context.Context, t *testing.T, from, to *lab.Pod) {
	t.Helper()
	poll(ctx, t, func() bool { return echoes(t, from, to) }, func() {
		t.Errorf("%s does not reach %s", from.Name, to.Name)
	})
}

// TestExternalController has pods on bridges of external controllers beside those of the agent.
func TestExternalController(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 4*time.Minute)
	dir := t.TempDir()
	before := agentState(ctx, t, w.n1)
	t.Run("testcontroller", func(t *testing.T) { learningController(t, w, dir) })
	t.Run("passive", func(t *testing.T) {
		f := foreignNetwork{"passive", "brpassive", dir, 2}
		x, y := f.pair(t, w.n1, `"ctlrPort":6633,"mgrPort":6640,"mgrActive":false`)
		var conn net.Conn
		poll(ctx, t, func() bool {
			err := w.n1.Do(func() (err error) {
				conn, err = net.Dial("tcp", "127.0.0.1:6633")
				return err
			})
			return err == nil
		}, func() { t.Error("the bridge does not listen") })
		followsFlows(ctx, t, w, conn, x, y)
		out := run(t, w.n1.Host, "ovsdb-client", "list-dbs", "tcp:127.0.0.1:6640")
		if !strings.Contains(out, "Open_vSwitch") {
			t.Errorf("the manager sees %s", out)
		}
		if out = run(t, w.n1.Host, "ss", "-Hltn"); strings.Contains(out, "0.0.0.0:66") || strings.Contains(out, "*:66") {
			t.Errorf("Open vSwitch listens at all addresses:\n%s", out)
		}
		deleteForeign(ctx, t, w.n1, f, x, y)
	})
	t.Run("active", func(t *testing.T) {
		f := foreignNetwork{"active", "bractive", dir, 3}
		var l net.Listener
		if err := w.n1.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:6634"); return err }); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		x, y := f.pair(t, w.n1, `"controller":"127.0.0.1","ctlrPort":6634,"ctlrActive":true`)
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		followsFlows(ctx, t, w, conn, x, y)
		deleteForeign(ctx, t, w.n1, f, x, y)
	})
	t.Run("uplinks", func(t *testing.T) { foreignUplinks(ctx, t, w, dir) })
	if diff := cmp.Diff(before, agentState(ctx, t, w.n1)); diff != "" {
		t.Errorf("the agent's bridge (-before +after):\n%s", diff)
	}
	checkAll(ctx, t, w)
}

// agentState is what pods of external controllers must not change.
func agentState(ctx context.Context, t *testing.T, n *lab.Node) lab.Inventory {
	t.Helper()
	all, err := n.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return lab.Inventory{"ports": all["ports"], "flows": all["flows"], "groups": all["groups"], "rules": all["rules"]}
}

// learningController has pods reach each other by Debian's controller, also over a restart of the
// agent.
func learningController(t *testing.T, w *world, dir string) {
	ctx := within(t, 2*time.Minute)
	controller := exec.CommandContext(ctx, "ovs-testcontroller", "--unixctl="+filepath.Join(dir, "ctl"), "ptcp:6653:127.0.0.1")
	if err := w.n1.Start(controller); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = controller.Process.Kill()
		_ = controller.Wait()
	}()
	const keys = `"controller":"127.0.0.1","ctlrActive":true,"clusterId":"c1"`
	f := foreignNetwork{"learning", "brlearning", dir, 1}
	x, y := f.pair(t, w.n1, keys)
	awaitAnswer(ctx, t, x, y)
	row, err := w.n1.OVS.Vsctl(ctx, "--bare", "--columns=name", "find", "interface", `external_ids:iface-id="c1:learning-x"`)
	if err != nil || !strings.HasPrefix(row, "veth") {
		t.Errorf("interface %q, %v", row, err)
	}
	if echoes(t, x, w.a) || echoes(t, w.a, x) {
		t.Error("pods of the agent and of the controller reach each other")
	}
	connected := func() string {
		out, err := w.n1.OVS.Vsctl(ctx, "get", "bridge", "brlearning", "controller")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	controllers := connected()
	w.n1.KillAgent()
	if !echoes(t, x, y) {
		t.Error("pods do not reach each other without an agent")
	}
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*lab.Pod{x, y} {
		if err := p.Check(ctx); err != nil {
			t.Error(err)
		}
		had := p.Address(lab.IPv4)
		if err := p.Add(ctx); err != nil || p.Address(lab.IPv4) != had {
			t.Errorf("ADD again: %v, %s became %s", err, had, p.Address(lab.IPv4))
		}
	}
	if got := connected(); got != controllers {
		t.Errorf("the controller's row was replaced: %s, was %s", got, controllers)
	}
	awaitAnswer(ctx, t, y, x)
	checkAll(ctx, t, w)
	// A pod with a namespace that is gone, and one that comes with its name.
	x.End()
	if err := x.Del(ctx); err != nil {
		t.Error(err)
	}
	again := addPodAs(t, w.n1, lab.PodSpec{Name: "learning-x", Config: f.config(keys)})
	awaitAnswer(ctx, t, again, y)
	deleteForeign(ctx, t, w.n1, f, again, y)
	if err := x.Del(ctx); err != nil {
		t.Errorf("DEL again: %v", err)
	}
}

// followsFlows has our own library be the controller: pods reach each other by its flows, and only
// by these.
func followsFlows(ctx context.Context, t *testing.T, w *world, nc net.Conn, x, y *lab.Pod) {
	t.Helper()
	conn, err := openflow.NewConn(ctx, nc, openflow.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if echoes(t, x, y) {
		t.Error("pods reach each other without flows")
	}
	ports, err := conn.Ports(ctx)
	if err != nil {
		t.Fatal(err)
	}
	number := func(p *lab.Pod) uint32 {
		host := p.Result.Interfaces[0].Name
		i := slices.IndexFunc(ports, func(o openflow.Port) bool { return o.Name == host })
		if i < 0 {
			t.Fatalf("the bridge has no port %s: %v", host, ports)
		}
		return ports[i].No
	}
	var flows []openflow.Flow
	for from, to := range map[uint32]uint32{number(x): number(y), number(y): number(x)} {
		flows = append(flows, openflow.Flow{
			Priority: 10, Match: openflow.NewMatch(openflow.InPort(from)), Actions: []openflow.Action{openflow.Output(to)},
		})
	}
	if err := conn.Do(ctx, []openflow.Message{openflow.AddFlow(flows[0]), openflow.AddFlow(flows[1])}); err != nil {
		t.Fatal(err)
	}
	if err := probePath(ctx, path{"by the flows", x.Host, y.Host, y.Address, x.Address}, lab.IPv4); err != nil {
		t.Error(err)
	}
	if err := conn.Do(ctx, []openflow.Message{openflow.DeleteFlow(flows[0])}); err != nil {
		t.Fatal(err)
	}
	// Ovs-vswitchd looks at what it has cached a little later.
	poll(ctx, t, func() bool { return !echoes(t, x, y) }, func() {
		t.Error("pods reach each other without one of the flows")
	})
	if err := probePath(ctx, path{"of the agent", w.a.Host, w.c.Host, w.c.Address, w.a.Address}, lab.IPv4); err != nil {
		t.Error(err)
	}
}

// deleteForeign deletes pods, and expects that only the bridge is left.
func deleteForeign(ctx context.Context, t *testing.T, n *lab.Node, f foreignNetwork, pods ...*lab.Pod) {
	t.Helper()
	for _, p := range pods {
		if err := p.Delete(ctx); err != nil {
			t.Error(err)
		}
	}
	if out, err := n.OVS.Vsctl(ctx, "list-ports", f.bridge); err != nil || out != "" {
		t.Errorf("ports of %s: %q, %v", f.bridge, out, err)
	}
	for _, p := range pods {
		if out, err := n.Run(ctx, "ip", "link", "show", p.Result.Interfaces[0].Name); err == nil {
			t.Errorf("interface of %s: %s", p.Name, out)
		}
	}
	leases, err := filepath.Glob(filepath.Join(f.dir, f.name, f.name, "10.*"))
	if err != nil || len(leases) != 0 {
		t.Errorf("addresses of host-local: %v, %v", leases, err)
	}
}

// foreignUplinks has an interface of the node be a port of the bridge, unless the node needs it.
func foreignUplinks(ctx context.Context, t *testing.T, w *world, dir string) {
	run(t, w.n1.Host, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	run(t, w.n1.Host, "ip", "address", "add", "192.0.2.99/24", "dev", "up1")
	f := foreignNetwork{"uplinked", "bruplinked", dir, 4}
	for keys, want := range map[string]string{
		`"ctlrPort":6635,"externalIntf":"up1"`:                      "interface up1 has the address 192.0.2.99: the node would be cut off",
		`"ctlrPort":6635,"externalIntf":"up9"`:                      "interface up9 does not exist",
		`"ctlrPort":6635,"bridge":"bruplinked","network":"default"`: "there are no Coelan Networks",
	} {
		p, err := w.n1.AddPodAs(ctx, lab.PodSpec{Name: "refused", Config: f.config(keys)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", keys, p, err)
		}
	}
	if out, err := w.n1.OVS.Vsctl(ctx, "list-br"); err != nil || strings.Contains(out, f.bridge) {
		t.Errorf("bridges %s, %v", out, err)
	}
	p := addPodAs(t, w.n1, lab.PodSpec{Name: "uplinked", Config: f.config(`"ctlrPort":6635,"externalIntf":"up0"`)})
	if out, err := w.n1.OVS.Vsctl(ctx, "port-to-br", "up0"); err != nil || out != f.bridge {
		t.Errorf("up0 is on %s, %v", out, err)
	}
	if got := p.Own("eth0", lab.IPv4); !netip.MustParsePrefix("10.99.4.0/24").Contains(got) {
		t.Errorf("the pod has %s", got)
	}
	if err := p.Delete(ctx); err != nil {
		t.Error(err)
	}
	again := addPodAs(t, w.n1, lab.PodSpec{Name: "uplinked", Config: f.config(`"ctlrPort":6635`)})
	if out, err := w.n1.OVS.Vsctl(ctx, "list-ports", f.bridge); err != nil || out != again.Result.Interfaces[0].Name {
		t.Errorf("ports of a bridge without an uplink: %s, %v", out, err)
	}
	if err := again.Delete(ctx); err != nil {
		t.Error(err)
	}
}
