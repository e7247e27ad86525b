// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
)

// foreignRequest is an ADD to a bridge of an external controller, with keys of the configuration.
func foreignRequest(name, keys, addresses string) wire.Request {
	r := addRequest(name)
	r.Config = fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"odl-cni","type":"odlovs-cni","ovsBridge":"ovsbrk8s","controller":"192.0.2.1","ctlrActive":true,
		%s"ipam":{"type":"host-local","subnet":"10.11.1.0/24"}}`, keys)
	r.Delegates = true
	if addresses != "" {
		r.Addresses = []byte(addresses)
	}
	return r
}

// given99 is what the IPAM plugin gives. No Network has such addresses.
const given99 = `{"cniVersion":"1.0.0","ips":[{"address":"10.99.1.9/24","gateway":"10.99.1.1"},{"address":"fd99::9/64"}],
	"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.11.0.0/16","gw":"10.99.1.254"}],"dns":{"nameservers":["10.99.1.53"]}}`

var foreignKey = attachment.Key{ContainerID: "a", IfName: "eth0"}

// An interface on the bridge of an external controller has what the IPAM plugin gave, and nothing
// of the agent's.
func TestForeign(t *testing.T) {
	w := newWorld(t)
	r := foreignRequest("a", `"manager":"192.0.2.2","mgrActive":true,"externalIntf":"eth2","clusterId":"c1",`, "")
	if _, err := w.Handle(t.Context(), r); err == nil || err.Code != wire.CodeAddresses || len(w.snapshot()) != 0 {
		t.Fatalf("first ADD: %v, state %v", err, w.snapshot())
	}
	r.Addresses = []byte(given99)
	host := attachment.ForeignInterface(foreignKey)
	want := fmt.Sprintf(`{"cniVersion":"1.1.0",
		"interfaces":[{"name":%q,"mac":"0a:cf:0a:63:01:09","mtu":1450},{"name":"eth0","mac":"0a:ce:0a:63:01:09","mtu":1450,"sandbox":"/run/netns/a"}],
		"ips":[{"interface":1,"address":"10.99.1.9/24","gateway":"10.99.1.1"},{"interface":1,"address":"fd99::9/64"}],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.99.1.1"},{"dst":"10.11.0.0/16","gw":"10.99.1.254"}],"dns":{"nameservers":["10.99.1.53"]}}`, host)
	first := w.must(r)
	if diff := cmp.Diff(decode(t, []byte(want)), decode(t, first)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	bridge := attachment.ForeignBridge{
		Name: "ovsbrk8s", ConfName: "odl-cni", Controller: "tcp:192.0.2.1:6653", Manager: "tcp:192.0.2.2:6640", Uplink: "eth2",
		ClusterID: "c1",
	}
	if diff := cmp.Diff(bridge, w.foreign.on[host]); diff != "" {
		t.Errorf("bridge (-want +got):\n%s", diff)
	}
	if len(w.store.List()) != 0 || len(w.bridge.ports) != 0 {
		t.Errorf("the agent's: %v, %v", w.store.List(), w.bridge.ports)
	}
	before := w.snapshot()
	r.Addresses = nil
	if again := w.must(r); string(again) != string(first) {
		t.Errorf("second ADD: %s, want %s", again, first)
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("state after the second ADD:\n%s", diff)
	}
	check := as("CHECK", r)
	check.Config = []byte(strings.TrimSuffix(string(r.Config), "}") + `,"prevResult":` + string(first) + "}")
	w.must(check)
	w.must(as("DEL", r))
	w.must(as("DEL", r))
	if left := w.snapshot(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := w.Handle(t.Context(), check); err == nil || err.Code != wire.CodeUnknownContainer {
		t.Errorf("CHECK after DEL: %v", err)
	}
}

// The routes are those of the IPAM plugin, in each family.
func TestForeignRoutes(t *testing.T) {
	for _, tt := range []struct {
		name, keys, given string
		want              []string
	}{
		{"none", "", ips("10.99.1.9/24"), nil},
		{"of one family", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.99.1.9/24","gateway":"10.99.1.1"},{"address":"fd99::9/64","gateway":"fd99::1"}],"routes":[{"dst":"::/0"}]}`,
			[]string{"default route via fd99::1"}},
		{"another gateway", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.99.1.9/24","gateway":"10.99.1.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.99.1.254"}]}`,
			[]string{"default route via 10.99.1.254"}},
		{"without a gateway", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.99.1.9/24"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.0.0.0/8"}]}`,
			[]string{"route to 10.0.0.0/8", "default route"}},
		{"isDefaultGateway", `"isDefaultGateway":true,`, `{"cniVersion":"1.0.0","ips":[{"address":"10.99.1.9/24","gateway":"10.99.1.1"}]}`,
			[]string{"default route via 10.99.1.1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.must(foreignRequest("a", tt.keys, tt.given))
			var got []string
			for _, r := range w.kernel.pods["/run/netns/a"]["eth0"].AllRoutes() {
				got = append(got, r.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestForeignRefusals(t *testing.T) {
	for _, tt := range []struct{ name, keys, given, want string }{
		{"host port", `"runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80,"protocol":"tcp"}]},`, given99,
			"host ports lead to pods on the agent's bridge, and bridge ovsbrk8s is an external controller's"},
		{"another address", `"args":{"cni":{"ips":["10.99.1.8"]}},`, given99, "it gave [10.99.1.9 fd99::9], and the address 10.99.1.8 is asked for"},
		{"no address", "", `{"cniVersion":"1.0.0"}`, "it has no address"},
		{"a Network", `"network":"red",`, given99, "there are no Coelan Networks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.Handle(t.Context(), foreignRequest("a", tt.keys, tt.given))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if left := w.snapshot(); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestFailedForeignADDLeavesNothing(t *testing.T) {
	for _, fail := range []func(w *world) map[string]error{
		func(w *world) map[string]error { return map[string]error{"Create": errors.New("broken")} },
		func(w *world) map[string]error { return map[string]error{"Configure": errors.New("broken")} },
	} {
		w := newWorld(t)
		w.kernel.fails = fail(w)
		if _, err := w.Handle(t.Context(), foreignRequest("a", "", given99)); err == nil || len(w.snapshot()) != 0 {
			t.Errorf("error %v, left behind: %v", err, w.snapshot())
		}
	}
	// The port is taken back also if it was made although that was an error.
	w := newWorld(t)
	w.foreign.fails["Plugged"] = errors.New("no answer")
	if _, err := w.Handle(t.Context(), foreignRequest("a", "", given99)); err == nil || len(w.snapshot()) != 0 {
		t.Errorf("error %v, left behind: %v", err, w.snapshot())
	}
	for _, method := range []string{"Plug", "Attached", "Datapath"} {
		w := newWorld(t)
		w.foreign.fails[method] = errors.New("broken")
		if _, err := w.Handle(t.Context(), foreignRequest("a", "", given99)); err == nil || len(w.snapshot()) != 0 {
			t.Errorf("%s: error %v, left behind: %v", method, err, w.snapshot())
		}
	}
}

func TestForeignADDRepairs(t *testing.T) {
	host := attachment.ForeignInterface(foreignKey)
	for name, damage := range map[string]func(w *world){
		"pair missing":      func(w *world) { w.kernel.remove(host) },
		"pod's end differs": func(w *world) { w.kernel.pods["/run/netns/a"]["eth0"] = bare(host) },
		"another bridge":    func(w *world) { w.foreign.on[host] = attachment.ForeignBridge{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.must(foreignRequest("a", "", given99))
			before := w.snapshot()
			damage(w)
			check := as("CHECK", foreignRequest("a", `"prevResult":`+string(first)+",", ""))
			if _, err := w.Handle(t.Context(), check); err == nil || err.Code != wire.CodeCheck {
				t.Errorf("CHECK: %v", err)
			}
			if again := w.must(foreignRequest("a", "", "")); string(again) != string(first) {
				t.Errorf("second ADD: %s, want %s", again, first)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("state (-before +after):\n%s", diff)
			}
			w.must(check)
		})
	}
}

// The container belongs to one pod in one namespace, as on the agent's bridge.
func TestForeignContainerOfAnother(t *testing.T) {
	w := newWorld(t)
	w.must(foreignRequest("a", "", given99))
	before := w.snapshot()
	other := foreignRequest("a", "", given99)
	other.Args = strings.Replace(other.Args, "uid-a", "uid-x", 1)
	for command, want := range map[string]uint{"ADD": wire.CodeInvalidEnvironment, "CHECK": wire.CodeUnknownContainer} {
		if _, err := w.Handle(t.Context(), as(command, other)); err == nil || err.Code != want {
			t.Errorf("%s: %v", command, err)
		}
	}
	w.must(as("DEL", other))
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("state:\n%s", diff)
	}
	// Its namespace is gone, and it is added in another one.
	w.kernel.end("/run/netns/a")
	again := foreignRequest("a", "", given99)
	again.Netns = "/run/netns/b"
	w.must(again)
	if got := w.foreign.ports[attachment.ForeignInterface(foreignKey)].Netns; got != "/run/netns/b" {
		t.Errorf("attached in %s", got)
	}
}

