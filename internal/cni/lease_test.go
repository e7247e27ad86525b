// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/wire"
)

// leaseRequest is one of the reference plugin bridge, for the interface net1.
func leaseRequest(command, container, keys string) wire.Request {
	return wire.Request{Command: command, ContainerID: container, Netns: "/run/netns/" + container, IfName: "net1",
		Config: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"cni0","type":"bridge","bridge":"cni0","isGateway":false,%s"ipam":{"type":"ipam-odl"}}`, keys)}
}

func (w *world) mustIPAM(r wire.Request) string {
	w.t.Helper()
	out, err := w.HandleIPAM(w.t.Context(), r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.Command, r.ContainerID, err)
	}
	return string(out)
}

func (w *world) leases() []string {
	list := []string{}
	for _, l := range w.store.Leases() {
		list = append(list, fmt.Sprint(l.Key, " ", l.Addresses))
	}
	return list
}

func TestIPAMContract(t *testing.T) {
	w := newWorld(t)
	w.must(addRequest("a"))
	const want = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.3/24","gateway":"10.244.1.1"},
		{"address":"fd00:10:244:1::3/64","gateway":"fd00:10:244:1::1"}]}`
	for range 2 {
		if diff := cmp.Diff(decode(t, []byte(want)), decode(t, []byte(w.mustIPAM(leaseRequest("ADD", "a", ""))))); diff != "" {
			t.Errorf("ADD (-want +got):\n%s", diff)
		}
	}
	w.mustIPAM(leaseRequest("ADD", "b", `"args":{"cni":{"ips":["10.244.1.77"]}},`))
	if diff := cmp.Diff([]string{"a/net1 [10.244.1.3/24 fd00:10:244:1::3/64]", "b/net1 [10.244.1.77/24]"}, w.leases()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if attached := len(w.store.List()); attached != 1 {
		t.Errorf("%d attachments", attached)
	}
	w.mustIPAM(leaseRequest("STATUS", "", ""))
	w.mustIPAM(leaseRequest("CHECK", "a", `"prevResult":`+want+`,`))
	// Those of others are neither.
	w.must(wire.Request{Command: "GC", Config: []byte(`{"cniVersion":"1.1.0","name":"cni0","type":"coelan-cni","cni.dev/valid-attachments":[]}`)})
	w.mustIPAM(leaseRequest("GC", "", `"cni.dev/valid-attachments":[{"containerID":"a","ifname":"net1"}],`))
	if diff := cmp.Diff([]string{"a/net1 [10.244.1.3/24 fd00:10:244:1::3/64]"}, w.leases()); diff != "" {
		t.Errorf("after GC (-want +got):\n%s", diff)
	}
	for range 2 {
		w.mustIPAM(leaseRequest("DEL", "a", ""))
	}
	if left := w.leases(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBadRequestsForAddresses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world, *wire.Request)
		code   uint
		want   string
	}{
		{"not JSON", func(_ *world, r *wire.Request) { r.Config = []byte("{") }, 6, "network configuration is not a JSON object"},
		{"no name", func(_ *world, r *wire.Request) { r.Config = []byte(`{"cniVersion":"1.0.0"}`) }, 7, "lacks the key name"},
		{"IPAM of another type", func(_ *world, r *wire.Request) { r.Config = []byte(`{"name":"a","ipam":7}`) }, 7, "cannot unmarshal number"},
		{"a subnet", func(_ *world, r *wire.Request) {
			r.Config = []byte(`{"name":"a","ipam":{"type":"ipam-odl","subnet":"10.0.0.0/8"}}`)
		}, 7, `ipam.subnet in the network configuration has the value "10.0.0.0/8": ipam-odl gives addresses of the node's podCIDRs, and takes type, socket and timeout only`},
		{"unknown command", func(_ *world, r *wire.Request) { r.Command = "MOVE" }, 4, `CNI_COMMAND "MOVE" is not known`},
		{"no interface", func(_ *world, r *wire.Request) { r.IfName = "" }, 4, "not set: CNI_IFNAME"},
		{"CNI_ARGS", func(_ *world, r *wire.Request) { r.Args = "x" }, 4, `"x" is not KEY=VALUE`},
		{"address outside", func(_ *world, r *wire.Request) { r.Args = "IP=10.9.9.9" }, 103, "address 10.9.9.9 is outside of its subnets"},
		{"the gateway", func(_ *world, r *wire.Request) { r.Args = "IP=10.244.1.1" }, 103, "address 10.244.1.1 is the gateway"},
		{"a pod's address", func(_ *world, r *wire.Request) { r.Args = "IP=10.244.1.2" }, 103, "address 10.244.1.2 on Network default belongs to default/pod-b/eth0"},
		{"no address", func(_ *world, r *wire.Request) { r.Args = "IP=x" }, 7, `address "x"`},
		{"an interface of Coelan's", func(_ *world, r *wire.Request) { r.ContainerID, r.IfName = "b", "eth0" }, 4, "Coelan has made this interface"},
		{"node not known", func(w *world, _ *wire.Request) { w.node.err = errors.New("node n1 was not seen yet") }, 11, "node n1 was not seen yet"},
		{"used up", func(w *world, _ *wire.Request) { w.node.node.PodCIDRs = prefixes("10.244.1.0/30") }, 100, "all addresses are in use"},
		{"state cannot be written", func(w *world, _ *wire.Request) { w.store.Close() }, 5, "write state file "},
		{"CHECK of nothing", func(_ *world, r *wire.Request) { r.Command = "CHECK" }, 3, "container a/net1 has no addresses of ipam-odl"},
		{"GC without a list", func(_ *world, r *wire.Request) { r.Command = "GC" }, 7, "lacks the key cni.dev/valid-attachments"},
		{"STATUS of a node that is not known", func(w *world, r *wire.Request) {
			r.Command, w.node.err = "STATUS", errors.New("node n1 was not seen yet")
		}, 50, "no addresses can be given now"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.must(addRequest("b"))
			r := leaseRequest("ADD", "a", "")
			tt.change(w, &r)
			_, err := w.HandleIPAM(t.Context(), r)
			if err == nil || err.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant  %d %s", err, tt.code, tt.want)
			}
			if left := w.leases(); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A lease is asked for with another address, or CHECKed with what it never was.
func TestLeaseThatDiffers(t *testing.T) {
	w := newWorld(t)
	w.mustIPAM(leaseRequest("ADD", "a", ""))
	r := leaseRequest("ADD", "a", "")
	r.Args = "IP=10.244.1.9"
	if _, err := w.HandleIPAM(t.Context(), r); err == nil || err.Code != wire.CodeRefused || !strings.Contains(err.Error(), "it has [10.244.1.2/24 ") {
		t.Errorf("ADD: %v", err)
	}
	r = leaseRequest("CHECK", "a", `"prevResult":{"ips":[{"address":"10.244.1.9/24"}]},`)
	if _, err := w.HandleIPAM(t.Context(), r); err == nil || err.Code != wire.CodeCheck {
		t.Errorf("CHECK: %v", err)
	}
	if got := w.leases(); len(got) != 1 {
		t.Errorf("leases %v", got)
	}
}

// FuzzHandleIPAM checks that no request for addresses stops the agent.
func FuzzHandleIPAM(f *testing.F) {
	f.Add("ADD", "IP=10.244.1.5", leaseRequest("ADD", "a", "").Config)
	f.Add("CHECK", "", leaseRequest("CHECK", "a", `"prevResult":{"ips":[]},`).Config)
	f.Add("GC", "", []byte(`{"name":"a","cni.dev/valid-attachments":null}`))
	f.Fuzz(func(t *testing.T, command, args string, config []byte) {
		w := newWorld(t)
		_, _ = w.HandleIPAM(context.Background(), wire.Request{Command: command, ContainerID: "a", IfName: "net1", Netns: "/run/netns/a", Args: args, Config: config})
	})
}
