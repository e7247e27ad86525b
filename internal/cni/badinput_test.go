// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/ipam"
)

// Every bad ADD gets an error with a code of the specification that names what is wrong,
// and changes nothing.
func TestBadADD(t *testing.T) {
	conf := func(text string) func(*world, *wire.Request) {
		return func(_ *world, r *wire.Request) { r.Config = []byte(text) }
	}
	with := func(keys string) func(*world, *wire.Request) {
		return conf(`{"cniVersion":"1.0.0","name":"coelan","type":"coelan-cni",` + keys + `}`)
	}
	args := func(text string) func(*world, *wire.Request) {
		return func(_ *world, r *wire.Request) { r.Args = text }
	}
	request := func(change func(*wire.Request)) func(*world, *wire.Request) {
		return func(_ *world, r *wire.Request) { change(r) }
	}
	for _, tt := range []struct {
		name   string
		change func(*world, *wire.Request)
		code   uint
		want   string
	}{
		{"empty configuration", conf(""), 6, "network configuration is not a JSON object: standard input is empty"},
		{"malformed JSON", conf(`{"cniVersion": "1.0.0",,}`), 6, "invalid character ',' looking for beginning of object key string, at byte 24"},
		{"null", conf(`null`), 6, "network configuration is not a JSON object: it is null"},
		{"not an object", conf(`[1]`), 6, "network configuration is not a JSON object"},
		{"no name", conf(`{"cniVersion":"1.0.0"}`), 7, "network configuration lacks the key name"},
		{"bad name", conf(`{"cniVersion":"1.0.0","name":"a b"}`), 7, "name in the network configuration"},
		{"unknown version", conf(`{"cniVersion":"2.0.0","name":"coelan"}`), 1, `cniVersion "2.0.0" in the network configuration is not supported: supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		{"version of another type", conf(`{"cniVersion":1,"name":"coelan"}`), 7, "cniVersion in the network configuration has the value 1"},
		{"unknown key", with(`"ovsBrigde":"br-int"`), 2, `unknown key ovsBrigde with the value "br-int"`},
		{"key twice", with(`"name":"coelan"`), 7, "name in the network configuration has the value twice: the key is there more than once"},
		{"key of an object, alone", with(`"vxlan":"42"`), 2, `unknown key vxlan with the value "42": it belongs into ovs.vxlan`},
		{"unknown key of an object", with(`"ovs":{"vlan":7}`), 2, "unknown key ovs.vlan with the value 7"},
		{"two bridges", with(`"bridge":"br-int","ovs":{"bridge":"br-ex"}`), 7, `bridge "br-int" and ovs.bridge "br-ex" in the network configuration name different bridges`},
		{"VNI too large", with(`"ovs":{"vxlan":"16777216"}`), 7, `ovs.vxlan in the network configuration has the value "16777216": not a VNI from 1 to 16777215`},
		{"VNI is no number", with(`"ovs":{"vxlan":"0x2a"}`), 7, "not a VNI from 1 to 16777215"},
		{"VNI and Network", with(`"network":"red","ovs":{"vxlan":"42"}`), 7, "both select a Network"},
		{"masquerading that is off", func(w *world, r *wire.Request) {
			w.opts.KeepsAddresses = true
			with(`"ipMasq":true`)(w, r)
		}, 7, "the agent's snat.enabled is false"},
		{"IPAM without a type", with(`"ipam":{"subnet":"10.11.1.0/24"}`), 7, "it lacks the key type"},
		{"IPAM of another type", with(`"ipam":"host-local"`), 7, `ipam in the network configuration has the value "host-local"`},
		{"IPAM by DHCP", with(`"ipam":{"type":"dhcp"}`), 7, "the plugin dhcp asks through an interface that works before it has an address"},
		{"IPAM of the agent with a subnet", with(`"ipam":{"type":"ipam-odl","subnet":"10.11.1.0/24"}`), 7, "addresses of ipam-odl are the Network's"},
		{"IPAM by the plugin itself", with(`"ipam":{"type":"odlcoe"}`), 7, `type "odlcoe" is not the name of an IPAM plugin`},
		{"IPAM by a path", with(`"ipam":{"type":"../sh"}`), 7, `type "../sh" is not the name of an IPAM plugin`},
		{"IPAM plugin not called", with(`"ipam":{"type":"host-local","subnet":"10.244.1.0/24"}`), 104, "is coelan-cni older than the agent?"},
		{"key of another type", with(`"mgrPort":"6640"`), 7, `mgrPort in the network configuration has the value "6640"`},
		{"port out of range", with(`"ctlrPort":66400`), 7, `ctlrPort in the network configuration has the value 66400`},
		{"DNS of another type", with(`"dns":"10.0.0.10"`), 7, `dns in the network configuration has the value "10.0.0.10"`},
		{"DNS with a wrong field", with(`"dns":{"nameservers":"10.0.0.10"}`), 7, `dns in the network configuration`},
		{"prevResult of another type", with(`"prevResult":[]`), 7, `prevResult in the network configuration`},

		{"unknown command", request(func(r *wire.Request) { r.Command = "MOVE" }), 4, `CNI_COMMAND "MOVE" is not known`},
		{"no environment", request(func(r *wire.Request) { r.ContainerID, r.Netns, r.IfName = "", "", "" }), 4,
			"not set: CNI_CONTAINERID, CNI_IFNAME, CNI_NETNS"},
		{"bad container id", request(func(r *wire.Request) { r.ContainerID = "../etc" }), 4, `CNI_CONTAINERID "../etc"`},
		{"interface name too long", request(func(r *wire.Request) { r.IfName = "sixteencharacter" }), 4, `CNI_IFNAME "sixteencharacter"`},
		{"interface name with a slash", request(func(r *wire.Request) { r.IfName = "a/b" }), 4, `CNI_IFNAME "a/b"`},
		{"interface name is a dot", request(func(r *wire.Request) { r.IfName = "." }), 4, `CNI_IFNAME "."`},
		{"interface name with a space", request(func(r *wire.Request) { r.IfName = "eth 0" }), 4, `CNI_IFNAME "eth 0"`},
		{"interface name is taken", func(w *world, _ *wire.Request) {
			w.kernel.pods["/run/netns/a"]["eth0"] = bare("other")
		}, 4, `interface "eth0" exists already in network namespace /run/netns/a`},

		{"no CNI_ARGS", args(""), 4, "CNI_ARGS lacks K8S_POD_NAMESPACE"},
		{"no pod name", args("K8S_POD_NAMESPACE=default;K8S_POD_UID=u"), 4, "CNI_ARGS lacks K8S_POD_NAME"},
		{"no pod UID", args("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"), 4, "CNI_ARGS lacks K8S_POD_UID"},
		{"args without a value", args("K8S_POD_NAMESPACE"), 4, `"K8S_POD_NAMESPACE" is not KEY=VALUE`},
		{"unknown args", args("K8S_POD_NAMESPACE=d;K8S_POD_NAME=w;K8S_POD_UID=u;COLOR=red"), 4, "CNI_ARGS has the unknown key COLOR"},
		{"name with a slash", args("K8S_POD_NAMESPACE=d;K8S_POD_NAME=a/b;K8S_POD_UID=u"), 4, `K8S_POD_NAME "a/b" in CNI_ARGS`},

		{"netns gone", request(func(r *wire.Request) { r.Netns = "/run/netns/gone" }), 8, `network namespace "/run/netns/gone": it does not exist`},
		{"node not known", func(w *world, _ *wire.Request) { w.node.err = errors.New("node n1 was not seen yet") }, 11, "node n1 was not seen yet"},
		{"no podCIDR", func(w *world, _ *wire.Request) { w.node.node.PodCIDRs = nil }, 7, ipam.ErrNoCIDR.Error()},
		{"podCIDR too small", func(w *world, _ *wire.Request) { w.node.node.PodCIDRs = prefixes("10.0.0.0/31") }, 7, "podCIDR 10.0.0.0/31: too small"},
		{"podCIDRs of one family", func(w *world, _ *wire.Request) {
			w.node.node.PodCIDRs = prefixes("10.0.0.0/24", "10.0.1.0/24")
		}, 7, "podCIDR 10.0.1.0/24: of the same family as 10.0.0.0/24"},
		{"state cannot be written", func(w *world, _ *wire.Request) { w.store.Close() }, 5, "write state file "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r := addRequest("a")
			tt.change(w, &r)
			before := w.snapshot()
			out, err := w.Handle(t.Context(), r)
			if err == nil {
				t.Fatalf("succeeded with %s", out)
			}
			if err.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %d %q\nwant  %d %q", err.Code, err.Error(), tt.code, tt.want)
			}
			if err.CNIVersion == "" {
				t.Error("the error has no cniVersion")
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("the state changed:\n%s", diff)
			}
		})
	}
}

func TestExhaustedRange(t *testing.T) {
	w := newWorld(t)
	w.node.node.PodCIDRs = prefixes("10.0.0.0/30")
	w.must(addRequest("a"))
	before := w.snapshot()
	_, err := w.Handle(t.Context(), addRequest("b"))
	want := "ADD of pod default/pod-b (container b/eth0) failed: attachment b/eth0: podCIDR 10.0.0.0/30: all addresses are in use by pods of this node"
	if err == nil || err.Code != wire.CodeExhausted || err.Error() != want {
		t.Fatalf("error %v\nwant  %s", err, want)
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("the state changed:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"default/pod-b uid-b NetworkSetupFailed: " + want}, w.events.list); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	w.must(as("DEL", addRequest("a")))
	w.must(addRequest("b"))
}

// A configuration that went bad does not keep a pod from being deleted.
func TestDELIsNotStrict(t *testing.T) {
	for name, change := range map[string]func(*wire.Request){
		"unknown key":     func(r *wire.Request) { r.Config = []byte(`{"cniVersion":"1.0.0","name":"coelan","color":1}`) },
		"no CNI_ARGS":     func(r *wire.Request) { r.Args = "" },
		"broken CNI_ARGS": func(r *wire.Request) { r.Args = "x" },
		"no netns":        func(r *wire.Request) { r.Netns = "" },
		"netns gone":      func(r *wire.Request) { r.Netns = "/run/netns/gone" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(addRequest("a"))
			r := as("DEL", addRequest("a"))
			change(&r)
			w.must(r)
			if got := w.snapshot(); len(got) != 0 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func TestCommandsOfLaterVersions(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ command, version, want string }{
		{"CHECK", "0.3.1", "has no CHECK, 0.4.0 has"},
		{"GC", "1.0.0", "has no GC, 1.1.0 has"},
		{"STATUS", "1.0.0", "has no STATUS, 1.1.0 has"},
	} {
		r := as(tt.command, addRequest("a"))
		r.Config = []byte(strings.Replace(config, "1.1.0", tt.version, 1))
		if _, err := w.Handle(t.Context(), r); err == nil || err.Code != 1 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %s: %v, want code 1 and %q", tt.command, tt.version, err, tt.want)
		}
	}
}