// DEL finds what is attached although the namespace is gone, the agent was restarted, or the
// configuration is another one by now.
func TestForeignDEL(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(w *world)
		r       wire.Request
	}{
		"namespace gone":        {func(w *world) { w.kernel.end("/run/netns/a") }, foreignRequest("a", "", "")},
		"another server":        {func(w *world) { w.Server = New(w.opts) }, foreignRequest("a", "", "")},
		"another configuration": {func(*world) {}, addRequest("a")},
		"one that is refused":   {func(*world) {}, foreignRequest("a", `"network":"red","ctlrPort":0,`, "")},
		"only the pair is left": {func(w *world) { clear(w.foreign.ports) }, foreignRequest("a", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(foreignRequest("a", "", given99))
			tt.prepare(w)
			w.must(as("DEL", tt.r))
			if left := w.snapshot(); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	w := newWorld(t)
	w.must(foreignRequest("a", "", given99))
	for _, method := range []string{"Unplug", "Attached"} {
		w.foreign.fails = map[string]error{method: errors.New("broken")}
		if _, err := w.Handle(t.Context(), as("DEL", foreignRequest("a", "", ""))); err == nil {
			t.Errorf("%s: DEL succeeded", method)
		}
	}
	// A pod of the agent's bridge does not wait for that.
	w.must(as("DEL", addRequest("b")))
}

func TestForeignGC(t *testing.T) {
	w := newWorld(t)
	w.must(foreignRequest("a", "", given99))
	w.must(addRequest("b"))
	gc := func(name, valid string) {
		r := wire.Request{Command: "GC", Config: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":%q,"cni.dev/valid-attachments":[%s]}`, name, valid)}
		w.must(r)
	}
	before := w.snapshot()
	gc("odl-cni", `{"containerID":"a","ifname":"eth0"}`)
	gc("another", "")
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("GC removed what is valid:\n%s", diff)
	}
	gc("odl-cni", `{"containerID":"a","ifname":"net1"}`)
	if len(w.foreign.ports) != 0 || len(w.store.List()) != 1 || len(w.kernel.host) != 1 {
		t.Errorf("after GC: %v", w.snapshot())
	}
}

func TestForeignSTATUS(t *testing.T) {
	w := newWorld(t)
	r := as("STATUS", foreignRequest("", "", ""))
	w.bridge.fails["Ready"] = errors.New("no flows")
	w.must(r) // the agent's bridge is not needed
	w.foreign.fails["Usable"] = errors.New("eth0 has an address")
	if _, err := w.Handle(t.Context(), r); err == nil || err.Code != wire.CodeNotAvailable || !strings.Contains(err.Error(), "eth0 has an address") {
		t.Errorf("error %v", err)
	}
}

// Reconcile leaves interfaces on foreign bridges alone, and releases those of pods that are gone.
func TestForeignReconcile(t *testing.T) {
	w := newWorld(t)
	w.must(foreignRequest("a", "", given99))
	before := w.snapshot()
	reconcile := func() (released, removed int) {
		t.Helper()
		report, err := w.Reconcile(t.Context())
		if err != nil {
			t.Error(err)
		}
		return len(report.Released), len(report.Removed)
	}
	if released, removed := reconcile(); released+removed != 0 || cmp.Diff(before, w.snapshot()) != "" {
		t.Errorf("%d released, %d removed: %s", released, removed, cmp.Diff(before, w.snapshot()))
	}
	// Without an answer of Open vSwitch, nothing that may be a pod's is removed.
	w.foreign.fails["Attached"] = errors.New("broken")
	if _, err := w.Reconcile(t.Context()); err == nil || cmp.Diff(before, w.snapshot()) != "" {
		t.Errorf("error %v: %s", err, cmp.Diff(before, w.snapshot()))
	}
	clear(w.foreign.fails)
	// One that is being made has no port yet.
	end := w.makingForeign.begin(attachment.ForeignInterface(foreignKey))
	port := w.foreign.ports[attachment.ForeignInterface(foreignKey)]
	clear(w.foreign.ports)
	if released, removed := reconcile(); released+removed != 0 {
		t.Errorf("%d released, %d removed while it is made", released, removed)
	}
	end()
	w.foreign.ports[port.HostInterface] = port
	w.kernel.end("/run/netns/a")
	if released, _ := reconcile(); released != 1 || len(w.snapshot()) != 0 {
		t.Errorf("%d released, left behind: %v", released, w.snapshot())
	}
	// What an agent left that ended in the middle of an ADD.
	w.kernel.host["veth12345678"] = bare("veth12345678")
	if _, removed := reconcile(); removed != 1 {
		t.Errorf("%d removed", removed)
	}
}
