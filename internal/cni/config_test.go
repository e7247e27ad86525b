// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// odlConfig is the configuration of the COE CNI specification for one worker, with the
// key that its later recipes added.
const odlConfig = `{
	"cniVersion":"0.3.0",
	"name":"odl-cni",
	"type":"odlovs-cni",
	"mgrPort":6640,
	"mgrActive":true,
	"manager":"192.168.33.1",
	"ovsBridge":"ovsbrk8s",
	"ctlrPort":6653,
	"ctlrActive":true,
	"controller":"192.168.33.1",
	"externalIntf":"eth2",
	"externalIp":"192.168.50.13",
	"clusterId":"00000000-0000-0000-0000-000000000001",
	"ipam":{
		"type":"host-local",
		"subnet":"10.11.1.0/24",
		"routes":[{"dst":"0.0.0.0/0"}],
		"gateway":"10.11.1.1"
	}
}`

// withoutController is one that names another bridge than the agent's, and nothing that could own
// it.
const withoutController = `{"cniVersion":"0.3.0","name":"odl-cni","type":"odlovs-cni","mgrPort":6640,"mgrActive":true,"manager":"192.168.33.1",
	"ovsBridge":"ovsbrk8s","ipam":{"type":"host-local","subnet":"10.11.1.0/24"}}`

// With a bridge of its own and a controller it means what it says: see TestForeign.
func TestConfigurationOfOdlovsCNI(t *testing.T) {
	ignored := []string{
		"clusterId is ignored: ports are named by namespace, pod and interface",
		"controller is ignored: the agent is the bridge's only controller",
		"ctlrActive is ignored: the agent is the bridge's only controller",
		"ctlrPort is ignored: the agent is the bridge's only controller",
		"externalIntf is ignored: the uplink is the interface that carries the node's address",
		"externalIp is ignored: the node's address is that of its Node object",
		"manager is ignored: the agent reaches Open vSwitch by its unix sockets and sets no manager",
		"mgrActive is ignored: the agent reaches Open vSwitch by its unix sockets and sets no manager",
		"mgrPort is ignored: the agent reaches Open vSwitch by its unix sockets and sets no manager",
	}
	for _, tt := range []struct {
		name, bridge, config string
		want                 []string
	}{
		{"the agent's bridge", "ovsbrk8s", odlConfig, ignored},
		{"without a controller", "br-int", withoutController, ignored[len(ignored)-3:]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.Bridge, w.node.node.PodCIDRs = tt.bridge, prefixes("10.11.1.0/24")
			conf, warnings, err := w.parseConfig([]byte(tt.config), true)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(tt.want)), slices.Sorted(slices.Values(warnings))); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if conf.Name != "odl-cni" || conf.CNIVersion != "0.3.0" {
				t.Errorf("name %q, version %q", conf.Name, conf.CNIVersion)
			}
			r := addRequest("a")
			r.Config, r.Addresses = []byte(tt.config), []byte(hostLocal)
			if got := string(w.must(r)); !strings.Contains(got, "10.11.1.9/24") {
				t.Errorf("result %s", got)
			}
			want := "" // the agent's
			if tt.bridge != "ovsbrk8s" {
				want = "ovsbrk8s"
			}
			if got := w.store.List()[0].Bridge; got != want {
				t.Errorf("the interface is on bridge %q, want %q", got, want)
			}
		})
	}
}

// With OVN a pod's interface can be on its bridge alone. DEL of what is attached works.
func TestBridgeBesideOVN(t *testing.T) {
	w := newWorld(t)
	w.opts.Bridge, w.opts.OneBridge = "br-int", true
	_, _, err := w.parseConfig([]byte(withoutController), true)
	const want = `ovsBridge in the network configuration has the value "ovsbrk8s": with OVN, pods' interfaces are ports of its bridge br-int`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, _, err := w.parseConfig([]byte(withoutController), false); err != nil {
		t.Error(err)
	}
}

// What is written for people works, and one warning says what was understood.
func TestConfigurationWithComments(t *testing.T) {
	w := newWorld(t)
	_, warnings, err := w.parseConfig([]byte("{ // ours\n\"name\": \"coelan\",\n}"), true)
	want := []string{`the configuration is not JSON: corrected were comments, a comma before }; what is meant is {"name":"coelan"}`}
	if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
		t.Errorf("error %v, warnings (-want +got):\n%s", err, diff)
	}
}

// What runtimes and the library put into a configuration is not an unknown key.
func TestKeysOfRuntimes(t *testing.T) {
	w := newWorld(t)
	_, warnings, err := w.parseConfig([]byte(`{"cniVersion":"1.1.0","name":"coelan","type":"coelan-cni",
		"capabilities":{"portMappings":true},"runtimeConfig":{"portMappings":[{"hostPort":80}]},"args":{"cni":{}},
		"prevResult":{"ips":[]},"dns":{"search":["cluster.local"]},"socket":"/run/x.sock","timeout":1.5,
		"cni.dev/valid-attachments":[],"cni.dev/something-new":1,"ipam":{}}`), true)
	if err != nil || len(warnings) != 0 {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}
