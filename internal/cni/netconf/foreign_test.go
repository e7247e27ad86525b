// SPDX-License-Identifier: Apache-2.0

package netconf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/netconf"
)

const givenIPAM = `"ipam": {"type": "host-local", "subnet": "10.11.1.0/24"}`

// foreign is a configuration for a bridge that is not the agent's, with keys.
func foreign(keys string) []byte {
	return fmt.Appendf(nil, `{"name": "odl", "ovsBridge": "ovsbrk8s", %s, %s}`, givenIPAM, keys)
}

func TestBadForeignBridges(t *testing.T) {
	for keys, want := range map[string]string{
		`"ctlrActive": true`: "ctlrActive in the network configuration has the value true: the key controller is missing",
		`"controller": "192.0.2.1", "ctlrActive": true, "mgrActive": true`:                        "the key manager is missing: the address to connect to",
		`"controller": "odl.example.org", "ctlrActive": true`:                                     `controller in the network configuration has the value "odl.example.org": it is not an IP address`,
		`"controller": "fe80::1%eth0", "ctlrActive": true`:                                        "it is not an IP address",
		`"controller": "192.0.2.1:6653", "ctlrActive": true`:                                      "it is not an IP address",
		`"controller": "192.0.2.1 ssl:192.0.2.2", "ctlrActive": true`:                             "it is not an IP address",
		`"controller": "0.0.0.0", "ctlrActive": true`:                                             "it is not the address of one machine",
		`"controller": "224.0.0.1"`:                                                               "it is not the address of one machine",
		`"ctlrPort": 0`:                                                                           "ctlrPort in the network configuration has the value 0: it is not between 1 and 65535",
		`"ctlrPort": 65536`:                                                                       "ctlrPort in the network configuration has the value 65536",
		`"ctlrPort": -1`:                                                                          "ctlrPort in the network configuration has the value -1",
		`"ctlrPort": 6653, "mgrPort": 0`:                                                          "mgrPort in the network configuration has the value 0",
		`"ctlrPort": 6640, "mgrPort": 6640`:                                                       "controller and manager in the network configuration are both ptcp:6640:127.0.0.1",
		`"ctlrPort": 6653, "manager": "x", "mgrActive": true`:                                     `manager in the network configuration has the value "x"`,
		`"ctlrPort": 6653, "clusterId": ""`:                                                       `clusterId in the network configuration has the value ""`,
		`"ctlrPort": 6653, "clusterId": "a:b"`:                                                    "it is not an identity",
		`"ctlrPort": 6653, "externalIntf": "eth0/1"`:                                              "it is not the name of a network device",
		`"ctlrPort": 6653, "externalIntf": "ovsbrk8s"`:                                            "it is the bridge itself",
		`"ctlrPort": 6653, "network": "red"`:                                                      "there are no Coelan Networks",
		`"ctlrPort": 6653, "ovs": {"vxlan": 42}`:                                                  "there are no Coelan Networks",
		`"ctlrPort": 6653, "ipMasq": true`:                                                        "Coelan does not masquerade",
		`"ctlrPort": 6653, "bridge": "other"`:                                                     "name different bridges",
		`"ctlrPort": 6653, "ovsConfig": {"ctlrPort": 6654}`:                                       "ctlrPort and ovsConfig.ctlrPort in the network configuration differ: 6653 and 6654",
		`"controller": "192.0.2.1", "ctlrActive": true, "ovsConfig": {"controller": "192.0.2.2"}`: "controller and ovsConfig.controller in the network configuration differ",
	} {
		_, _, err := netconf.Read(foreign(keys), agentBridge, true)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", keys, err, want)
		}
	}
	for config, want := range map[string]string{
		`{"name": "odl", "ovsBridge": "br k8s", "ctlrPort": 6653, ` + givenIPAM + `}`:                     `ovsBridge in the network configuration has the value "br k8s"`,
		`{"name": "odl", "ovsBridge": "br/k8s"}`:                                                          `ovsBridge in the network configuration has the value "br/k8s"`,
		`{"name": "odl", "ovsBridge": "a-bridge-too-long", "ctlrPort": 6653, ` + givenIPAM + `}`:          "at most 15",
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "ctlrPort": 6653}`:                                      "network configuration lacks the key ipam",
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "ctlrPort": 6653, "ipam": {}}`:                          "use host-local or another IPAM plugin",
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "ctlrPort": 6653, "ipam": null}`:                        "use host-local or another IPAM plugin",
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "ctlrPort": 6653, "ipam": {"type": "ipam-odl", "x":1}}`: "use host-local or another IPAM plugin",
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "ctlrPort": 6653, "ipam": {"type": "dhcp"}}`:            "the plugin dhcp asks through an interface",
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "ctlrPort": 6653, "ipam": {"type": "host-local"}}`:      "it has neither subnet nor ranges",
	} {
		if _, _, err := netconf.Read([]byte(config), agentBridge, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", config, err, want)
		}
		// What was added once can be deleted.
		if conf, _, err := netconf.Read([]byte(config), agentBridge, false); err != nil || conf.Name != "odl" {
			t.Errorf("DEL with %s: %v", config, err)
		}
	}
}

