// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Config
		err        string
	}{
		{"empty", " ", Config{}, ""},
		{"ours", `{"cniVersion":"1.0.0","type":"coelan-cni","network":"red"}`, Config{Type: "coelan-cni", Coelan: true, Network: "red"}, ""},
		{"ours without a Network", `{"type":"coelan-cni"}`, Config{Type: "coelan-cni", Coelan: true}, ""},
		{"odlovs-cni", `{"type":"odlovs-cni","mgrPort":6640,"network":"red"}`, Config{Type: "odlovs-cni", Coelan: true, Network: "red"}, ""},
		{"OVN4NFV", `{"type":"ovn4nfvk8s-cni","nfn-network":"red"}`, Config{Type: "ovn4nfvk8s-cni", Coelan: true, Network: "red"}, ""},
		{"both keys", `{"type":"coelan-cni","network":"red","nfn-network":"red"}`, Config{Type: "coelan-cni", Coelan: true, Network: "red"}, ""},
		{"list", `{"name":"x","plugins":[{"type":"coelan-cni","network":"red"},{"type":"tuning"}]}`,
			Config{Type: "coelan-cni", Chained: []string{"tuning"}, Coelan: true, Network: "red"}, ""},
		{"another type", `{"type":"macvlan","master":"eth1","network":7}`, Config{Type: "macvlan"}, ""},
		{"another list", `{"plugins":[{"type":"bridge"},{"type":"coelan-cni","network":"red"}]}`,
			Config{Type: "bridge", Chained: []string{"coelan-cni"}}, ""},

		{"malformed", `{"type":`, Config{}, `spec.config "{\"type\":": malformed JSON at byte 8`},
		{"not an object", `[]`, Config{}, "a JSON array where an object should be"},
		{"no type", `{"network":"red"}`, Config{}, "has no type"},
		{"type is a number", `{"type":1}`, Config{}, "a JSON number where a string should be"},
		{"network is a number", `{"type":"coelan-cni","network":1}`, Config{}, "network: a JSON number where a string should be"},
		{"different Networks", `{"type":"coelan-cni","network":"red","nfn-network":"blue"}`, Config{}, `network "red" and nfn-network "blue" name different Networks`},
		{"no plugins", `{"plugins":[]}`, Config{}, "plugins \"[]\": is not a list of plugins"},
		{"plugin without a type", `{"plugins":[{"type":"coelan-cni"},{}]}`, Config{}, `plugins[1] "{}": has no type`},
		{"plugins is an object", `{"plugins":{}}`, Config{}, "is not a list of plugins"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseConfig(tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v\nwant  %s", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(`{"type":"coelan-cni","network":"red"}`)
	f.Add(`{"plugins":[{"type":"coelan-cni","network":"red"},{"type":"tuning"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig(text)
		if err == nil && (c.Coelan && c.Type == "" || !c.Coelan && c.Network != "") {
			t.Fatalf("accepted %+v", c)
		}
	})
}
