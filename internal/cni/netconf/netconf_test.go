// SPDX-License-Identifier: Apache-2.0

package netconf_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/netconf"
)

// agentBridge is that of the node.
const agentBridge = "br-int"

// rows are findings as the tables below have them.
func rows(findings []netconf.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s: %s\n", f.Key, f.State)
	}
	return b.String()
}

// The configurations of the COE CNI specification as they are printed there.
func TestPrintedConfigurations(t *testing.T) {
	for file, want := range map[string]string{
		"odlovs-cni.conf": `cniVersion: used
controller: used
ctlrActive: used
ctlrPort: used
externalIntf: used
externalIp: no effect
ipam: used
manager: used
mgrActive: used
mgrPort: used
name: used
ovsBridge: used
type: used
`,
		"odlcoe.conf": `: no effect
cniVersion: used
ipam: refused
name: used
ovsConfig.controller: used
ovsConfig.ctlrActive: used
ovsConfig.ctlrPort: used
ovsConfig.isMaster: refused
ovsConfig.manager: used
ovsConfig.mgrActive: used
ovsConfig.mgrPort: used
ovsConfig.ovsBridge: used
type: used
`,
		"ovs-odl.conf": `: no effect
bridge: used
forceAddress: always so
hairpinMode: always so
ipMasq: used
ipam: used
isDefaultGateway: used
name: used
ovs.bridge: used
ovs.vxlan: used
type: used
`,
		// It shows two ways to have addresses, of which one has to be chosen.
		"ovs-odl-dhcp.conf": `: no effect
ipam: refused
bridge: used
forceAddress: always so
hairpinMode: always so
ipMasq: used
ipam: refused
isDefaultGateway: used
name: used
ovs.bridge: used
ovs.vxlan: used
type: used
`,
	} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			text, findings, err := netconf.Judge(data, agentBridge)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, rows(findings)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !json.Valid(text) {
				t.Errorf("not JSON: %s", text)
			}
		})
	}
}

