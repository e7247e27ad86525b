// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

const subnetID = "8e2d1c5a-37a0-4f39-9d5d-0c9d2ab8f9ef"

func TestParseDefinition(t *testing.T) {
	const id = `"subnetId": "` + subnetID + `"`
	for _, tt := range []struct {
		name, config, kuryr string
		want                Config
		err                 string
	}{
		{"Kuryr's", "", "{" + id + "}", Config{Coelan: true, Subnet: subnetID}, ""},
		{"of bare metal", "", "{" + id + `, "driverType": "neutron-vif"}`, Config{Coelan: true, Subnet: subnetID}, ""},
		{"a VLAN of a trunk", "", "{" + id + `, "driverType": "nested-vlan"}`, Config{Coelan: true, Subnet: subnetID}, ""},
		{"keys that Kuryr does not know", "", "{" + id + `, "driverType": null, "mtu": 1400}`, Config{Coelan: true, Subnet: subnetID}, ""},
		{"for Multus", `{"type": "coelan-cni"}`, "{" + id + "}", Config{Type: "coelan-cni", Coelan: true, Subnet: subnetID}, ""},
		{"for Kuryr's plugin", `{"type": "kuryr-cni", "kuryr_conf": "/etc/kuryr/kuryr.conf"}`, "{" + id + "}",
			Config{Type: "kuryr-cni", Coelan: true, Subnet: subnetID}, ""},
		{"and a Network", `{"type": "coelan-cni", "network": "red"}`, "{" + id + "}",
			Config{Type: "coelan-cni", Coelan: true, Network: "red", Subnet: subnetID}, ""},
		{"for another plugin", `{"type": "macvlan"}`, "{", Config{Type: "macvlan"}, ""},
		{"without the annotation", `{"type": "coelan-cni", "network": "red"}`, "", Config{Type: "coelan-cni", Coelan: true, Network: "red"}, ""},

		{"malformed spec.config", `{`, "{" + id + "}", Config{}, "spec.config"},
		{"malformed", "", "{" + id, Config{}, `annotation openstack.org/kuryr-config "{\"subnetId\": \"8e2d1c5a-37a0-4f39-9d5d-0c9d2ab8f9ef\"": malformed JSON at byte`},
		{"a list", "", "[]", Config{}, "a JSON array where an object should be"},
		{"null", "", "null", Config{}, "null where an object should be"},
		{"nothing", "", " ", Config{}, "malformed JSON"},
		{"no subnet", "", "{}", Config{}, "has no subnetId"},
		{"a key in other letters", "", `{"subnetid": "` + subnetID + `"}`, Config{}, "has no subnetId"},
		{"a number", "", `{"subnetId": 7}`, Config{}, `annotation openstack.org/kuryr-config, subnetId "7": a JSON number where a string should be`},
		{"no UUID", "", `{"subnetId": "private"}`, Config{}, `annotation openstack.org/kuryr-config, subnetId "private": is not a UUID as Neutron writes it`},
		{"capitals", "", `{"subnetId": "` + strings.ToUpper(subnetID) + `"}`, Config{}, "is not a UUID as Neutron writes it"},
		{"a URN", "", `{"subnetId": "urn:uuid:` + subnetID + `"}`, Config{}, "is not a UUID as Neutron writes it"},
		{"SR-IOV", "", "{" + id + `, "driverType": "sriov"}`, Config{}, `driverType "sriov": asks for a virtual function of the node's network card, which Coelan does not make: take the key away`},
		{"macvlan", "", "{" + id + `, "driverType": "nested-macvlan"}`, Config{}, "asks for a macvlan of the node's interface"},
		{"DPDK", "", "{" + id + `, "driverType": "nested-dpdk"}`, Config{}, "by DPDK, which Coelan does not make"},
		{"a driver that is none", "", "{" + id + `, "driverType": "bridge"}`, Config{}, `driverType "bridge": is no driver of Kuryr's`},
		{"a driver that is a list", "", "{" + id + `, "driverType": []}`, Config{}, "driverType \"[]\": a JSON array where a string should be"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			annotations := map[string]string{}
			if tt.kuryr != "" {
				annotations[AnnotationKuryrConfig] = tt.kuryr
			}
			got, err := ParseDefinition(tt.config, annotations)
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

// Whatever the annotation says: no panic, and what is accepted is an id of Neutron's.
func FuzzParseDefinition(f *testing.F) {
	f.Add("", `{"subnetId": "`+subnetID+`", "driverType": "neutron-vif"}`)
	f.Add(`{"type":"coelan-cni"}`, `{"subnetId": null}`)
	f.Fuzz(func(t *testing.T, config, kuryr string) {
		c, err := ParseDefinition(config, map[string]string{AnnotationKuryrConfig: kuryr})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if c.Subnet == "" {
			if c.Coelan || c.Type == "" {
				t.Fatalf("accepted %+v of %q", c, kuryr)
			}
			return
		}
		if id, err := uuid.Parse(c.Subnet); err != nil || id.String() != c.Subnet || !c.Coelan {
			t.Fatalf("accepted %+v", c)
		}
	})
}