func TestForeignBridges(t *testing.T) {
	for keys, want := range map[string]netconf.ForeignBridge{
		`"controller": "192.0.2.1", "ctlrActive": true`:                     {Controller: "tcp:192.0.2.1:6653"},
		`"controller": "2001:db8::1", "ctlrPort": 6633, "ctlrActive": true`: {Controller: "tcp:[2001:db8::1]:6633"},
		`"ctlrPort": 6633`:                                                                                {Controller: "ptcp:6633:127.0.0.1"},
		`"controller": "192.0.2.1"`:                                                                       {Controller: "ptcp:6653:192.0.2.1"},
		`"controller": "0.0.0.0"`:                                                                         {Controller: "ptcp:6653:0.0.0.0"},
		`"controller": "::1", "ctlrActive": false`:                                                        {Controller: "ptcp:6653:[::1]"},
		`"ctlrPort": 6653, "mgrPort": 6640`:                                                               {Controller: "ptcp:6653:127.0.0.1", Manager: "ptcp:6640:127.0.0.1"},
		`"ctlrPort": 6653, "mgrActive": false`:                                                            {Controller: "ptcp:6653:127.0.0.1"},
		`"ctlrPort": 6653, "manager": "192.0.2.1", "mgrActive": true`:                                     {Controller: "ptcp:6653:127.0.0.1", Manager: "tcp:192.0.2.1:6640"},
		`"ctlrPort": 6653, "clusterId": "c1", "externalIntf": "eth2"`:                                     {Controller: "ptcp:6653:127.0.0.1", ClusterID: "c1", Uplink: "eth2"},
		`"ovsConfig": {"controller": "192.0.2.1", "ctlrActive": true, "isMaster": false}`:                 {Controller: "tcp:192.0.2.1:6653"},
		`"ctlrActive": true, "ovsConfig": {"controller": "192.0.2.1", "ctlrPort": 1, "ctlrActive": true}`: {Controller: "tcp:192.0.2.1:1"},
	} {
		want.Name = "ovsbrk8s"
		if want.ClusterID == "" {
			want.ClusterID = "00000000-0000-0000-0000-000000000001"
		}
		conf, _, err := netconf.Read(foreign(keys), agentBridge, true)
		if err != nil {
			t.Errorf("%s: %v", keys, err)
			continue
		}
		if diff := cmp.Diff(&want, conf.Foreign); diff != "" {
			t.Errorf("%s (-want +got):\n%s", keys, diff)
		}
	}
}

// On the agent's own bridge, without a bridge, and without a controller, the keys have no effect.
func TestKeysWithoutForeignBridge(t *testing.T) {
	const owner = `"controller": "no address", "ctlrPort": 0, "ctlrActive": true, "manager": "neither", "mgrActive": true, "externalIntf": "a/b", "clusterId": ":"`
	for _, config := range []string{
		`{"name": "odl", "ovsBridge": "br-int", ` + owner + `}`,
		`{"name": "odl", "ovs": {"bridge": "br-int"}, "network": "red", ` + owner + `}`,
		`{"name": "odl", "ovsConfig": {"ovsBridge": "br-int", ` + owner + `}}`,
		`{"name": "odl", ` + owner + `}`,
		`{"name": "odl", "ovsBridge": "ovsbrk8s", "manager": "192.0.2.1", "mgrActive": true, "ctlrActive": false, "externalIntf": "eth2"}`,
	} {
		conf, findings, err := netconf.Read([]byte(config), agentBridge, true)
		if err != nil || conf.Foreign != nil {
			t.Errorf("%s: %+v, %v", config, conf.Foreign, err)
		}
		ignored := 0
		for _, f := range findings {
			if f.State == netconf.Ignored {
				ignored++
			}
		}
		if want := strings.Count(config, "manager") + strings.Count(config, "mgrActive") + strings.Count(config, "controller") +
			strings.Count(config, "ctlr") + strings.Count(config, "externalIntf") + strings.Count(config, "clusterId"); ignored != want {
			t.Errorf("%s: %d keys without effect, want %d", config, ignored, want)
		}
	}
}