func TestReadPrintedConfigurations(t *testing.T) {
	for file, want := range map[string]netconf.Config{
		"odlovs-cni.conf": {CNIVersion: "0.3.0", Name: "odl-cni", Type: "odlovs-cni", Bridge: "ovsbrk8s",
			IPAM: netconf.IPAM{Type: "host-local"}, Foreign: &netconf.ForeignBridge{
				Name: "ovsbrk8s", Controller: "tcp:192.168.33.1:6653", Manager: "tcp:192.168.33.1:6640", Uplink: "eth2",
				ClusterID: "00000000-0000-0000-0000-000000000001",
			}},
		"ovs-odl.conf": {CNIVersion: "0.1.0", Name: "odl-coe", Type: "ovs-odl", Bridge: "br-int", VNI: 42,
			IPAM: netconf.IPAM{Type: "host-local"}, DefaultGateway: true, Masquerade: true},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := netconf.Read(data, agentBridge, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// The gateway that odlcoe's sample has is not in its subnet, and no node is a master; all else
// means what it says.
func TestODLCOE(t *testing.T) {
	data, err := os.ReadFile("testdata/odlcoe.conf")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := netconf.Read(data, agentBridge, true); err == nil || !strings.Contains(err.Error(), "gateway 192.168.33.0 is outside of the subnet 10.11.0.0/16") {
		t.Errorf("error %v", err)
	}
	if _, _, err := netconf.Read(data, agentBridge, false); err != nil {
		t.Errorf("DEL: %v", err)
	}
	fixed := strings.Replace(string(data), "192.168.33.0", "10.11.0.1", 1)
	if _, _, err := netconf.Read([]byte(fixed), agentBridge, true); err == nil || !strings.Contains(err.Error(), "no node is the master of others") {
		t.Errorf("error %v", err)
	}
	fixed = strings.Replace(fixed, `"isMaster": true`, `"isMaster": false`, 1)
	conf, _, err := netconf.Read([]byte(fixed), agentBridge, true)
	if err != nil || conf.Bridge != "brk8s" || conf.IPAM.Type != "host-local" || conf.Foreign == nil ||
		conf.Foreign.Controller != "tcp:192.168.33.1:6653" {
		t.Errorf("%+v, %v", conf, err)
	}
}

func hostLocal(keys string) string { return `"ipam": {"type": "host-local", ` + keys + "}" }

func TestJudge(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{
		{`"ipMasq": false`, "ipMasq false (no effect): whether pods have the node's address outside is decided by the agent's snat.enabled"},
		{`"hairpinMode": false`, "hairpinMode false (no effect): a pod always reaches itself by a Service that leads to it"},
		{`"hairpinMode": "yes"`, `hairpinMode "yes" (refused): json: cannot unmarshal string into Go value of type bool`},
		{`"isMaster": true`, "isMaster true (refused): it belongs into ovsConfig.isMaster"},
		{`"ovs": {"ovsBridge": "br-int"}`, `ovs.ovsBridge "br-int" (refused): it belongs into ovsBridge`},
		{`"ovsBrigde": "br-int"`, `ovsBrigde "br-int" (refused): no such key is known`},
		{`"ovs": {"vxlan": 42}`, "ovs.vxlan 42 (used): the interface is on the Network that has this VNI"},
		{`"ovs": {"vxlan": -1}`, "ovs.vxlan -1 (refused): not a VNI from 1 to 16777215"},
		{`"ovs": {"vxlan": null}`, "ovs.vxlan null (refused): not a VNI from 1 to 16777215"},
		{`"ovs": 1`, "ovs 1 (refused): json: cannot unmarshal number into Go value of type map[string]interface {}"},
		{`"ipam": {"type": "ipam-odl"}`, `ipam {"type":"ipam-odl"} (used): addresses are the agent's`},
		{`"ipam": {"type": 1}`, `ipam {"type":1} (refused): json: cannot unmarshal number into Go struct field IPAM.type of type string`},
		{`"ipam": {"type": "static"}`, `ipam {"type":"static"} (used): the plugin static is called, and its addresses have to be in the Network's subnets, free, and not the gateway`},
		{hostLocal(`"subnet": "10.11.0.0/16", "gateway": "192.168.33.0"`), "gateway 192.168.33.0 is outside of the subnet 10.11.0.0/16"},
		{hostLocal(`"subnet": "10.11.0.0/16", "rangeStart": "10.12.0.1"`), "rangeStart 10.12.0.1 is outside of the subnet"},
		{hostLocal(`"subnet": "10.11.0.0/16", "rangeStart": "10.11.0.9", "rangeEnd": "10.11.0.8"`), "rangeEnd 10.11.0.8 is before rangeStart 10.11.0.9"},
		{hostLocal(`"subnet": "10.11.0.0"`), `subnet "10.11.0.0" is not a prefix`},
		{hostLocal(`"gateway": "10.11.0.1"`), "it has neither subnet nor ranges"},
		{hostLocal(`"ranges": [[{"subnet": "10.11.0.0/16"}], [{"subnet": "fd00::/64", "rangeEnd": "x"}]]`), `ranges[1][0]: rangeEnd "x" is not an address`},
		{`"ovs": {"vxlan": 7}, "ovs": {}`, "ovs twice (refused): the key is there more than once: keep the one that is meant"},
		{`"ipam": {"type": "a", "x": {"y": [{"z": 1, "z": 2}]}}`, "ipam.x.y.z twice (refused): the key is there more than once: keep the one that is meant"},
		{`"bridge": "a", "ovs": {"bridge": "b"}`, `bridge "a" and ovs.bridge "b" in the network configuration name different bridges`},
	} {
		_, findings, err := netconf.Judge([]byte("{"+tt.keys+"}"), agentBridge)
		if err != nil {
			t.Errorf("%s: %v", tt.keys, err)
		}
		var all []string
		for _, f := range findings {
			all = append(all, f.String())
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, tt.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.keys, got, tt.want)
		}
	}
}

func TestNoObject(t *testing.T) {
	for text, want := range map[string]string{
		"": "standard input is empty", "null": "it is null", "[1]": "cannot unmarshal array", `{"a"`: "at byte",
		strings.Repeat("[", 20000): "", "{\"a\": \xff}": "at byte",
	} {
		if _, _, err := netconf.Judge([]byte(text), agentBridge); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// FuzzRead checks that what is accepted can be read again in its corrected form, with the same
// meaning, and that DEL accepts it too.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"name":"a","ovs":{"vxlan":"1"},"prevResult":{"a":[{}]},"cni.dev/valid-attachments":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, _, judgeErr := netconf.Judge(data, agentBridge)
		conf, _, err := netconf.Read(data, agentBridge, true)
		if err != nil {
			return
		}
		if judgeErr != nil {
			t.Fatalf("accepted, and judged %v", judgeErr)
		}
		again, _, err := netconf.Read(text, agentBridge, true)
		if err != nil || !cmp.Equal(conf, again) {
			t.Errorf("corrected %s: %v, %s", text, err, cmp.Diff(conf, again))
		}
		if _, _, err := netconf.Read(data, agentBridge, false); err != nil {
			t.Errorf("DEL: %v", err)
		}
	})
}
