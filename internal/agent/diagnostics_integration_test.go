// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs"
	"coelan.io/coelan/internal/localapi"
)

func TestTrace(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	a, b := w.plug("a"), w.plug("b")
	for _, tc := range []struct {
		name string
		req  agentapi.TraceRequest
		want agentapi.Outcome
	}{
		{"pod to pod", agentapi.TraceRequest{From: "default/a", Destination: b.Addresses[0].Addr(), Protocol: "tcp", DestinationPort: 80}, agentapi.Outcome{Kind: "pod", Pod: "default/b/eth0", Network: "default"}},
		{"pod to pod over IPv6", agentapi.TraceRequest{From: "default/a/eth0", Destination: b.Addresses[1].Addr()}, agentapi.Outcome{Kind: "pod", Pod: "default/b/eth0", Network: "default"}},
		{"pod to another node", agentapi.TraceRequest{From: "default/a", Destination: addr("10.244.2.7"), Protocol: "udp", DestinationPort: 53},
			agentapi.Outcome{Kind: "tunnel", Node: "n2", TunnelIP: "192.168.33.12", VNI: 1, MAC: "0a:c0:e1:00:00:01"}},
		{"pod to another node over IPv6", agentapi.TraceRequest{From: "default/a", Destination: addr("fd44:2::7")},
			agentapi.Outcome{Kind: "tunnel", Node: "n2", TunnelIP: "192.168.33.12", VNI: 1, MAC: "0a:c0:e1:00:00:01"}},
		{"pod to outside", agentapi.TraceRequest{From: "default/a", Destination: addr("192.0.2.1")}, agentapi.Outcome{Kind: "gateway"}},
		{"pod to its node", agentapi.TraceRequest{From: "default/a", Destination: addr("10.244.1.1")}, agentapi.Outcome{Kind: "gateway"}},
		{"stolen address", agentapi.TraceRequest{From: "default/a", Source: b.Addresses[0].Addr(), Destination: addr("192.0.2.1")},
			agentapi.Outcome{Kind: "drop"}},
		{"host to pod", agentapi.TraceRequest{From: "gateway", Source: addr("10.244.1.1"), Destination: a.Addresses[0].Addr()},
			agentapi.Outcome{Kind: "pod", Pod: "default/a/eth0", Network: "default"}},
		{"reply to the host", agentapi.TraceRequest{From: "default/a", Destination: b.Addresses[0].Addr(), Protocol: "tcp", Conntrack: []string{"trk,est,rpl"}},
			agentapi.Outcome{Kind: "pod", Pod: "default/b/eth0", Network: "default"}},
		{"from another node", agentapi.TraceRequest{From: "tunnel", VNI: 1, TunnelSource: addr("192.168.33.12"), Source: addr("10.244.2.7"), Destination: a.Addresses[0].Addr()},
			agentapi.Outcome{Kind: "pod", Pod: "default/a/eth0", Network: "default"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body, err := json.Marshal(tc.req)
			w.must(err)
			trace := query[agentapi.Trace](w, "/v1/trace", string(body))
			got := trace.Outcome
			if tc.want.Kind == "drop" && got.Reason != "" {
				got.Reason = ""
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s\n%s", diff, trace.Text)
			}
			for _, s := range trace.Steps {
				if s.Feature == "" || s.Owner == "" || s.TableName == "" {
					t.Errorf("step without a name: %+v", s)
				}
			}
			if last := trace.Steps[len(trace.Steps)-1]; tc.want.Kind == "drop" && last.Reason == "" {
				t.Errorf("no reason for the drop: %+v", last)
			}
		})
	}
	for _, tc := range []struct{ body, want string }{
		{`{`, "packet: "},
		{`{"form":"x"}`, `unknown field "form"`},
		{`{"from":"default/a"}`, "destination: is missing"},
		{`{"destination":"10.0.0.1"}`, "from: is missing"},
		{`{"from":"default/c","destination":"10.0.0.1"}`, "from: node n1 has no pod default/c"},
		{`{"from":"gateway","destination":"10.0.0.1"}`, "source: is missing"},
		{`{"from":"gateway","source":"fd00::1","destination":"10.0.0.1"}`, "different families"},
		{`{"from":"default/a","destination":"10.0.0.1","protocol":"gre"}`, `protocol: "gre"`},
		{`{"from":"tunnel","destination":"10.0.0.1"}`, "tunnelSource and vni: are needed"},
	} {
		err := localapi.Query(t.Context(), "agent", w.cfg.AgentSocket, "/v1/trace", strings.NewReader(tc.body), io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.body, err, tc.want)
		}
	}
}

