// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func runLint(t *testing.T, text string, flags ...string) (out string, status int) {
	t.Helper()
	var b bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"cni", "lint", "-"}, flags...))
	root.SetIn(strings.NewReader(text))
	root.SetOut(&b)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return b.String() + err.Error(), report(err)
	}
	return b.String(), 0
}

func TestLint(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		status     int
		want       []string
	}{
		{"accepted", `{"name":"coelan","type":"ovs-odl","hairpinMode":true,"mgrPort":6640}`, 0, []string{
			"KEY          VALUE      STATE      MEANING\n",
			"hairpinMode  true       always so  a pod reaches itself by a Service that leads to it\n",
			"mgrPort      6640       no effect  the agent reaches Open vSwitch by its unix sockets and sets no manager\n",
		}},
		{"corrected", "{ // ours\n\"name\": \"coelan\"\n\"ipam\": {\"type\": \"ipam-odl\",}}", 0, []string{
			"\nWarning: the configuration is not JSON: corrected were comments, a missing comma, a comma before }. What is meant:\n" +
				"{\n  \"name\": \"coelan\",\n  \"ipam\": {\n    \"type\": \"ipam-odl\"\n  }\n}\n",
		}},
		{"refused", `{"ovsBrigde":"br-int","ipam":{"type":"dhcp"},"ovs":{"vxlan":0}}`, exitRefused, []string{
			`ovsBrigde  "br-int"         refused  no such key is known`, "the plugin refuses it, because of 3 of its keys",
		}},
		{"contradictory", `{"bridge":"a","ovs":{"bridge":"b"}}`, exitRefused, []string{"name different bridges", "because of 1 of its keys"}},
		{"a list", `{"name":"n","plugins":[{"type":"portmap","x":1},{"type":"odlcoe","ovsConfig":{"isMaster":false}}]}`, 0, []string{
			"plugins[1].ovsConfig.isMaster  false     always so",
		}},
		{"a list with keys twice", `{"plugins":[{"type":"odlcoe","name":"a","name":"b"}]}`, exitRefused, []string{"plugins.name"}},
		{"a list without the plugin", `{"plugins":[{"type":"portmap"}]}`, 1, []string{"has none of Coelan's plugin"}},
		{"a list of another type", `{"plugins":7}`, 1, []string{"plugins in the list of network configurations"}},
		{"no name", `{"type":"odlcoe"}`, exitRefused, []string{"network configuration lacks the key name"}},
		{"unknown version", `{"name":"a","cniVersion":"7"}`, exitRefused, []string{`cniVersion "7" in the network configuration is not supported`}},
		{"a list without a name", `{"plugins":[{"type":"odlcoe"}]}`, exitRefused, []string{"network configuration lacks the key name"}},
		{"not JSON", `{"name"`, 1, []string{"-: network configuration is not a JSON object: unexpected end"}},
		{"empty", "", 1, []string{"standard input is empty"}},
		{"too large", strings.Repeat(" ", maxConfiguration+1), 1, []string{"larger than 4194304 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, status := runLint(t, tt.text)
			if status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s\nlacks %s", out, want)
				}
			}
		})
	}
}

// What the keys of a bridge's owner do depends on whether the bridge is the agent's.
func TestLintForeignBridge(t *testing.T) {
	const text = `{"name":"odl","type":"odlovs-cni","ovsBridge":"ovsbrk8s","ctlrPort":6653,"externalIp":"192.0.2.1","ipam":{"type":"static"}}`
	for _, tt := range []struct {
		name, text string
		flags      []string
		status     int
		want       []string
	}{
		{"another bridge", text, nil, 0, []string{
			"ctlrPort    6653               used       the controller's port (6653)\n",
			"externalIp  \"192.0.2.1\"        no effect  no plugin has ever used it, COE's neither\n",
			"ovsBridge   \"ovsbrk8s\"         used       the bridge of the external controller: it is made if it is not there\n",
		}},
		{"the agent's bridge", text, []string{"--bridge", "ovsbrk8s"}, 0, []string{
			"ctlrPort    6653               no effect  the agent is the bridge's only controller\n",
		}},
		{"a list", `{"name":"odl","plugins":[` + text + `]}`, nil, 0, []string{"plugins[0].ctlrPort    6653               used"}},
		{"a list with a mistake", `{"name":"odl","plugins":[` + strings.Replace(text, `"ctlrPort":6653`, `"ctlrPort":0`, 1) + `]}`, nil, exitRefused,
			[]string{"ctlrPort in the network configuration has the value 0: it is not between 1 and 65535"}},
		{"a list without addresses", `{"name":"odl","plugins":[` + strings.Replace(text, "static", "ipam-odl", 1) + `]}`, nil, exitRefused,
			[]string{"use host-local or another IPAM plugin"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, status := runLint(t, tt.text, tt.flags...)
			if status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s\nlacks %s", out, want)
				}
			}
		})
	}
}