// TestCheckFinds damages one thing of each kind.
func TestCheckFinds(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	at, b := w.plug("a"), w.plug("b")
	w.whole()
	if out, err := exec.Command("nsenter", "--net="+b.Netns, "ip", "addr", "del", b.Addresses[0].String(), "dev", "eth0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := w.ovs.Ofctl(t.Context(), "-OOpenFlow15", "del-flows", "br-int", "table=0,in_port=16"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ovs.Ofctl(t.Context(), "add-flow", "br-int", "table=99,actions=drop"); err != nil {
		t.Fatal(err)
	}
	w.veth("co0123456789ab")
	w.ip("link set " + at.HostInterface + " down")
	w.ip("link set " + at.HostInterface + " name renamed0")
	var got []string
	for _, f := range query[agentapi.Check](w, "/v1/check", "").Findings {
		got = append(got, f.Kind+" "+f.Object+" "+f.Problem)
	}
	for _, want := range []string{
		"flow table=99, actions=drop belongs to nothing", "goto_table:10 is missing", "interface co0123456789ab belongs to no pod",
		"interface " + at.HostInterface + " of default/a/eth0: interface \"" + at.HostInterface + "\" is missing in the host's network namespace",
		"interface " + b.HostInterface + " of default/b/eth0: interface eth0 lacks address " + b.Addresses[0].String(),
	} {
		if !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("no finding %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

func TestHealthAndMetrics(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.ovs.KillVswitchd()
	w.start()
	w.condition("ovs-vswitchd is not running")
	get := func(path string) (int, string) {
		resp, err := http.Get("http://127.0.0.1:10360" + path)
		// Nothing says when the agent listens.
		for deadline := time.Now().Add(bound); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			resp, err = http.Get("http://127.0.0.1:10360" + path)
		}
		w.must(err)
		defer resp.Body.Close()
		defer http.DefaultClient.CloseIdleConnections()
		text, err := io.ReadAll(resp.Body)
		w.must(err)
		return resp.StatusCode, string(text)
	}
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "ovs-vswitchd is not running") {
		t.Errorf("/readyz without Open vSwitch: %d %s", code, text)
	}
	if code, text := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz without Open vSwitch: %d %s", code, text)
	}
	w.must(w.ovs.SpawnVswitchd())
	w.ready()
	w.plug("a")
	if code, text := get("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, text)
	}
	_, text := get("/metrics")
	for _, want := range []string{
		"coelan_ports 1\n", "coelan_nodes 2\n", "coelan_tunnels 1\n", `coelan_condition{condition="ovs"} 1`,
		`coelan_build_info{datapath="` + w.ovs.Datapath + `",encapsulation="vxlan",node="n1"`, "coelan_flow_changes_total{operation=\"add\"}",
		`coelan_flow_sync_duration_seconds_count{step="write"}`, "coelan_host_writes_total", `coelan_ovs_connections_total{kind="switch"} 1`,
		"coelan_conntrack_table_entries ", "coelan_conntrack_table_limit ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no metric %q", want)
		}
	}
}

func TestQueryWithoutAgent(t *testing.T) {
	var out bytes.Buffer
	err := localapi.Query(t.Context(), "agent", t.TempDir()+"/agent.sock", "/v1/status", nil, &out)
	if err == nil || !strings.Contains(err.Error(), "is it running?") {
		t.Errorf("no agent: %v", err)
	}
}

func TestUninstallLeavesNothing(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	before := w.ip("route") + w.ip("-br link")
	w.start()
	w.ready()
	at := w.plug("a")
	w.must(w.stop())
	if _, err := installation.Uninstall(w.cfg, false, nil, ovs.Removals(t.Context(), w.cfg)); err == nil || !strings.Contains(err.Error(), "1 pods are attached, the first is default/a/eth0") {
		t.Errorf("uninstalled under a pod: %v", err)
	}
	if !linkExists(at.HostInterface) {
		t.Error("a refused uninstall removed something")
	}
	if _, err := installation.Uninstall(w.cfg, true, nil, ovs.Removals(t.Context(), w.cfg)); err != nil {
		t.Fatal(err)
	}
	if after := w.ip("route") + w.ip("-br link"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if out := w.vsctl("list-br"); strings.Contains(out, "br-int") {
		t.Errorf("bridges: %s", out)
	}
	if _, err := installation.Uninstall(w.cfg, false, nil, ovs.Removals(t.Context(), w.cfg)); err != nil {
		t.Errorf("again: %v", err)
	}
}
